from __future__ import annotations

import json

import pytest

from tailrace.config.quirks import WireQuirks
from tailrace.messages import (
    AnyDelta,
    ErrorDelta,
    FinishDelta,
    JsonObject,
    Native,
    NativeDelta,
    Reasoning,
    ReasoningDelta,
    Refusal,
    RefusalDelta,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
    UsageDelta,
)
from tailrace.wire.responses.completion import completion_from_body
from tailrace.wire.responses.decode import ResponsesDecoder
from wire.responses.responses_streams import (
    USAGE,
    call_delta,
    call_item,
    completed,
    created,
    event,
    message,
    run,
    text_delta,
)


def only_error(deltas: list[AnyDelta]) -> ErrorDelta:
    errors = [delta for delta in deltas if isinstance(delta, ErrorDelta)]
    assert len(errors) == 1
    assert deltas[-1] is errors[0]
    return errors[0]


# ── what an answer says ──────────────────────────────────────────────────────────────────────────────────────


def test_text_usage_and_finish() -> None:
    deltas, decoder = run(created(), text_delta("Hel"), text_delta("lo"), completed(message("Hello"), usage=USAGE))
    usage = Usage(9, 7, 4, 1, 3)
    assert deltas == [TextDelta("Hel"), TextDelta("lo"), UsageDelta(usage), FinishDelta("completed")]
    completion = completion_from_body(decoder.rebuilt_body())
    assert decoder.complete
    assert (completion.id, completion.model, completion.text, completion.usage) == ("resp_1", "m", "Hello", usage)
    assert (completion.finish_reason, completion.stop) == ("completed", "end")


def test_every_kind_of_part_in_its_order() -> None:
    thought = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "secret"}
    search = {"id": "ws_1", "type": "web_search_call", "status": "completed"}
    said: JsonObject = message("Hi")
    said["content"].append({"type": "refusal", "refusal": "No."})
    deltas, decoder = run(completed(thought, search, said, call_item(arguments='{"a":1}')))
    completion = completion_from_body(decoder.rebuilt_body())
    assert completion.message.parts == (
        Reasoning("", "responses", thought),
        Native("responses", search),
        Text("Hi"),
        Refusal("No."),
        ToolCall("call_0", "look", '{"a":1}'),
    )
    assert (completion.refusal, completion.stop) == ("No.", "tools")
    call = ToolCallDelta(0, "call_0", "look", '{"a":1}')
    sealed, searched = ({"encrypted_content": "secret", "reasoning": thought}, {"item": search})
    assert deltas == [
        NativeDelta("responses", sealed),
        NativeDelta("responses", searched),
        TextDelta("Hi"),
        RefusalDelta("No."),
        call,
        FinishDelta("completed"),
    ]


def test_C41_summary_and_reasoning_text_are_each_said_once_and_apart() -> None:
    def summary(text: str, index: int) -> bytes:
        keys = {"item_id": "rs_1", "output_index": 0, "summary_index": index}
        return event("response.reasoning_summary_text.delta", **keys, delta=text)

    item = {
        "id": "rs_1",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}],
        "content": [{"type": "reasoning_text", "text": "raw"}],
    }
    raw = event("response.reasoning_text.delta", item_id="rs_1", output_index=0, content_index=0, delta="raw")
    done = event("response.output_item.done", output_index=0, item=item)
    deltas, decoder = run(summary("on", 0), summary("e", 0), summary("two", 1), raw, done, completed(item))
    thoughts = [delta.text for delta in deltas if isinstance(delta, ReasoningDelta)]
    assert thoughts == ["on", "e", "\n\n", "two", "\n\n", "raw"]
    assert completion_from_body(decoder.rebuilt_body()).reasoning == "".join(thoughts)


def test_C41_the_same_thought_in_summary_and_content_is_read_once() -> None:
    same = {"type": "summary_text", "text": "hm"}
    item = {"type": "reasoning", "summary": [same], "content": [{**same, "type": "reasoning_text"}]}
    assert completion_from_body({"output": [item]}).reasoning == "hm"


def test_C46_a_budget_spent_on_reasoning_is_incomplete() -> None:
    thought = {"id": "rs_1", "type": "reasoning", "summary": []}
    details = {"reason": "max_output_tokens"}
    _, decoder = run(completed(thought, status="incomplete", incomplete_details=details))
    completion = completion_from_body(decoder.rebuilt_body())
    assert (completion.text, completion.finish_reason, completion.stop) == ("", "incomplete", "length")


# ── tool calls ───────────────────────────────────────────────────────────────────────────────────────────────


def test_B24_parallel_calls_at_one_index_are_told_apart_by_id() -> None:
    added = [
        event("response.output_item.added", output_index=0, item=call_item(i, status="in_progress")) for i in (0, 1)
    ]
    deltas, decoder = run(
        *added,
        call_delta('{"a"', 0, output_index=0),
        call_delta('{"b"', 1, output_index=0),
        call_delta(":1}", 0, output_index=0),
        call_delta(":2}", 1, output_index=0),
        completed(),
    )
    pieces = [(d.index, d.arguments) for d in deltas if isinstance(d, ToolCallDelta) and d.arguments]
    assert pieces == [(0, '{"a"'), (1, '{"b"'), (0, ":1}"), (1, ":2}")]
    assert [call.arguments for call in completion_from_body(decoder.rebuilt_body()).tool_calls] == [
        '{"a":1}',
        '{"b":2}',
    ]


def test_ids_that_change_with_every_event_are_told_by_the_index() -> None:
    item = call_item(0, arguments='{"a":1}')
    deltas, decoder = run(
        event("response.output_item.added", output_index=0, item={**item, "id": "x1", "arguments": ""}),
        call_delta('{"a"', item_id="x2"),
        call_delta(":1}", item_id="x3"),
        event("response.output_item.done", output_index=0, item={**item, "id": "x4"}),
        completed({**item, "id": "x5"}),
    )
    assert [d.arguments for d in deltas if isinstance(d, ToolCallDelta)] == ["", '{"a"', ":1}"]
    assert len(completion_from_body(decoder.rebuilt_body()).tool_calls) == 1


def test_no_index_at_all_is_told_by_the_id() -> None:
    def delta(item_id: str, text: str) -> bytes:
        return event("response.output_text.delta", item_id=item_id, delta=text)

    _, decoder = run(delta("a", "1"), delta("b", "2"), delta("a", "3"), completed())
    assert [part["content"][0]["text"] for part in decoder.rebuilt_body()["output"]] == ["13", "2"]


def test_neither_id_nor_index_grows_the_last_of_its_kind() -> None:
    kinds = ["response.reasoning_text.delta", "response.output_text.delta", "response.output_text.delta"]
    deltas, decoder = run(*(event(kind, delta="x") for kind in kinds), completed())
    assert deltas == [ReasoningDelta("x"), TextDelta("x"), TextDelta("x"), FinishDelta("completed")]
    assert [item["type"] for item in decoder.rebuilt_body()["output"]] == ["reasoning", "message"]


def test_B30_arguments_before_the_name_are_held() -> None:
    done = event("response.output_item.done", output_index=0, item=call_item(arguments='{"a":1}'))
    deltas, _ = run(call_delta('{"a"'), call_delta(":1}"), done, completed())
    assert deltas == [ToolCallDelta(0, "call_0", "look", '{"a":1}'), FinishDelta("completed")]


def test_B31_arguments_as_an_object_become_json_text() -> None:
    item = call_item(arguments={"b": 1, "a": [2]})
    deltas, decoder = run(event("response.output_item.done", output_index=0, item=item), completed(item))
    assert ToolCallDelta(0, "call_0", "look", '{"a":[2],"b":1}') in deltas
    assert completion_from_body(decoder.rebuilt_body()).tool_calls[0].arguments == '{"a":[2],"b":1}'


def test_B32_no_arguments_are_an_empty_object() -> None:
    assert completion_from_body({"output": [call_item(arguments="")]}).tool_calls == (ToolCall("call_0", "look", "{}"),)


def test_B34_arguments_cut_off_stay_cut_off() -> None:
    added = event("response.output_item.added", output_index=0, item=call_item(status="in_progress"))
    deltas, decoder = run(created(), added, call_delta('{"path": "/'))
    assert only_error(deltas).cut
    completion = completion_from_body(decoder.rebuilt_body())
    assert completion.tool_calls == (ToolCall("call_0", "look", '{"path": "/'),)
    assert completion.tool_calls[0].parsed() is None
    assert completion.body["output"][0]["status"] == "in_progress"


def test_B35_calls_cut_off_by_the_limit_are_not_a_finished_turn() -> None:
    item = call_item(arguments='{"x":48', status="incomplete")
    _, decoder = run(completed(item, status="incomplete", incomplete_details={"reason": "max_output_tokens"}))
    assert completion_from_body(decoder.rebuilt_body()).stop == "length"


@pytest.mark.parametrize("deltas", [["Hel", "lo"], ["Hel"], []])
def test_B40_done_is_authoritative_and_says_what_the_deltas_left_out(deltas: list[str]) -> None:
    keys = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    done = event("response.output_text.done", **keys, text="Hello")
    said, decoder = run(*(text_delta(text) for text in deltas), done, completed())
    assert "".join(d.text for d in said if isinstance(d, TextDelta)) == "Hello"
    assert completion_from_body(decoder.rebuilt_body()).text == "Hello"


def test_B40_done_that_contradicts_the_deltas_wins_in_the_body() -> None:
    done = event("response.output_item.done", output_index=0, item=message("Goodbye"))
    deltas, decoder = run(text_delta("Hello"), done, text_delta(" late"), completed())
    assert deltas == [TextDelta("Hello"), FinishDelta("completed")]
    assert completion_from_body(decoder.rebuilt_body()).text == "Goodbye"


def test_the_input_of_a_custom_tool_grows() -> None:
    _, decoder = run(
        event("response.output_item.added", output_index=0, item={"id": "c", "type": "custom_tool_call", "name": "n"}),
        event("response.custom_tool_call_input.delta", output_index=0, item_id="c", delta="free "),
        event("response.custom_tool_call_input.delta", output_index=0, item_id="c", delta="text"),
    )
    assert decoder.rebuilt_body()["output"][0]["input"] == "free text"


def test_what_came_with_the_pieces_of_a_cut_answer_is_kept() -> None:
    _, decoder = run(
        text_delta("Hi", logprobs=[{"token": "Hi", "logprob": -1}]),
        text_delta("!", logprobs=[{"token": "!", "logprob": -2}]),
        event("response.output_text.annotation.added", item_id="msg_1", output_index=0, annotation={"url": "u"}),
    )
    part = decoder.rebuilt_body()["output"][0]["content"][0]
    assert part["text"] == "Hi!"
    assert part["annotations"] == [{"url": "u"}]
    assert [logprob["token"] for logprob in part["logprobs"]] == ["Hi", "!"]


def test_A12_unknown_events_items_and_fields_are_kept_or_ignored() -> None:
    item = {"id": "n", "type": "novelty", "shape": {"deep": [1]}}
    deltas, decoder = run(
        created(),
        event("ping", cost="0"),
        event("response.novelty.progress", item_id="n"),
        event("response.novelty.delta", item_id="n", delta="x"),
        event("response.output_item.done", output_index=0, item=item, extra=1),
        completed(novel_field=True),
    )
    assert deltas == [NativeDelta("responses", {"item": item}), FinishDelta("completed")]
    assert decoder.rebuilt_body()["output"] == [item]
    assert decoder.rebuilt_body()["novel_field"] is True
    assert completion_from_body(decoder.rebuilt_body()).message.parts == (Native("responses", item),)


# ── bytes ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_A06_A08_A09_A10_other_framings_of_the_same() -> None:
    plain = json.dumps({"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "delta": "x"})
    broken_line = plain.replace(', "delta"', ',\ndata: "delta"')
    raw = (
        f"data: {plain}\n\ndata:{plain}\n\n: hi\ndata: {plain}\n\nid: 1\nevent: x\ndata: {plain}\n\n"
        f"data: {broken_line}\n\ndata: : keepalive\n\ndata:\n\ndata: [DONE]\n\n{plain}\n\n"
    ).encode()
    deltas, _ = run(raw, completed())
    assert deltas == [TextDelta("x")] * 5 + [FinishDelta("completed")]


@pytest.mark.parametrize("place", ['"item_id":"m","output_index":0,', '"output_index":0,"content_index":0,', ""])
def test_the_events_name_stands_in_for_a_missing_type(place: str) -> None:
    raw = f'event: response.output_text.delta\ndata: {{{place}"delta":"x"}}\n\n'.encode()
    deltas, decoder = run(raw, raw, completed())
    assert deltas == [TextDelta("x")] * 2 + [FinishDelta("completed")]
    assert completion_from_body(decoder.rebuilt_body()).text == "xx"


@pytest.mark.parametrize("data", ['{"type":"ping"}{"type":"ping"}', "[1]", '{"type":', "<html>", '"text"'])
def test_A14_A19_what_is_not_one_object_is_a_typed_error(data: str) -> None:
    deltas, decoder = run(text_delta("a"), b"data: %b\n\n" % data.encode(), text_delta("b"))
    assert deltas[0] == TextDelta("a")
    assert only_error(deltas).code == "protocol_error"
    assert not decoder.complete


@pytest.mark.parametrize("status", ["completed", "incomplete"])
@pytest.mark.parametrize("missing", [1, 2])
def test_A15_a_terminal_event_that_lacks_only_its_blank_line_counts_where_the_body_has_an_end(
    status: str, missing: int
) -> None:
    raw = text_delta("a"), completed(message("a"), status=status)
    deltas, decoder = run(raw[0], raw[1][:-missing])
    assert decoder.complete
    assert deltas == run(*raw)[0]
    assert only_error(run(raw[0], raw[1][:-missing], cut=True)[0]).cut


def test_A15_any_other_unfinished_last_event_is_a_cut() -> None:
    assert only_error(run(text_delta("a"), completed(message("a"))[:-3])[0]).cut  # the last brace is missing
    deltas, _ = run(text_delta("a"), text_delta("b")[:-1])
    assert deltas[0] == TextDelta("a")
    assert only_error(deltas).cut


def test_A17_cumulative_text_only_where_the_quirk_says_so() -> None:
    raw = [text_delta("He"), text_delta("Hello"), completed()]
    deltas, decoder = run(*raw, quirks=WireQuirks(cumulative_text=True))
    assert deltas[:2] == [TextDelta("He"), TextDelta("llo")]
    assert completion_from_body(decoder.rebuilt_body()).text == "Hello"
    assert completion_from_body(run(*raw)[1].rebuilt_body()).text == "HeHello"


def test_A18_a_lone_surrogate_and_bad_utf8_are_replaced() -> None:
    keys = b'{"type":"response.output_text.delta","item_id":"m","output_index":0,"content_index":0,"delta":"%b"}\n\n'
    raw = [b"data: " + keys % piece for piece in (rb"a\ud83d", b"\xff", rb"\ud83d\ude00")]
    deltas, decoder = run(*raw)
    assert deltas[:3] == [TextDelta("a\ufffd"), TextDelta("\ufffd"), TextDelta("😀")]
    assert json.dumps(decoder.rebuilt_body(), ensure_ascii=False).encode()


def test_A20_an_event_past_the_cap_is_a_typed_error() -> None:
    decoder = ResponsesDecoder()
    decoder._sse._max = 1000
    deltas = decoder.feed(text_delta("a")) + decoder.feed(b"data: " + b"x" * 2000)
    assert deltas[0] == TextDelta("a")
    assert "1000 bytes" in only_error(deltas).message
    assert decoder.close() == []


# ── ends and errors ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("last", [b"", b"data: [DONE]\n\n", event("ping")])
def test_D48_D57_no_terminal_event_is_a_cut(last: bytes) -> None:
    deltas, decoder = run(created(), text_delta("Hel"), last)
    error = only_error(deltas)
    assert (error.cut, error.kind, decoder.complete) == (True, "retryable", False)
    assert completion_from_body(decoder.rebuilt_body()).text == "Hel"
    assert completion_from_body(decoder.rebuilt_body()).stop == "unknown"


FLAT = {"code": "rate_limit_exceeded", "message": "slow down", "param": None}
NESTED = {"error": {"type": "rate_limit_error", **FLAT}}


@pytest.mark.parametrize("fields", [FLAT, NESTED], ids=["flat", "nested"])
@pytest.mark.parametrize("before", [[], [created(), text_delta("Hel")]], ids=["first", "in the middle"])
def test_D50_D52_an_error_event_is_a_typed_error(fields: JsonObject, before: list[bytes]) -> None:
    deltas, decoder = run(*before, event("error", **fields), text_delta("more"), completed(message("x")))
    error = only_error(deltas)
    assert (error.kind, error.status, error.code, error.message) == (
        *("retryable", 429, "rate_limit_exceeded"),
        "slow down",
    )
    body = decoder.rebuilt_body()
    assert (body["status"], body["error"]["code"]) == ("failed", "rate_limit_exceeded")
    assert not decoder.complete


@pytest.mark.parametrize(
    ("raw", "kind", "status"),
    [
        (b'event: error\ndata: {"message": "overloaded", "code": "overloaded_error"}\n\n', "retryable", 529),
        (b'data: {"error": {"message": "no", "type": "invalid_request_error"}}\n\n', "permanent", 400),
        (b'data: {"type": "error", "status": 401, "error": {"message": "no"}}\n\n', "permanent", 401),
        (b'data: {"type": "error", "error": "odd"}\n\n', "retryable", None),
        (b'data: {"type": "error"}\n\n', "retryable", None),
    ],
)
def test_D50_D51_D53_errors_in_every_shape(raw: bytes, kind: str, status: int | None) -> None:
    error = only_error(run(created(), raw)[0])
    assert (error.kind, error.status) == (kind, status)


@pytest.mark.parametrize(
    ("code", "kind", "status"),
    [
        ("server_error", "retryable", 500),
        ("rate_limit_exceeded", "retryable", 429),
        ("invalid_prompt", "permanent", 400),
        ("image_too_large", "permanent", 400),
        ("insufficient_quota", "permanent", 402),
    ],
)
def test_D56_a_failed_response_is_an_error_by_its_code(code: str, kind: str, status: int) -> None:
    failed = completed(status="failed", error={"code": code, "message": "why"}, usage=USAGE)
    deltas, decoder = run(created(), text_delta("Hel"), failed)
    error = only_error(deltas)
    assert (error.kind, error.status, error.code, error.message) == (kind, status, code, "why")
    assert UsageDelta(Usage(9, 7, 4, 1, 3)) in deltas
    assert not decoder.complete
    assert (
        completion_from_body(decoder.rebuilt_body()).finish_reason,
        completion_from_body(decoder.rebuilt_body()).text,
    ) == ("failed", "Hel")


@pytest.mark.parametrize(
    ("reason", "stop"), [("max_output_tokens", "length"), ("content_filter", "filter"), ("steered", "unknown")]
)
def test_D56_an_incomplete_response_is_no_success(reason: str, stop: str) -> None:
    details = {"reason": reason}
    deltas, decoder = run(text_delta("Hel"), completed(status="incomplete", incomplete_details=details))
    finish = "content_filter" if reason == "content_filter" else "incomplete"
    assert deltas == [TextDelta("Hel"), FinishDelta(finish)]  # another dialect takes "incomplete" for a limit
    completion = completion_from_body(decoder.rebuilt_body())
    assert (completion.finish_reason, completion.stop) == ("incomplete", stop)
    assert completion.body["output"][0]["status"] == "incomplete"


def test_D56_the_responses_own_status_outweighs_the_events_name() -> None:
    response = {"status": "failed", "error": {"code": "server_error", "message": "why"}}
    deltas, decoder = run(event("response.completed", response=response))
    assert only_error(deltas).message == "why"
    assert not decoder.complete
    assert only_error(run(event("response.cancelled", response={}))[0]).code == "response_cancelled"


def test_D54_what_was_accumulated_is_kept() -> None:
    deltas, decoder = run(created(), text_delta("Hel"), text_delta("lo"), completed())
    assert deltas == [TextDelta("Hel"), TextDelta("lo"), FinishDelta("completed")]
    content = [{"type": "output_text", "annotations": [], "text": "Hello"}]
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
    assert decoder.rebuilt_body()["output"] == [item]


def test_the_answer_that_only_the_terminal_event_brings_is_handed_out() -> None:
    deltas, _ = run(created(), completed(message("a", "b"), usage=None))
    assert deltas == [TextDelta("a"), TextDelta("b"), FinishDelta("completed")]


def test_a_word_for_the_status_that_is_not_known_leaves_it_to_the_event() -> None:
    deltas, decoder = run(text_delta("a"), event("response.completed", response={"status": "succeeded"}))
    assert deltas == [TextDelta("a"), FinishDelta("completed")]
    assert completion_from_body(decoder.rebuilt_body()).stop == "end"


@pytest.mark.parametrize("depth", [200, 900, 100_000])
def test_J126_deep_nesting_is_kept_or_refused_and_never_a_crash(depth: int) -> None:
    deep = b"[" * depth + b"]" * depth
    item = b'{"id":"fc_0","type":"function_call","name":"look","call_id":"c","arguments":%b}' % deep
    for kind in (b"added", b"done"):
        raw = b'data: {"type":"response.output_item.%b","output_index":0,"item":%b}\n\n' % (kind, item)
        deltas, decoder = run(raw, completed())
        completion_from_body(decoder.rebuilt_body())
        assert isinstance(deltas[-1], FinishDelta) or only_error(deltas).code == "protocol_error"


def test_nothing_after_the_end_counts() -> None:
    deltas, decoder = run(completed(message("a")), event("error", **FLAT), b"data: {\n\n", b"\xff")
    assert deltas == [TextDelta("a"), FinishDelta("completed")]
    assert decoder.complete
