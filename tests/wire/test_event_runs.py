"""The provider's own events, many at once: a client is sent the same bytes however the stream was cut, and the same
events as without the short way."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from properties import examples
from tailrace.config.quirks import NONE
from tailrace.messages import AnyDelta, Dialect, EventDelta, EventRunDelta, ReasoningDelta, TextDelta, ToolCallDelta
from tailrace.wire.anthropic.encode import StreamEncoder as AnthropicEncoder
from tailrace.wire.chat.decode import ChatDecoder
from tailrace.wire.chat.encode import StreamEncoder as ChatEncoder
from tailrace.wire.dialects import DIALECTS
from tailrace.wire.responses.encode import StreamEncoder as ResponsesEncoder
from tailrace.wire.templates import Template, TemplateDecoder
from wire.chat.chat_streams import LongWayDecoder
from wire.headers import header
from wire.recordings import Recording, load, needs_recordings, random_pieces, split_at


class LongWayEncoder(ChatEncoder):
    """Parses every chunk of the provider and writes it anew."""

    def _heads(self, _data: bytes) -> tuple[bytes, bytes]:
        return b"", b""


def encoder(dialect: Dialect, *, include_usage: bool = False, long_way: bool = False) -> Any:
    match dialect:
        case "chat":
            kind = LongWayEncoder if long_way else ChatEncoder
            return kind(header("chat", "ours", model="up/m", created=1, include_usage=include_usage))
        case "anthropic":
            return AnthropicEncoder(header("anthropic", "ours", model="up/m"))
        case "responses":
            return ResponsesEncoder(header("responses", "resp_ours", model="up/m", created=1))


def deltas_of(dialect: Dialect, pieces: Iterable[bytes], *, templates: bool = True) -> list[list[AnyDelta]]:
    """What each read brings, and the end."""
    decoder = DIALECTS[dialect].decoder(NONE, keep_events=True)
    if not templates and dialect == "chat":
        decoder = LongWayDecoder(keep_events=True)
    elif not templates and isinstance(decoder, TemplateDecoder):
        decoder._samples_left = 0
    return [*(decoder.feed(piece) for piece in pieces), decoder.close()]


def relayed(dialect: Dialect, pieces: Iterable[bytes], *, templates: bool = True, include_usage: bool = False) -> bytes:
    out = encoder(dialect, include_usage=include_usage, long_way=not templates)
    sent = [out.encode(deltas) for deltas in deltas_of(dialect, pieces, templates=templates)]
    return b"".join([*sent, out.close()])


def events_in(stream: bytes) -> list[Any]:
    """Each event's name and JSON. A piece of a call that says nothing is left out by the long way."""
    found = []
    for block in stream.split(b"\n\n")[:-1]:
        name, _, data = block.rpartition(b"data: ")
        event = msgspec.json.decode(data) if data != b"[DONE]" else data
        for choice in event.get("choices", []) if isinstance(event, dict) else []:
            if calls := (choice.get("delta") or {}).get("tool_calls"):
                nothing = {"index": 0, "function": {"arguments": ""}}
                choice["delta"]["tool_calls"] = [call for call in calls if call != {**nothing, "index": call["index"]}]
        found.append((name, event))
    return found


def joined(deltas: Iterable[AnyDelta]) -> list[AnyDelta]:
    """The neutral deltas, neighbours of one text as one."""
    out: list[AnyDelta] = []
    for delta in deltas:
        if isinstance(delta, EventDelta | EventRunDelta):
            continue
        last = out[-1] if out else None
        match last, delta:
            case (TextDelta(before, a), TextDelta(text, b)) | (ReasoningDelta(before, a), ReasoningDelta(text, b)) if (
                a == b
            ):
                out[-1] = msgspec.structs.replace(delta, text=before + text)
            case ToolCallDelta(), ToolCallDelta(id="", name="") if (last.index, last.choice) == (
                delta.index,
                delta.choice,
            ):
                out[-1] = msgspec.structs.replace(last, arguments=last.arguments + delta.arguments)
            case _:
                out.append(delta)
    return out


def same_however_cut(dialect: Dialect, raw: bytes, cuts: list[list[bytes]], *, include_usage: bool = False) -> None:
    whole = relayed(dialect, [raw], include_usage=include_usage)
    for pieces in cuts:
        assert events_in(relayed(dialect, pieces, include_usage=include_usage)) == events_in(whole)
    plain = relayed(dialect, [raw], templates=False, include_usage=include_usage)
    assert events_in(whole) == events_in(plain)
    told = [joined(d for read in deltas_of(dialect, [raw], templates=t) for d in read) for t in (True, False)]
    assert told[0] == told[1]


RECORDINGS = [r for dialect in DIALECTS for r in load(dialect) if r.meta["status"] == 200]


@needs_recordings
@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda r: r.id)
def test_a_recorded_stream_is_relayed_the_same_however_it_is_cut(recording: Recording) -> None:
    rng = random.Random(recording.id)
    raw = recording.raw
    events = [block + b"\n\n" for block in raw.split(b"\n\n")]
    events[-1] = events[-1][:-2]
    cuts = [events, random_pieces(raw, rng), random_pieces(raw, rng)]
    same_however_cut(cast("Dialect", recording.api), raw, cuts, include_usage=rng.random() < 0.5)


# ── streams that turn hostile ────────────────────────────────────────────────────────────────────────────────

HOSTILE = st.one_of(
    st.text(max_size=8).map(lambda s: json.dumps(s, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass")),
    st.sampled_from([
        b"", b"a", b"b", b" word", b'"', b"\\", b'\\"', b"\\\\", b"\\ud83d", b"\\ud83d\\ude00", b"\xff", b"\n", b"\t",
        b'"},"x":{"y":"', b'"}', b'"}  ', b',"usage":null', b"a\ndata: b", b"a\n\ndata: b", b'a"\n\n"b', b'a" "b',
    ]),
)  # fmt: skip
STEADY = st.sampled_from([b" one", b" two", "ż".encode(), b"\\n", b""])


def chat_event(text: bytes, tail: bytes) -> bytes:
    return (
        b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,'
        b'"delta":{"content":"%b"},"logprobs":null,"finish_reason":null}]%b}\n\n' % (text, tail)
    )


def anthropic_event(text: bytes, tail: bytes) -> bytes:
    data = b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%b"}%b}' % (text, tail)
    return b"event: content_block_delta\ndata: %b\n\n" % data


MAKERS: dict[Dialect, Any] = {"chat": chat_event, "anthropic": anthropic_event}
TAILS: dict[Dialect, list[bytes]] = {
    "chat": [b"", b',"usage":null', b',"obfuscation":"aB3"', b',"usage":null,"obfuscation":"x"', b',"p":""', b" "],
    "anthropic": [b"", b"  ", b"       ", b',"x":1'],
}  # fmt: skip
BEGINNING: dict[Dialect, bytes] = {
    "chat": b'data: {"id":"c","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n',
    "anthropic": b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","content":[]}}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"text",'
    b'"text":""}}\n\n',
}
END: dict[Dialect, bytes] = {
    "chat": b"data: [DONE]\n\n",
    "anthropic": b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
}


@pytest.mark.parametrize("dialect", ["chat", "anthropic"])
@settings(max_examples=examples(150))
@given(data=st.data())
def test_a_hostile_event_among_steady_ones_is_relayed_the_same_however_it_is_cut(
    dialect: Dialect, data: st.DataObject
) -> None:
    tail = data.draw(st.sampled_from(TAILS[dialect]))
    odd = st.tuples(HOSTILE, st.sampled_from(TAILS[dialect]))
    said = data.draw(st.lists(st.one_of(*[st.tuples(STEADY, st.just(tail))] * 4, odd), max_size=14))
    raw = BEGINNING[dialect] + b"".join(MAKERS[dialect](*each) for each in said) + END[dialect]
    cuts = data.draw(st.lists(st.integers(0, len(raw)), max_size=6))
    same_however_cut(dialect, raw, [split_at(raw, cuts)], include_usage=data.draw(st.booleans()))


# ── chunks by the book, and nearly so ────────────────────────────────────────────────────────────────────────

_CHAT_DELTAS = st.fixed_dictionaries({}, optional={
    "role": st.sampled_from(["assistant", "assistant", "", None, 1]),
    "content": st.sampled_from(["a", "b", "", None, ["c"], [{"type": "text", "text": "d"}]]),
    "refusal": st.sampled_from([None, None, "", "no"]),
    "reasoning_content": st.sampled_from([None, "", "t"]),
    "tool_calls": st.sampled_from([None, [], [{"index": 0, "id": "x", "function": {"name": "f", "arguments": "{}"}}]]),
    "audio": st.sampled_from([None, {"id": "s"}]),
    "novel": st.sampled_from([None, 1]),
})  # fmt: skip
_CHAT_CHOICES = st.fixed_dictionaries({}, optional={
    "index": st.sampled_from([0, 0, 0, 1, True, "0", None]),
    "delta": st.one_of(_CHAT_DELTAS, _CHAT_DELTAS, st.none()),
    "finish_reason": st.sampled_from([None, None, "stop", "length", "tool_calls", "", "error", 1]),
    "logprobs": st.sampled_from([None, None, {"content": [{"token": "t"}]}]),
    "message": st.just({"content": "whole"}),
    "error": st.sampled_from([None, {"message": "no"}]),
    "flag": st.sampled_from([None, "f"]),
})  # fmt: skip
_CHAT_CHUNKS = st.fixed_dictionaries(
    {"choices": st.one_of(st.lists(_CHAT_CHOICES, min_size=1, max_size=1), st.lists(_CHAT_CHOICES, max_size=2))},
    optional={
        "id": st.sampled_from(["c", "c", "", None]),
        "object": st.sampled_from(["chat.completion.chunk", "chat.completion.chunk", "error", None]),
        "created": st.just(5),
        "model": st.sampled_from(["m", ""]),
        "usage": st.sampled_from([None, None, {"prompt_tokens": 1}, {"prompt_tokens": 2, "cost": 0.5}, 3]),
        "service_tier": st.sampled_from(["a", None, {"x": 1}, {"y": None}]),
        "error": st.sampled_from([None, "no"]),
        "type": st.sampled_from(["chunk", "error"]),
        "x_groq": st.just({"id": "g", "usage": {"prompt_tokens": 4}}),
    },
)


@settings(max_examples=examples(200))
@given(st.lists(_CHAT_CHUNKS, max_size=6), st.booleans(), st.booleans(), st.booleans())
def test_the_short_way_of_plain_chunks_is_the_long_way(
    said: list[dict[str, Any]], role_first: bool, with_head: bool, include_usage: bool
) -> None:
    head = {"id": "c", "object": "chat.completion.chunk", "created": 5, "model": "m"} if with_head else {}
    opening = [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}] if role_first else []
    raw = (
        b"".join(b"data: %b\n\n" % msgspec.json.encode({**head, **chunk}) for chunk in [*opening, *said]) + END["chat"]
    )
    decoders = ChatDecoder(keep_events=True), LongWayDecoder(keep_events=True)
    short, long = (joined([*decoder.feed(raw), *decoder.close()]) for decoder in decoders)
    assert short == long
    assert decoders[0].rebuilt_body() == decoders[1].rebuilt_body()
    assert decoders[0].complete == decoders[1].complete
    same_however_cut("chat", raw, [], include_usage=include_usage)


# ── the cost ─────────────────────────────────────────────────────────────────────────────────────────────────

FORMS: dict[str, tuple[Dialect, list[bytes]]] = {
    "chat": ("chat", [b""] * 1000),
    "chat, usage: null": ("chat", [b',"usage":null'] * 1000),
    "chat, padded": ("chat", [b',"usage":null,"obfuscation":"%d"' % n for n in range(1000)]),
    "anthropic": ("anthropic", [b""] * 1000),
    "anthropic, padded": ("anthropic", [b" " * (n % 9) for n in range(1000)]),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_read_of_many_events_is_read_and_sent_in_a_few_steps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dialect, tails = FORMS[name]
    seen: list[bytes] = []
    text_in = Template.text_in

    def counted(self: Template, event: bytes) -> str | None:
        seen.append(event)
        return text_in(self, event)

    monkeypatch.setattr(Template, "text_in", counted)
    decoder, out = DIALECTS[dialect].decoder(NONE, keep_events=True), encoder(dialect)
    events = [MAKERS[dialect](b" word%d" % n, tail) for n, tail in enumerate(tails)]
    out.encode(decoder.feed(BEGINNING[dialect] + events[0]))
    deltas = decoder.feed(b"".join(events[1:]))
    assert [delta.__class__ for delta in deltas] == [EventRunDelta, TextDelta]
    assert len(seen) <= 2
    sent = out.encode(deltas)
    assert sent.count(b"\n\n") == 999
    assert (b'"id":"ours"' in sent) is (dialect == "chat")
    assert (b'"usage"' not in sent) or dialect != "chat"


def test_a_read_that_changes_its_form_at_every_event_costs_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading all that remains together is tried a few times a read, not at every event."""
    looks: list[int] = []
    together = Template._together

    def counted(self: Template, run: bytes) -> Any:
        looks.append(len(run))
        return together(self, run)

    monkeypatch.setattr(Template, "_together", counted)
    events = [chat_event(b"a%d" % n, b',"provider":"%d"' % (n % 3)) * 2 for n in range(400)]
    relayed("chat", [b"".join(events)])
    assert len(looks) <= 3


def test_a_null_usage_before_the_choices_is_left_out_of_every_chunk() -> None:
    """OpenAI puts it there in some streams. A client that has asked for no usage gets none, and whole chunks."""
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "usage": None}
    chunks = [{**head, "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}]
    chunks += [{**head, "choices": [{"index": 0, "delta": {"content": f"w{n}", "novel": n // 2}}]} for n in range(8)]
    raw = b"".join(b"data: %b\n\n" % json.dumps(chunk, separators=(",", ":")).encode() for chunk in chunks)
    for templates in (True, False):
        sent = events_in(relayed("chat", [raw + b"data: [DONE]\n\n"], templates=templates))
        expected = [{k: v for k, v in {**c, "id": "ours", "model": "up/m"}.items() if k != "usage"} for c in chunks]
        assert [event for _, event in sent][: len(expected)] == expected
