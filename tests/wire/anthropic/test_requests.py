from __future__ import annotations

import json
from typing import Any, cast

import pytest
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from pydantic import TypeAdapter

from tailrace.messages import (
    Dialect,
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
from tailrace.wire.anthropic.provider_request import encode_request
from tailrace.wire.dialects import DIALECTS
from tailrace.wire.peer_json import encode_object

SDK_REQUEST: TypeAdapter[Any] = TypeAdapter(MessageCreateParamsStreaming)
WEATHER = ToolSpec("get_weather", "Looks out of the window.", {"properties": {"city": {"type": "string"}}})


def turns(*messages: Message, **fields: Any) -> list[JsonObject]:
    body = encode_request(ModelRequest("claude-x", messages, **fields), stream=True)
    return cast("list[JsonObject]", body["messages"])


def encoded(**fields: Any) -> JsonObject:
    return encode_request(ModelRequest("claude-x", (user("Hi"),), **fields), stream=True)


def text(value: str) -> JsonObject:
    return {"type": "text", "text": value}


def test_a_whole_request() -> None:
    request = ModelRequest(
        model="claude-x",
        messages=(user("How is the weather?"),),
        system="Be brief.",
        tools=(WEATHER,),
        tool_choice="auto",
        parallel_tool_calls=False,
        max_tokens=100,
        temperature=0.5,
        top_p=0.9,
        stop=("END", "  "),
        seed=7,
        reasoning_effort="medium",
        extra={"metadata": {"user_id": "u"}},
    )
    body = encode_request(request, stream=True)
    assert body == {
        "model": "claude-x",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": [text("How is the weather?")]}],
        "system": "Be brief.",
        "tools": [
            {
                "name": "get_weather",
                "description": "Looks out of the window.",
                "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
            }
        ],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "temperature": 0.5,
        "top_p": 0.9,
        "stop_sequences": ["END"],
        "output_config": {"effort": "medium"},
        "metadata": {"user_id": "u"},
        "stream": True,
    }
    SDK_REQUEST.validate_python(body)
    assert encode_request(request, stream=False) == {name: body[name] for name in body if name != "stream"}


def test_a_conversation_with_tools() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    messages = (
        user("Weather in Kraków and Łódź?"),
        Message(
            "assistant",
            (
                Reasoning("hm", "anthropic", thinking),
                Text("Looking."),
                ToolCall("t1", "get_weather", '{"city":"Kraków"}'),
                ToolCall("t2", "get_weather", '{"city":"Łódź"}'),
            ),
        ),
        Message("tool", (ToolResult("t1", "sunny"),)),
        Message("tool", (ToolResult("t2", "no such window", ok=False),)),
        user("And?"),
    )
    assert turns(*messages) == [
        {"role": "user", "content": [text("Weather in Kraków and Łódź?")]},
        {
            "role": "assistant",
            "content": [
                thinking,
                text("Looking."),
                {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"city": "Kraków"}},
                {"type": "tool_use", "id": "t2", "name": "get_weather", "input": {"city": "Łódź"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "sunny"},
                {"type": "tool_result", "tool_use_id": "t2", "content": "no such window", "is_error": True},
                text("And?"),
            ],
        },
    ]
    SDK_REQUEST.validate_python(encode_request(ModelRequest("m", messages, tools=(WEATHER,)), stream=True))


def test_results_open_their_turn_whatever_was_said_before_them() -> None:
    call = Message("assistant", (ToolCall("t1", "f"),))
    asked = turns(user("a"), call, user("wait"), Message("tool", (ToolResult("t1", "done"),)), user("go on"))
    assert [block["type"] for block in asked[2]["content"]] == ["tool_result", "text", "text"]
    assert [block["text"] for block in asked[2]["content"][1:]] == ["wait", "go on"]


def test_system_messages_join_the_system_prompt() -> None:
    messages = (Message("system", (Text("One."),)), user("Hi"), Message("system", (Text("Two."),)))
    body = encode_request(ModelRequest("m", messages, system="Zero."), stream=False)
    assert body["system"] == "Zero.\n\nOne.\n\nTwo."
    assert body["messages"] == [{"role": "user", "content": [text("Hi")]}]


def test_blank_texts_and_empty_messages_are_left_out() -> None:
    blank = Message("assistant", (Text(""), Text(" \n"), Refusal("")))
    assert turns(user("a"), blank, user("b")) == [{"role": "user", "content": [text("a"), text("b")]}]


def test_images_by_data_by_URL_and_by_data_URL() -> None:
    images = (Image(data="iVBO", media_type="image/png"), Image(url="https://x/y.png"))
    inline = Image(url="data:image/jpeg;base64,/9j/")
    seen = Message("tool", (ToolResult("t", (Text("look"), images[0])),))
    (turn,) = turns(Message("user", (*images, inline, Image())), seen)
    base64 = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}
    assert turn["content"] == [
        {"type": "tool_result", "tool_use_id": "t", "content": [text("look"), base64]},
        base64,
        {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "/9j/"}},
    ]


def test_an_error_is_text_alone() -> None:
    failed = ToolResult("t", (Text("no"), Image(data="iVBO", media_type="image/png")), ok=False)
    (turn,) = turns(Message("tool", (failed,)))
    assert turn["content"] == [{"type": "tool_result", "tool_use_id": "t", "content": [text("no")], "is_error": True}]


def test_C45_only_thinking_that_the_API_signed_is_replayed() -> None:
    signed = {"type": "thinking", "thinking": "a", "signature": "s"}
    sealed = {"type": "redacted_thinking", "data": "EowH"}
    unsigned = {"type": "thinking", "thinking": "cut o", "signature": ""}
    message = Message(
        "assistant",
        (
            Reasoning("a", "anthropic", signed),
            Reasoning("", "anthropic", sealed),
            Reasoning("cut o", "anthropic", unsigned),
            Reasoning("foreign", "responses", {"type": "reasoning", "encrypted_content": "x"}),
            Reasoning("plain"),
            Native("responses", {"type": "web_search_call"}),
            Text("So."),
        ),
    )
    assert turns(user("?"), message, user("!"))[1]["content"] == [signed, sealed, text("So.")]


def test_native_blocks_stand_for_the_part_before_them_only_while_they_say_the_same() -> None:
    cited = {"type": "text", "text": "So.", "citations": [{"type": "web_search_result_location"}]}
    called = {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}, "caller": {"type": "code_execution"}}
    server = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    cut = {**server, "input": '{"que'}
    natives = [Native("anthropic", item) for item in (cited, called, server, cut)]

    def content(said: str, arguments: str) -> Any:
        parts = (natives[2], natives[3], Text(said), natives[0], ToolCall("t", "f", arguments), natives[1])
        return turns(user("?"), Message("assistant", parts), user("!"))[1]["content"]

    assert content("So.", '{"a": 1}') == [server, cited, called]
    edited = {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 2}}
    assert content("Edited.", '{"a": 2}') == [server, text("Edited."), edited]


def test_B34_arguments_that_are_not_whole_are_replayed_as_what_they_are() -> None:
    cut = Message("assistant", (ToolCall("t", "f", '{"path": "a'),))
    assert turns(user("?"), cut, Message("tool", (ToolResult("t", "not run", ok=False),)))[1]["content"] == [
        {"type": "tool_use", "id": "t", "name": "f", "input": {"INVALID_JSON": '{"path": "a'}}
    ]


def test_ids_of_other_providers_are_made_acceptable_for_call_and_result_alike() -> None:
    call, result = Message("assistant", (ToolCall("functions.f:0", "f"),)), ToolResult("functions.f:0", "1")
    asked = turns(user("?"), call, Message("tool", (result,)))
    assert asked[1]["content"][0]["id"] == asked[2]["content"][0]["tool_use_id"] == "functions_f_0"


@pytest.mark.parametrize("history", [(user("Write."),), (user("Write."), assistant("Once"))])
def test_a_prefill_is_the_last_assistant_turn_without_white_space_at_its_end(history: tuple[Message, ...]) -> None:
    last = turns(*history, prefill=" upon a \n")[-1]
    assert last["role"] == "assistant"
    assert last["content"][-1] == text(" upon a")
    assert turns(*history, prefill=" \n") == turns(*history)


def test_an_assistant_turn_at_the_end_has_no_white_space_there_either() -> None:
    assert turns(user("a"), assistant("b \n"))[-1]["content"] == [text("b")]
    assert turns(user("a"), assistant("b \n"), user("c"))[1]["content"] == [text("b \n")]


@pytest.mark.parametrize(
    ("choice", "parallel", "expected"),
    [
        (None, None, None),
        ("auto", None, {"type": "auto"}),
        ("required", None, {"type": "any"}),
        ("none", False, {"type": "none"}),
        (NamedTool("f"), None, {"type": "tool", "name": "f"}),
        (NamedTool("f"), False, {"type": "tool", "name": "f", "disable_parallel_tool_use": True}),
        ("required", True, {"type": "any", "disable_parallel_tool_use": False}),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
    ],
)
def test_tool_choice(choice: Any, parallel: bool | None, expected: JsonObject | None) -> None:
    assert encoded(tools=(WEATHER,), tool_choice=choice, parallel_tool_calls=parallel).get("tool_choice") == expected
    assert "tool_choice" not in encoded(tool_choice=choice, parallel_tool_calls=parallel)


@pytest.mark.parametrize(
    ("model", "limit"),
    [
        ("claude-3-opus-20240229", 4096),
        ("claude-3-5-sonnet-latest", 8192),
        ("claude-opus-4-8", 32_000),
        ("anthropic/claude-haiku-4.5", 32_000),
        ("MiniMax-M2.7", 8192),
    ],
)
def test_a_limit_is_always_given_and_within_the_models_own(model: str, limit: int) -> None:
    assert encode_request(ModelRequest(model, (user("Hi"),)), stream=True)["max_tokens"] == limit
    assert encode_request(ModelRequest(model, (user("Hi"),), max_tokens=7), stream=True)["max_tokens"] == 7


def test_effort_in_the_APIs_words() -> None:
    assert encoded(reasoning_effort="minimal")["output_config"] == {"effort": "low"}
    assert encoded(reasoning_effort="xhigh")["output_config"] == {"effort": "xhigh"}
    assert encoded(reasoning_effort="none")["thinking"] == {"type": "disabled"}
    assert "output_config" not in encoded(reasoning_effort="whatever")


def test_temperatures_of_other_dialects_are_brought_into_range() -> None:
    assert encoded(temperature=1.7)["temperature"] == 1.0


def test_a_response_schema_becomes_one_the_API_takes() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "description": "A person.",
        "properties": {
            "name": {"type": "string", "minLength": 1, "format": "uuid"},
            "age": {"type": "integer", "description": "in years", "minimum": 0},
            "tags": {"type": "array", "minItems": 1, "maxItems": 3, "items": {"$ref": "#/$defs/tag"}},
            "pet": {"oneOf": [{"type": "object", "properties": {}}, {"type": "null"}]},
        },
        "required": ["name"],
        "additionalProperties": True,
        "$defs": {"tag": {"type": "string", "pattern": "^[a-z]+$"}},
    }
    given = json.dumps(schema)
    config = encoded(response_schema=schema, reasoning_effort="low")["output_config"]
    assert config["effort"] == "low"
    assert config["format"] == {
        "type": "json_schema",
        "schema": {
            "type": "object",
            "description": "A person.",
            "properties": {
                "name": {"type": "string", "format": "uuid", "description": '{"minLength":1}'},
                "age": {"type": "integer", "description": 'in years\n\n{"minimum":0}'},
                "tags": {
                    "type": "array",
                    "minItems": 1,
                    "items": {"$ref": "#/$defs/tag"},
                    "description": '{"maxItems":3}',
                },
                "pet": {
                    "anyOf": [{"type": "object", "properties": {}, "additionalProperties": False}, {"type": "null"}]
                },
            },
            "required": ["name"],
            "additionalProperties": False,
            "$defs": {"tag": {"type": "string", "description": '{"pattern":"^[a-z]+$"}'}},
        },
    }
    assert json.dumps(schema) == given  # the caller's own is left alone


def test_extra_fields_are_merged_last_and_win() -> None:
    body = encoded(max_tokens=5, extra={"max_tokens": 9, "thinking": {"type": "adaptive"}, "stream": False})
    assert (body["max_tokens"], body["thinking"], body["stream"]) == (9, {"type": "adaptive"}, False)


@pytest.mark.parametrize(("dialect", "times"), [("chat", 5), ("responses", 5), ("anthropic", 7)])
def test_A18_lone_surrogates_are_replaced_wherever_they_stand(dialect: Dialect, times: int) -> None:
    bad = "a\ud83d b \ud83d\ude00"
    messages = (
        user(bad),
        Message("assistant", (Text(bad), ToolCall("t", "f", "{}"), Native("anthropic", {"type": "x", bad: [bad]}))),
        Message("tool", (ToolResult("t", bad),)),
    )
    request = ModelRequest("m", messages, system=bad, extra={"metadata": {"user_id": bad}})
    sent = encode_object(DIALECTS[dialect].encode_request(request, stream=True)).decode()
    assert sent.count("a\ufffd b 😀") == times
