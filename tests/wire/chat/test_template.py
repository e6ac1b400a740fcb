"""The short way must be the long way: every stream decoded with templates and without, compared whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from properties import examples
from tailrace.messages import AnyDelta, ReasoningDelta, TextDelta, ToolCallDelta
from tailrace.wire.chat.decode import ChatDecoder
from tailrace.wire.templates import Template, learn
from wire.chat.chat_streams import DONE, HEAD, chunk, decoded, event, piece


def steady(field: str, text: bytes, *, tail: bytes = b"") -> bytes:
    """A chunk of a steady stream, byte by byte: `text` is what stands between the quotes."""
    return (
        b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,'
        b'"delta":{"%b":"%b"},"logprobs":null,"finish_reason":null}]%b}\n\n' % (field.encode(), text, tail)
    )


def same(raw: bytes) -> None:
    with_templates, without = decoded(raw), decoded(raw, templates=False)
    assert with_templates == without
    assert json.dumps(with_templates.body) == json.dumps(without.body)  # the order of the fields too


hostile = st.one_of(
    st.text(max_size=12).map(lambda s: json.dumps(s, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass")),
    st.text(max_size=12).map(lambda s: json.dumps(s)[1:-1].encode()),
    st.binary(max_size=12),
    st.sampled_from([
        b"", b'"', b"\\", b'\\"', b"\\\\", b"\\ud83d", b"\\ude00", b"\\ud83d\\ude00", b"\xff", b"\xed\xa0\x80", b"\x00",
        b"\t", b"\x7f", b'"},"x":{"y":"', b'","content":"twice', b'"},"finish_reason":"stop"}]}',
        b"a\ndata: b", b"a\n\ndata: b", b'"},"logprobs":null,"finish_reason":null}],"obfuscation":"abc"}',
    ]),
)  # fmt: skip
tails = st.one_of(
    st.just(b""),
    st.sampled_from([b',"obfuscation":"aB3"', b',"p":"abcdefg"', b',"obfuscation":""', b',"p":"\\u0041"']),
    st.binary(max_size=6).map(lambda b: b',"obfuscation":"' + b + b'"'),
    st.sampled_from([b',"usage":null', b',"usage":{"prompt_tokens":1}']),
    st.sampled_from([b',"provider":"X"', b',"provider":"Y"', b',"error":null']),
)  # fmt: skip
fields = st.sampled_from(["content", "content", "content", "reasoning_content", "reasoning", "refusal", "novel"])


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(fields, hostile, tails), max_size=12))
def test_hostile_bytes_in_a_steady_stream(pieces: list[tuple[str, bytes, bytes]]) -> None:
    same(b"".join(steady(field, text, tail=tail) for field, text, tail in pieces) + DONE)


deltas = st.one_of(
    st.fixed_dictionaries({"content": st.text(max_size=3)}, optional={"role": st.just("assistant")}),
    st.fixed_dictionaries({"content": st.none(), "reasoning_content": st.text(max_size=3)}),
    st.fixed_dictionaries({"content": st.just(""), "reasoning": st.text(max_size=3)}),
    st.fixed_dictionaries({"content": st.text(max_size=3), "channel": st.sampled_from(["a", "b"])}),
    st.fixed_dictionaries({"content": st.just([{"type": "text", "text": "x"}])}),
    st.fixed_dictionaries({"content": st.just([{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}])}),
    st.fixed_dictionaries({"annotations": st.just([{"a": 1}]), "content": st.just("x")}),
    st.builds(
        lambda index, id_, name, text: {"tool_calls": [piece(text, name=name, index=index, **id_)]},
        st.sampled_from([0, 1]),
        st.sampled_from([{}, {"id": "a"}, {"id": "b"}, {"id": None}]),
        st.sampled_from([None, "f"]),
        st.sampled_from(["", "{", "}", "{}", '"x"', "1"]),
    ),
)
chunks = st.builds(
    lambda delta, finish, index, top, more: event(
        {**HEAD, **top, "choices": [{"index": index, "delta": delta, "finish_reason": finish, **more}]}
    ),
    deltas,
    st.sampled_from([None, None, None, None, "stop"]),
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from([{}, {}, {"provider": "a"}, {"provider": "b"}, {"citations": ["u"]}, {"obfuscation": "q1"}]),
    st.sampled_from([{}, {}, {"logprobs": {"content": [{"token": "t"}]}}, {"token_ids": [1]}, {"filter": {"a": 1}}]),
)  # fmt: skip


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(chunks, st.integers(1, 3)), max_size=10))
def test_streams_that_change_under_way(said: list[tuple[bytes, int]]) -> None:
    same(b"".join(raw * times for raw, times in said) + DONE)


STEADY: dict[str, tuple[list[bytes], Any]] = {
    "content": ([steady("content", b"a%d" % i) for i in range(50)], TextDelta),
    "reasoning": ([steady("reasoning_content", b"a%d" % i) for i in range(50)], ReasoningDelta),
    "obfuscation": ([steady("content", b"a", tail=b',"obfuscation":"%d"' % i**5) for i in range(50)], TextDelta),
    "arguments": (
        [chunk({"tool_calls": [piece("", name="f", index=0, id="a")]})]
        + [chunk({"tool_calls": [piece(f"{i},", index=0)]}) for i in range(50)],
        ToolCallDelta,
    ),
    "the other choice": ([chunk({"content": f"{i}"}, index=1) for i in range(50)], TextDelta),
    "content before other fields": (
        [event({"choices": [{"delta": {"content": f"{i}"}}], "model": 'a "content": "b'}) for i in range(50)],
        TextDelta,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STEADY)
def test_the_bulk_of_a_steady_stream_takes_the_short_way(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the properties above would hold for nothing."""
    blocks, kind = STEADY[name]
    long_way: list[bytes] = []
    decoder = ChatDecoder()
    take = ChatDecoder._decode_block

    def counted(self: ChatDecoder, block: bytes, out: list[AnyDelta]) -> bool:
        long_way.append(block)
        return take(self, block, out)

    monkeypatch.setattr(ChatDecoder, "_decode_block", counted)
    said = [delta for block in blocks for delta in decoder.feed(block)]
    assert len(long_way) <= 3
    assert sum(isinstance(delta, kind) for delta in said) >= 50
    same(b"".join(blocks) + DONE)


def test_an_event_with_fields_behind_its_data_is_no_template() -> None:
    """Its block begins as that of a plain event does, and is not JSON."""
    blocks = [chunk({"role": "assistant", "content": f"{i}"})[:-1] + b"id: %d\n\n" % i for i in range(6)]
    same(b"".join(blocks) + DONE)
    assert decoded([*blocks, DONE]).text == "012345"


def test_a_stream_whose_every_chunk_differs_is_not_learnt_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    lessons: list[bytes] = []

    def counted(block: bytes, *_: object) -> Template | None:
        lessons.append(block)
        return learn(block, *_)  # type: ignore[arg-type]

    monkeypatch.setattr("tailrace.wire.chat.decode.learn", counted)
    decoder = ChatDecoder()
    for i in range(100):
        decoder.feed(chunk({"content": "x"}, seq=i))
    assert len(lessons) < 10


@pytest.mark.parametrize(
    ("constant", "is_learnt"), [(rb"sk-a/b \"c\\", True), (rb"sk-a\/b", False), (rb"sk\u002da", False)]
)
def test_J114_what_is_spelt_oddly_is_never_passed_on_unread(constant: bytes, is_learnt: bool) -> None:
    """A key that a provider repeats in another spelling than ours is found in what is parsed alone."""
    block = b'data: {"debug":"%b","choices":[{"delta":{"content":"x"}}]}' % constant
    path = ("choices", 0, "delta", "content")
    assert (learn(block, json.loads(block[6:]), path, [], TextDelta) is not None) == is_learnt
