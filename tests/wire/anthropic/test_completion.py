from __future__ import annotations

from typing import Any

import pytest

from tailrace.messages import JsonObject, Message, Native, Reasoning, Stop, Text, ToolCall, Usage
from tailrace.wire.anthropic.completion import completion_from_body


def body(*content: Any, stop_reason: str = "end_turn", **fields: Any) -> JsonObject:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": list(content),
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": {"input_tokens": 2, "output_tokens": 3},
        **fields,
    }


def test_parts_stand_in_the_order_of_the_blocks() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    sealed = {"type": "redacted_thinking", "data": "EowH"}
    search = {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "x"}}
    answer = {"type": "web_search_tool_result", "tool_use_id": "srv", "content": []}
    completion = completion_from_body(
        body(
            thinking,
            sealed,
            {"type": "text", "text": "Let me look."},
            search,
            answer,
            {"type": "tool_use", "id": "t", "name": "f", "input": {"b": 1, "a": "é"}, "caller": {"type": "direct"}},
            stop_reason="tool_use",
        )
    )
    assert completion.message == Message(
        "assistant",
        (
            Reasoning("hm", "anthropic", thinking),
            Reasoning("", "anthropic", sealed),
            Text("Let me look."),
            Native("anthropic", search),
            Native("anthropic", answer),
            ToolCall("t", "f", '{"b":1,"a":"é"}'),
        ),
    )
    assert (completion.id, completion.model, completion.stop) == ("msg_1", "claude-x", "tools")
    assert completion.usage == Usage(2, 3)
    assert completion.refusal is None


def test_citations_follow_the_text_they_belong_to() -> None:
    cited = {"type": "text", "text": "So it is.", "citations": [{"type": "web_search_result_location"}]}
    plain = {"type": "text", "text": " Yes.", "citations": []}
    completion = completion_from_body(body(cited, plain))
    assert completion.message.parts == (Text("So it is."), Native("anthropic", cited), Text(" Yes."))
    assert completion.text == "So it is. Yes."


def test_a_call_made_by_code_keeps_its_caller() -> None:
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {}, "caller": {"type": "code_execution_20250825"}}
    assert completion_from_body(body(call)).message.parts == (ToolCall("t", "f", "{}"), Native("anthropic", call))


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", "end"),
        ("stop_sequence", "end"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tools"),
        ("refusal", "filter"),
        ("pause_turn", "pause"),
        ("novel", "unknown"),
    ],
)
def test_stop_reasons(reason: str, stop: Stop) -> None:
    completion = completion_from_body(body({"type": "text", "text": "x"}, stop_reason=reason))
    assert (completion.finish_reason, completion.stop) == (reason, stop)


def test_B36_calls_win_over_an_end_of_turn() -> None:
    completion = completion_from_body(body({"type": "tool_use", "id": "t", "name": "f", "input": {}}))
    assert (completion.finish_reason, completion.stop) == ("end_turn", "tools")


@pytest.mark.parametrize("tool_input", [{}, {"path": "a.txt"}])
def test_B34_B35_the_last_call_under_the_token_limit_was_cut_although_it_looks_whole(tool_input: JsonObject) -> None:
    first = {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}
    last = {"type": "tool_use", "id": "t2", "name": "write_file", "input": tool_input}
    calls = completion_from_body(body(first, last, stop_reason="max_tokens")).tool_calls
    assert [call.parsed() for call in calls] == [{"a": 1}, None]


def test_a_refusal_carries_its_explanation_where_there_is_one() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "no malware"}
    assert completion_from_body(body(stop_reason="refusal", stop_details=details)).refusal == "no malware"
    assert completion_from_body(body(stop_reason="refusal", stop_details=None)).refusal == ""


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"content": None, "usage": None, "id": 5, "model": None, "stop_reason": 7},
        {"content": ["text", None, {"type": "text"}, {"type": "tool_use"}, {}], "usage": {"input_tokens": "5"}},
        {"content": [{"type": "tool_use", "input": 5}], "stop_reason": "max_tokens"},
    ],
)
def test_a_body_of_the_wrong_shape_reads_as_what_there_is(odd: JsonObject) -> None:
    completion = completion_from_body(odd)
    assert (completion.dialect, completion.text, completion.usage) == ("anthropic", "", Usage())
