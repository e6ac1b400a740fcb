from __future__ import annotations

from typing import Any

import pytest
from openai.types.responses import ResponseInputItem
from openai.types.responses.function_tool import FunctionTool
from pydantic import TypeAdapter

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
from tailrace.wire.responses.completion import completion_from_body
from tailrace.wire.responses.item_ids import with_items_of_providers
from tailrace.wire.responses.provider_request import CONTINUE, encode_request

INPUT_ITEM: TypeAdapter[Any] = TypeAdapter(ResponseInputItem)


def encode(*messages: Message, stream: bool = False, **fields: Any) -> JsonObject:
    return encode_request(ModelRequest("m", messages, **fields), stream=stream)


def items(*messages: Message, **fields: Any) -> list[JsonObject]:
    """The input items, each checked against the official SDK's types."""
    encoded: list[JsonObject] = encode(*messages, **fields)["input"]
    for item in encoded:
        if item.get("role") != "assistant":  # the SDK wants an id there, which the API does not
            INPUT_ITEM.validate_python(item)
    return encoded


UNSTORED = {"store": False, "include": ["reasoning.encrypted_content"]}


def test_the_least_request() -> None:
    assert encode(user("Hi")) == {"model": "m", "input": [{"role": "user", "content": "Hi"}], **UNSTORED}
    assert encode(user("Hi"), stream=True)["stream"] is True
    assert encode(user("Hi"), tool_choice="required") == encode(user("Hi"))  # nothing to choose among


def test_every_setting() -> None:
    body = encode(
        user("Hi"),
        system="Be brief.",
        max_tokens=10,
        temperature=0.0,
        top_p=0.5,
        parallel_tool_calls=False,
        reasoning_effort="low",
        stop=("x",),  # this API has no such field
        seed=7,
    )
    del body["input"]
    assert body == {
        "model": "m",
        "instructions": "Be brief.",
        "max_output_tokens": 10,
        "temperature": 0.0,
        "top_p": 0.5,
        "parallel_tool_calls": False,
        "reasoning": {"effort": "low"},
        **UNSTORED,
    }


def test_images_by_address_and_by_value() -> None:
    message = Message(
        "user", (Text("What?"), Image(url="http://x/y.png", detail="low"), Image("", "QUI=", "image/gif"))
    )
    assert items(message) == [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "What?"},
                {"type": "input_image", "image_url": "http://x/y.png", "detail": "low"},
                {"type": "input_image", "image_url": "data:image/gif;base64,QUI=", "detail": "auto"},
            ],
        }
    ]


def test_a_turn_with_tools() -> None:
    answer = Message("assistant", (Text("Let me see."), ToolCall("c1", "look", '{"a":1}'), ToolCall("c2", "see")))
    results = Message(
        "tool", (ToolResult("c1", "found"), ToolResult("c2", (Text("shot"), Image(url="http://i")), ok=False))
    )
    assert items(user("Hi"), answer, results) == [
        {"role": "user", "content": "Hi"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"a":1}'},
        {"type": "function_call", "call_id": "c2", "name": "see", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "found"},
        {
            "type": "function_call_output",
            "call_id": "c2",
            "output": [
                {"type": "input_text", "text": "Error: shot"},
                {"type": "input_image", "image_url": "http://i", "detail": "auto"},
            ],
        },
    ]


def test_system_messages_and_refusals_keep_their_place() -> None:
    refusal = Message("assistant", (Text("I"), Refusal("won't")))
    encoded = items(Message("system", (Text("rule"),)), user("Hi"), refusal)
    assert encoded[0] == {"role": "system", "content": "rule"}
    assert encoded[2]["content"] == [{"type": "output_text", "text": "I"}, {"type": "refusal", "refusal": "won't"}]


def test_reasoning_and_native_items_return_to_their_own_dialect_alone() -> None:
    thought = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "secret"}
    search = {
        "id": "ws_1",
        "type": "web_search_call",
        "status": "completed",
        "action": {"type": "search", "query": "q"},
    }
    message = Message(
        "assistant",
        (
            Reasoning("hm", "responses", thought),
            Reasoning("foreign", "anthropic", {"type": "thinking"}),
            Reasoning("bare"),
            Native("responses", search),
            Native("anthropic", {"type": "server_tool_use"}),
            Text("Hi"),
        ),
    )
    encoded = items(message)
    assert encoded[:2] == [thought, search]
    assert [item["type"] for item in encoded] == ["reasoning", "web_search_call", "message"]


def test_reasoning_that_led_to_nothing_is_left_out() -> None:
    thought = {"id": "rs_1", "type": "reasoning", "summary": []}
    cut = Message("assistant", (Text("a"), Reasoning("", "responses", thought)))
    assert [item["type"] for item in items(cut)] == ["message"]


def test_an_answer_that_was_read_can_be_sent_back() -> None:
    output = [
        {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "secret"},
        {"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
    ]
    history = completion_from_body({"output": output}).message
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    assert items(history) == [output[0], call]


@pytest.mark.parametrize(
    ("choice", "said"),
    [("auto", "auto"), ("required", "required"), (NamedTool("look"), {"type": "function", "name": "look"})],
)
def test_tools(choice: Any, said: Any) -> None:
    tools = (ToolSpec("look", "Looks.", {"type": "object"}, strict=True), ToolSpec("see"))
    body = encode(user("Hi"), tools=tools, tool_choice=choice)
    assert body["tool_choice"] == said
    assert [FunctionTool.model_validate(tool).strict for tool in body["tools"]] == [True, False]
    assert body["tools"][0] == {
        "type": "function",
        "name": "look",
        "description": "Looks.",
        "parameters": {"type": "object"},
        "strict": True,
    }


CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "name", "strict"),
    [
        ({**CLOSED, "title": "Answer_1"}, "Answer_1", True),
        ({**CLOSED, "title": "not a name!"}, "not_a_name_", True),
        ({"type": "object", "properties": {"a": {}}}, "answer", False),
        ({**CLOSED, "properties": {"a": {"type": "object"}}}, "answer", False),
        ({**CLOSED, "required": []}, "answer", False),
        ({**CLOSED, "required": None}, "answer", False),
    ],
)
def test_a_schema_is_strict_where_the_api_takes_it(schema: JsonObject, name: str, strict: bool) -> None:
    form = encode(user("Hi"), response_schema=schema)["text"]["format"]
    assert form == {"type": "json_schema", "name": name, "schema": schema, "strict": strict}


def test_a_continuation_is_asked_for_after_the_partial_answer() -> None:
    assert items(user("Hi"), prefill="Once upon")[1:] == [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Once upon"}]},
        {"role": "user", "content": CONTINUE},
    ]


def test_extra_wins_object_by_object() -> None:
    extra = {"reasoning": {"summary": "auto"}, "temperature": 1, "store": False, "tool_choice": {"type": "mcp"}}
    body = encode(assistant("Hi"), reasoning_effort="low", temperature=0.5, tool_choice="auto", extra=extra)
    assert body["reasoning"] == {"effort": "low", "summary": "auto"}
    assert (body["temperature"], body["store"], body["tool_choice"]) == (1, False, {"type": "mcp"})


def test_K127_a_message_of_ours_may_name_no_type() -> None:
    ours = {"id": f"msg_{'0' * 24}_1", "role": "assistant", "content": "Yes."}
    body = with_items_of_providers({"input": [ours, {"role": "user", "content": "Go on."}]})
    assert body["input"] == [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Go on."}]
