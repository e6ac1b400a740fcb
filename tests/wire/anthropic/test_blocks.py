"""What becomes of each block of a streamed message: calls, thinking, citations, and whatever is new."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.messages import JsonObject, ReasoningDelta, TextDelta, ToolCallDelta
from tailrace.wire.anthropic.completion import completion_from_body
from wire.anthropic.anthropic_events import (
    block_delta,
    block_start,
    block_stop,
    decode,
    json_piece,
    message_end,
    message_start,
    text_block,
    tool_start,
)


def content(raw: bytes) -> list[JsonObject]:
    blocks: list[JsonObject] = decode(raw)[1]["content"]
    return blocks


# ── B: tool calls ────────────────────────────────────────────────────────────────────────────────────────────


def test_B31_arguments_that_come_as_an_object_become_canonical_JSON() -> None:
    call = tool_start(0, input={"b": 1, "a": [True, None]}) + block_stop(0)
    deltas, body, _ = decode(message_start() + call + message_end("tool_use"))
    assert "".join(d.arguments for d in deltas if isinstance(d, ToolCallDelta)) == '{"b":1,"a":[true,null]}'
    assert completion_from_body(body).tool_calls[0].arguments == '{"b":1,"a":[true,null]}'


@pytest.mark.parametrize("pieces", [[], [""], ["", ""]])
def test_B32_no_arguments_are_an_empty_object(pieces: list[str]) -> None:
    call = tool_start(0) + b"".join(json_piece(0, piece) for piece in pieces) + block_stop(0)
    deltas, body, _ = decode(message_start() + call + message_end("tool_use"))
    assert [delta for delta in deltas if isinstance(delta, ToolCallDelta)] == [
        ToolCallDelta(0, "toolu_0", "get_weather"),
        ToolCallDelta(0, arguments="{}"),
    ]
    assert body["content"][0]["input"] == {}
    assert completion_from_body(body).tool_calls[0].parsed() == {}


def test_B33_interleaved_blocks_are_kept_apart_by_their_index() -> None:
    raw = (
        message_start()
        + tool_start(1, "b")
        + block_start(0, type="text", text="")
        + json_piece(1, '{"n":')
        + block_delta(0, "text_delta", text="Look")
        + tool_start(2, "c")
        + json_piece(2, '{"m":')
        + json_piece(1, "1}")
        + block_delta(0, "text_delta", text="ing")
        + json_piece(2, "2}")
        + block_stop(2)
        + block_stop(0)
        + block_stop(1)
        + message_end("tool_use")
    )
    deltas, body, _ = decode(raw)
    assert body["content"] == [
        {"type": "text", "text": "Looking"},
        {"type": "tool_use", "id": "toolu_1", "name": "b", "input": {"n": 1}},
        {"type": "tool_use", "id": "toolu_2", "name": "c", "input": {"m": 2}},
    ]
    pieces = [(d.index, d.arguments) for d in deltas if isinstance(d, ToolCallDelta) and d.arguments]
    assert pieces == [(0, '{"n":'), (1, '{"m":'), (0, "1}"), (1, "2}")]


def test_B24_an_index_used_again_is_a_new_block() -> None:
    one = tool_start(0, "a", id="t1") + json_piece(0, '{"x":1}') + block_stop(0)
    two = tool_start(0, "b", id="t2") + json_piece(0, '{"y":2}') + block_stop(0)
    calls = completion_from_body(decode(message_start() + one + two + message_end("tool_use"))[1]).tool_calls
    assert [(call.id, call.name, call.arguments) for call in calls] == [("t1", "a", '{"x":1}'), ("t2", "b", '{"y":2}')]


def test_B29_a_start_said_twice_is_one_call() -> None:
    raw = message_start() + tool_start(0) + tool_start(0) + json_piece(0, '{"x":1}') + block_stop(0)
    deltas, body, _ = decode(raw + message_end("tool_use"))
    assert len(body["content"]) == 1
    assert sum(isinstance(d, ToolCallDelta) and bool(d.id) for d in deltas) == 1


ARGUMENTS = '{"path": "a.txt", "lines": ["x", "y"], "mode": {"append": false}}'


@pytest.mark.parametrize("ending", [b"", block_stop(0), block_stop(0) + message_end("max_tokens"), message_end()])
@pytest.mark.parametrize("written", [ARGUMENTS[:n] for n in (1, 2, 9, 27, 40, len(ARGUMENTS) - 1)])
def test_B34_B35_arguments_that_were_cut_never_look_like_a_call_to_run(written: str, ending: bytes) -> None:
    _, body, _ = decode(message_start() + tool_start(0, "write_file") + json_piece(0, written) + ending)
    assert body["content"][0]["input"] == written
    (call,) = completion_from_body(body).tool_calls
    assert (call.name, call.arguments, call.parsed()) == ("write_file", written, None)


def test_B34_a_call_cut_before_its_arguments_is_not_a_call_without_arguments() -> None:
    (call,) = completion_from_body(decode(message_start() + tool_start(0))[1]).tool_calls
    assert call.parsed() is None


@pytest.mark.parametrize("written", ['["a"]', '"text"', "null", "1", "{} {}", "{'a': 1}", '{"a":' * 5000])
def test_B34_arguments_that_are_no_object_stay_the_text_they_are(written: str) -> None:
    raw = message_start() + tool_start(0) + json_piece(0, written) + block_stop(0) + message_end("tool_use")
    (call,) = completion_from_body(decode(raw)[1]).tool_calls
    assert (call.arguments, call.parsed()) == (written, None)


def test_pieces_of_a_server_tools_input_are_not_a_call_of_ours() -> None:
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"url": "u"}]}
    raw = message_start() + block_start(0, **use) + json_piece(0, '{"query":') + json_piece(0, '"x"}') + block_stop(0)
    deltas, body, _ = decode(raw + block_start(1, **result) + block_stop(1) + message_end())
    assert body["content"] == [{**use, "input": {"query": "x"}}, result]
    assert not [delta for delta in deltas if isinstance(delta, ToolCallDelta)]
    assert completion_from_body(body).tool_calls == ()


# ── C: reasoning, and whatever else grows ────────────────────────────────────────────────────────────────────


def test_C41_C45_thinking_is_reasoning_and_keeps_its_signature_block_by_block() -> None:
    def thinking(index: int, text: str, signature: str) -> bytes:
        start = block_start(index, type="thinking", thinking="", signature="")
        deltas = block_delta(index, "thinking_delta", thinking=text)
        return start + deltas + block_delta(index, "signature_delta", signature=signature) + block_stop(index)

    sealed = {"type": "redacted_thinking", "data": "EowH"}
    raw = message_start() + thinking(0, "hm", "s0") + thinking(1, "aha", "s1") + block_start(2, **sealed)
    deltas, body, _ = decode(raw + block_stop(2) + text_block(3, "42") + message_end())
    assert [d for d in deltas if isinstance(d, ReasoningDelta)] == [ReasoningDelta("hm"), ReasoningDelta("aha")]
    assert body["content"][:3] == [
        {"type": "thinking", "thinking": "hm", "signature": "s0"},
        {"type": "thinking", "thinking": "aha", "signature": "s1"},
        sealed,
    ]
    assert (completion_from_body(body).reasoning, completion_from_body(body).text) == ("hmaha", "42")


def test_C47_hidden_thinking_is_progress_although_it_says_nothing() -> None:
    hidden = block_delta(0, "thinking_delta", thinking="", estimated_tokens=50)
    deltas, _, _ = decode(message_start() + block_start(0, type="thinking", thinking="") + hidden)
    assert ReasoningDelta("") in deltas


def test_citations_are_collected_in_their_block() -> None:
    first, second = {"type": "char_location", "cited_text": "a"}, {"type": "char_location", "cited_text": "b"}
    raw = (
        message_start()
        + block_start(0, type="text", text="", citations=None)
        + block_delta(0, "citations_delta", citation=first)
        + block_delta(0, "text_delta", text="cited")
        + block_delta(0, "citations_delta", citation=second)
        + block_stop(0)
    )
    assert content(raw) == [{"type": "text", "text": "cited", "citations": [first, second]}]


def test_a_compaction_comes_in_one_piece() -> None:
    raw = (
        message_start()
        + block_start(0, type="compaction", content=None)
        + block_delta(0, "compaction_delta", content="so far: …", encrypted_content="x")
        + block_stop(0)
    )
    assert content(raw) == [{"type": "compaction", "content": "so far: …", "encrypted_content": "x"}]


def test_A12_blocks_and_deltas_of_a_later_version_are_kept() -> None:
    def delta(**fields: Any) -> bytes:
        return block_delta(0, "hologram_delta", **fields)

    raw = (
        message_start()
        + block_start(0, type="hologram", voxels=[], caption="", depth=1)
        + delta(voxels=[1, 2], caption="ab")
        + delta(voxels=[3], caption="c", depth=2, hue="red")
        + block_stop(0)
        + message_end()
    )
    assert content(raw) == [{"type": "hologram", "voxels": [1, 2, 3], "caption": "abc", "depth": 2, "hue": "red"}]


def test_A12_a_delta_of_a_later_version_brings_text_in_its_place() -> None:
    raw = message_start() + block_start(0, type="text", text="") + block_delta(0, "text_delta", text="a")
    raw += block_delta(0, "styled_text_delta", text="b", style="bold") + block_delta(0, "text_delta", text="c")
    deltas, body, _ = decode(raw + block_stop(0) + message_end())
    assert [delta.text for delta in deltas if isinstance(delta, TextDelta)] == ["a", "b", "c"]
    assert body["content"] == [{"type": "text", "text": "abc", "style": "bold"}]


def test_A12_blocks_of_a_later_version_grow_by_the_pieces_of_today() -> None:
    summary = block_start(0, type="summary", text="") + block_delta(0, "text_delta", text="in ")
    summary += block_delta(0, "text_delta", text="short") + block_stop(0)
    use = (
        block_start(1, type="robot_tool_use", id="r1", name="lift", input={})
        + json_piece(1, '{"kg":')
        + json_piece(1, "2}")
    )
    _, body, _ = decode(message_start() + summary + use + block_stop(1) + message_end())
    assert body["content"] == [
        {"type": "summary", "text": "in short"},
        {"type": "robot_tool_use", "id": "r1", "name": "lift", "input": {"kg": 2}},
    ]
    assert (completion_from_body(body).text, completion_from_body(body).tool_calls) == ("", ())


def test_D55_a_block_whose_start_never_came_begins_with_its_first_delta() -> None:
    deltas, body, _ = decode(message_start() + block_delta(0, "text_delta", text="Hi") + message_end())
    assert TextDelta("Hi") in deltas
    assert body["content"] == [{"type": "text", "text": "Hi"}]
