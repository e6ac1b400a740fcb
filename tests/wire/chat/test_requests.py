"""A `ModelRequest` in the words of Chat Completions."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.messages import (
    Image,
    JsonObject,
    Message,
    ModelRequest,
    NamedTool,
    Native,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    assistant,
    user,
)
from tailrace.wire.chat.completion import completion_from_body
from tailrace.wire.chat.provider_request import encode_request
from wire.chat.chat_streams import DONE, calls, chunk, decoded, piece


def encoded(*messages: Message, stream: bool = False, **fields: Any) -> JsonObject:
    return encode_request(ModelRequest("m", messages, **fields), stream=stream)


def messages_of(*messages: Message, **fields: Any) -> list[JsonObject]:
    said: list[JsonObject] = encoded(*messages, **fields)["messages"]
    return said


def test_the_least_there_is() -> None:
    assert encoded(user("Hi")) == {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


def test_streaming_asks_for_usage() -> None:
    body = encoded(user("Hi"), stream=True)
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})


def test_system_comes_first_and_prefill_last() -> None:
    assert messages_of(user("Hi"), system="Be brief.", prefill="Hel") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hel"},
    ]


def test_images_by_url_and_by_data() -> None:
    parts = (Text("What?"), Image(url="https://x/y.png", detail="low"), Image(data="QUJD", media_type="image/jpeg"))
    assert messages_of(Message("user", parts))[0]["content"] == [
        {"type": "text", "text": "What?"},
        {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,QUJD"}},
    ]


def test_calls_and_their_results() -> None:
    asked = Message("assistant", (Text("Let me look."), ToolCall("a", "f", '{"x":1}'), ToolCall("b", "g")))
    answered = Message("tool", (ToolResult("a", "one"), ToolResult("b", (Text("t"), Image(url="u")), ok=False)))
    assert messages_of(asked, answered) == [
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
                {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "one"},
        {"role": "tool", "tool_call_id": "b", "content": "Error: t"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]},
    ]


def test_calls_without_text_have_null_content_and_silence_is_empty() -> None:
    assert messages_of(Message("assistant", (ToolCall("a", "f"),)))[0]["content"] is None
    assert messages_of(Message("assistant"), Message("user")) == [
        {"role": "assistant", "content": ""},
        {"role": "user", "content": ""},
    ]


def test_refusal_goes_back() -> None:
    assert messages_of(Message("assistant", (Refusal("no"),))) == [
        {"role": "assistant", "content": "", "refusal": "no"}
    ]


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        (NamedTool("f"), {"type": "function", "function": {"name": "f"}}),
    ],
)
def test_tools_and_how_to_choose(choice: Any, said: object) -> None:
    tool = ToolSpec("f", "Does f.", {"type": "object", "properties": {}}, strict=True)
    body = encoded(user("Hi"), tools=(tool, ToolSpec("g")), tool_choice=choice, parallel_tool_calls=False)
    assert body["tool_choice"] == said
    assert body["parallel_tool_calls"] is False
    parameters = {"type": "object", "properties": {}}
    f = {"name": "f", "parameters": parameters, "description": "Does f.", "strict": True}
    g = {"name": "g", "parameters": parameters}
    assert body["tools"] == [{"type": "function", "function": f}, {"type": "function", "function": g}]
    assert "tool_choice" not in encoded(user("Hi"), tool_choice=choice, parallel_tool_calls=True)


def test_sampling() -> None:
    body = encoded(
        user("Hi"), max_tokens=5, temperature=0.0, top_p=0.5, stop=("a", "b"), seed=0, reasoning_effort="low"
    )
    sampling = {k: v for k, v in body.items() if k not in ("model", "messages")}
    assert sampling == {
        "max_tokens": 5, "temperature": 0.0, "top_p": 0.5, "stop": ["a", "b"], "seed": 0, "reasoning_effort": "low",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("model", "field"),
    [
        ("gpt-4o", "max_tokens"),
        ("llama-3", "max_tokens"),
        ("openai/gpt-oss-120b", "max_tokens"),
        ("o3-mini", "max_completion_tokens"),
        ("gpt-5-nano", "max_completion_tokens"),
        ("openai/gpt-5", "max_completion_tokens"),
    ],
)
def test_openais_reasoning_models_take_the_limit_under_another_name(model: str, field: str) -> None:
    body = encode_request(ModelRequest(model, (user("Hi"),), max_tokens=7), stream=False)
    assert {k: v for k, v in body.items() if k.startswith("max")} == {field: 7}


STRICT: JsonObject = {
    "type": "object", "title": "A b", "properties": {"x": {"type": "array", "items": {"type": "string"}}},
    "required": ["x"], "additionalProperties": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "strict", "name"),
    [
        (STRICT, True, "A_b"),
        ({**STRICT, "required": []}, False, "A_b"),
        ({**STRICT, "additionalProperties": True}, False, "A_b"),
        ({**STRICT, "properties": {"x": {"type": "object"}}}, False, "A_b"),
        ({"type": "object"}, False, "answer"),
        ({"type": "string"}, True, "answer"),
    ],
)
def test_a_schema_is_strict_where_strict_mode_would_take_it(schema: JsonObject, strict: bool, name: str) -> None:
    assert encoded(user("Hi"), response_schema=schema)["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": name, "schema": schema, "strict": strict},
    }


def test_extra_is_merged_last_and_wins() -> None:
    extra = {"temperature": 1, "stream_options": {}, "provider": {"only": ["x"]}, "tools": [{"type": "web"}]}
    body = encoded(user("Hi"), stream=True, temperature=0.5, tool_choice="auto", extra=extra)
    assert {k: body[k] for k in extra} == extra
    assert body["tool_choice"] == "auto"


# ── what goes back to the server it came from ────────────────────────────────────────────────────────────────


def replayed(raw: bytes) -> JsonObject:
    return messages_of(decoded(raw + DONE).completion.message)[0]


def test_reasoning_text_goes_back_beside_tool_calls_only() -> None:
    thought = chunk({"reasoning_content": "hm"})
    assert replayed(thought + chunk({"content": "Hi"})) == {"role": "assistant", "content": "Hi"}
    asked = replayed(thought + calls(piece("{}", name="f", index=0, id="a")))
    assert asked["reasoning_content"] == "hm"


def test_reasoning_details_go_back_always_and_unchanged() -> None:
    details = [{"type": "reasoning.encrypted", "data": "X", "id": "rs", "index": 0}]
    assert replayed(chunk({"content": "Hi", "reasoning_details": details}))["reasoning_details"] == details


def test_thinking_parts_go_back_in_their_place() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "a"}]}, {"type": "text", "text": "b"}]
    assert replayed(chunk({"content": parts}))["content"] == parts


def test_fields_of_a_call_go_back_with_the_call() -> None:
    extra = {"google": {"thought_signature": "sig"}}
    said = replayed(
        calls(
            {**piece("{}", name="f", index=0, id="a"), "extra_content": extra}, piece("{}", name="g", index=1, id="b")
        )
    )
    assert [call.get("extra_content") for call in said["tool_calls"]] == [extra, None]


def test_audio_goes_back_by_its_id() -> None:
    assert replayed(chunk({"audio": {"id": "audio_1", "data": "AA"}}))["audio"] == {"id": "audio_1"}


def test_what_another_dialect_left_stays_behind() -> None:
    parts = (Reasoning("hm", "anthropic", {"signature": "s"}), Native("responses", {"id": "x"}), Text("Hi"))
    assert messages_of(Message("assistant", parts)) == messages_of(assistant("Hi"))


def test_an_answer_can_always_be_sent_again() -> None:
    plain: JsonObject = {
        "choices": [{"message": {"role": "assistant", "content": "Hi", "refusal": None, "annotations": []}}]
    }
    assert messages_of(completion_from_body(plain).message) == [{"role": "assistant", "content": "Hi"}]
