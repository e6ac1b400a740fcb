"""The rebuilt body: what the non-streaming answer would have been, field by field; and how it is read."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.messages import JsonObject, Native, Reasoning, Refusal, Text, ToolCall, Usage
from tailrace.wire.chat.completion import completion_from_body
from wire.chat.chat_streams import DONE, HEAD, calls, chunk, decoded, event, piece


def message_of(*deltas: JsonObject) -> JsonObject:
    body = decoded(b"".join(chunk(delta) for delta in deltas) + DONE).body
    message: JsonObject = body["choices"][0]["message"]
    return message


def choice_of(*choices: JsonObject) -> JsonObject:
    raw = b"".join(event({**HEAD, "choices": [{"index": 0, "delta": {}, **choice}]}) for choice in choices)
    choice: JsonObject = decoded(raw + DONE).body["choices"][0]
    return choice


def test_a_plain_answer() -> None:
    raw = (
        chunk({"role": "assistant", "content": "", "refusal": None}, service_tier="default", obfuscation="xY1")
        + chunk({"content": "Hi"}, service_tier="default", usage=None, obfuscation="z")
        + chunk(finish="stop", service_tier="default", p="abc")
        + event({**HEAD, "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}})
        + DONE
    )
    assert decoded(raw).body == {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "m",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "Hi", "refusal": None}, "finish_reason": "stop"}
        ],
        "service_tier": "default",
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    }


def test_several_choices_in_the_order_of_their_index() -> None:
    raw = chunk({"content": "b"}, index=1) + chunk({"content": "a"}) + chunk(finish="stop", index=1) + DONE
    said = decoded(raw)
    assert [(c["index"], c["message"]["content"], c["finish_reason"]) for c in said.body["choices"]] == [
        (0, "a", None),
        (1, "b", "stop"),
    ]
    assert said.completion.text == "a"


def test_the_head_is_the_first_that_says_something() -> None:
    first = {"id": "", "created": 0, "model": "", "object": "", "choices": [], "prompt_filter_results": [{"a": 1}]}
    body = decoded(event(first) + chunk({"content": "x"}) + event({**HEAD, "id": "other", "choices": []}) + DONE).body
    assert (body["id"], body["created"], body["model"]) == ("chatcmpl-1", 1700000000, "m")
    assert body["prompt_filter_results"] == [{"a": 1}]


def test_unknown_fields_are_kept_at_every_level() -> None:
    raw = b"".join(
        event({**HEAD, "top": n, "nul": None, "obj": {"a": n, "b" * n: 1},
               "choices": [{"index": 0, "native_finish_reason": n, "ids": [n], "delta": {"content": "x", "novel": n}}]})
        for n in (1, 2)
    )  # fmt: skip
    body = decoded(raw + DONE).body
    assert (body["top"], body["nul"], body["obj"]) == (2, None, {"a": 2, "b": 1, "bb": 1})
    choice = body["choices"][0]
    assert (choice["native_finish_reason"], choice["ids"], choice["message"]["novel"]) == (2, [1, 2], 2)


def test_null_replaces_nothing() -> None:
    choice = choice_of({"stop_reason": "eos", "delta": {"phase": "x"}}, {"stop_reason": None, "delta": {"phase": None}})
    assert (choice["stop_reason"], choice["message"]["phase"]) == ("eos", "x")


def test_lists_at_the_top_come_whole_each_time_and_are_not_joined() -> None:
    raw = chunk({"content": "a"}, citations=["u"]) + chunk({"content": "b"}, citations=["u", "v"]) + DONE
    assert decoded(raw).body["citations"] == ["u", "v"]


def test_logprobs_are_joined() -> None:
    choice = choice_of(
        {"logprobs": {"content": [{"token": "a"}], "refusal": None}},
        {"logprobs": None},
        {"logprobs": {"content": [{"token": "b"}], "refusal": None}},
    )
    assert choice["logprobs"] == {"content": [{"token": "a"}, {"token": "b"}], "refusal": None}
    assert choice_of({"logprobs": None})["logprobs"] is None
    assert "logprobs" not in choice_of({})


def test_content_filter_results_are_updated() -> None:
    safe, harm = {"hate": {"filtered": False}}, {"violence": {"filtered": True}}
    choice = choice_of(
        {"content_filter_results": {}}, {"content_filter_results": safe}, {"content_filter_results": harm}
    )
    assert choice["content_filter_results"] == {**safe, **harm}


def test_annotations_and_images_are_collected() -> None:
    first, second = ({"type": "url_citation", "url_citation": {"url": u}} for u in "ab")
    assert message_of({"annotations": [first]}, {"annotations": [second]})["annotations"] == [first, second]


def test_entries_with_an_index_are_updated_in_place() -> None:
    tool = {"index": 0, "type": "python", "arguments": "{}"}
    message = message_of({"executed_tools": [tool]}, {"executed_tools": [{**tool, "output": "1"}]})
    assert message["executed_tools"] == [{**tool, "output": "1"}]


def test_audio_is_joined() -> None:
    message = message_of(
        {"audio": {"id": "audio_1", "transcript": "He"}},
        {"audio": {"data": "AAA", "transcript": "llo"}},
        {"audio": {"data": "BBB", "expires_at": 9}},
    )
    assert message["audio"] == {"id": "audio_1", "expires_at": 9, "transcript": "Hello", "data": "AAABBB"}
    assert (
        Native("chat", {"audio": {"id": "audio_1"}})
        in completion_from_body({"choices": [{"message": message}]}).message.parts
    )


def test_groqs_usage_is_hoisted_to_where_the_unstreamed_answer_has_it() -> None:
    usage = {"prompt_tokens": 2, "completion_tokens": 3}
    body = decoded(chunk(x_groq={"id": "req"}) + chunk(x_groq={"id": "req", "usage": usage}) + DONE).body
    assert (body["x_groq"], body["usage"]) == ({"id": "req"}, usage)


def test_the_message_so_far_beside_the_delta_is_not_taken_for_more() -> None:
    def both(whole: str, new: str) -> JsonObject:
        return {"delta": {"content": new}, "message": {"role": "assistant", "content": whole}, "text": new}

    choice = choice_of(both("a", "a"), both("ab", "b"))
    assert choice == {"index": 0, "message": {"role": "assistant", "content": "ab"}, "finish_reason": None}


def test_a_whole_message_in_one_event_is_the_answer() -> None:
    raw = event(
        {**HEAD, "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}]}
    )
    said = decoded(raw + DONE)
    assert (said.text, said.completion.text, said.complete) == ("Hi", "Hi", True)


# ── reasoning and parts ──────────────────────────────────────────────────────────────────────────────────────


def detail(kind: str, **fields: Any) -> JsonObject:
    return {"type": f"reasoning.{kind}", "index": 0, **fields}


def test_reasoning_details_are_merged_as_the_unstreamed_answer_has_them() -> None:
    message = message_of(
        {"reasoning": "a", "reasoning_details": [detail("summary", summary="a", format="f")]},
        {"reasoning": "b", "reasoning_details": [detail("summary", summary="b", format="f")]},
        {"reasoning_details": [detail("encrypted", data="XX", id="rs_1")]},
        {"reasoning_details": [detail("encrypted", data="YY", id="rs_2")]},
        {"reasoning_details": [detail("text", text="c"), detail("text", index=1, text="d")]},
        {"reasoning_details": [detail("text", text="", signature="sig"), detail("text", index=1, text="e")]},
    )
    assert message["reasoning"] == "ab"
    assert message["reasoning_details"] == [
        detail("summary", summary="ab", format="f"),
        detail("encrypted", data="XX", id="rs_1"),
        detail("encrypted", data="YY", id="rs_2"),
        detail("text", text="c", signature="sig"),
        detail("text", index=1, text="de"),
    ]


def test_mistrals_parts_are_merged_as_the_unstreamed_answer_has_them() -> None:
    def thinking(text: str) -> JsonObject:
        return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}

    reference = {"type": "reference", "reference_ids": [1]}
    message = message_of(
        {"content": ""}, {"content": [thinking("a")]}, {"content": [thinking("b")]}, {"content": "c"},
        {"content": [{"type": "text", "text": "d"}, reference]}, {"content": "e"}, {"content": ""},
    )  # fmt: skip
    parts = [thinking("ab"), {"type": "text", "text": "cd"}, reference, {"type": "text", "text": "e"}]
    assert message["content"] == parts
    completion = completion_from_body({"choices": [{"message": message}]})
    assert completion.message.parts == (
        Reasoning("ab", "chat", {"content": [thinking("ab")]}),
        Text("cd"),
        Native("chat", {"content": [reference]}),
        Text("e"),
    )
    assert (completion.text, completion.reasoning) == ("cde", "ab")


# ── read ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_parts_of_a_message() -> None:
    said = decoded(
        chunk({"reasoning_content": "hm"}) + chunk({"content": "Look: "}) + chunk({"refusal": "no"})
        + calls({**piece("{}", name="f", index=0, id="a"), "extra_content": {"sig": 1}})
        + chunk(finish="tool_calls") + DONE
    )  # fmt: skip
    assert said.completion.message.parts == (
        Reasoning("hm", "chat", {"reasoning_content": "hm"}),
        Text("Look: "),
        Refusal("no"),
        ToolCall("a", "f", "{}"),
        Native("chat", {"tool_calls": [{"id": "a", "extra_content": {"sig": 1}}]}),
    )


@pytest.mark.parametrize(
    ("usage", "value"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 3}, Usage(9, 3)),
        (
            {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2}},
            Usage(9, 0, 4, 2),
        ),
        ({"prompt_tokens": 9, "prompt_cache_hit_tokens": 4}, Usage(9, 0, 4)),
        ({"prompt_tokens": 9, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 1}, Usage(9, 0, 4, 1)),
        ({"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 8}}, Usage(0, 9, 0, 0, 8)),
        ({"prompt_tokens": None, "completion_tokens": "7", "prompt_tokens_details": None}, Usage()),
        (None, Usage()),
    ],
)
def test_usage_is_found_where_servers_put_it(usage: JsonObject | None, value: Usage) -> None:
    assert completion_from_body({"choices": [], "usage": usage}).usage == value


@pytest.mark.parametrize(
    "body",
    [
        {}, {"choices": None}, {"choices": [None]}, {"choices": [{}]}, {"choices": [{"message": None}]},
        {"choices": [{"message": {"content": 7, "tool_calls": {}, "refusal": [], "function_call": "x"}}], "id": 3},
        {"choices": [{"message": {"content": [1, None, {}], "tool_calls": [None, {}, {"function": {"name": 1}}]}}]},
        {"choices": [{"message": {"reasoning_details": [None, {"text": 4}], "audio": {"id": None}}}], "usage": []},
    ],
)  # fmt: skip
def test_read_never_raises(body: JsonObject) -> None:
    completion = completion_from_body(body)
    assert (completion.text, completion.tool_calls, completion.body) == ("", (), body)
