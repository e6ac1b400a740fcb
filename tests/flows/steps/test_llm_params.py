"""The request that the parameters of `llm_call` describe, in the short form and as Chat Completions writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tailrace.flows.steps.base import StepError
from tailrace.flows.steps.llm_params import LlmParams, request_of
from tailrace.messages import Image, Message, Text, ToolCall, ToolResult

URL = "https://example.com/wheel.png"


async def messages_of(directory: Path, *messages: dict[str, Any]) -> tuple[Message, ...]:
    return (await request_of(msgspec.convert({"messages": list(messages)}, LlmParams), directory)).messages


async def test_both_forms_of_a_tool_call_and_its_result(tmp_path: Path) -> None:
    short = {"id": "a", "name": "look", "arguments": {"at": 1}}
    pasted = {"id": "b", "type": "function", "function": {"name": "look", "arguments": '{"at": 2}'}}
    assert await messages_of(
        tmp_path,
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "I look.", "tool_calls": [short, pasted]},
        {"role": "tool", "tool_call_id": "a", "content": "one"},
        {"role": "tool", "tool_call_id": "b", "content": [{"seen": 2}]},
    ) == (
        Message("system", (Text("Be brief."),)),
        Message("user", (Text("Look."),)),
        Message("assistant", (Text("I look."), ToolCall("a", "look", '{"at":1}'), ToolCall("b", "look", '{"at": 2}'))),
        Message("tool", (ToolResult("a", "one"), ToolResult("b", '[{"seen":2}]'))),
    )


async def test_a_prompt_follows_the_messages_that_are_given_with_it(tmp_path: Path) -> None:
    before = [{"role": "user", "content": "I am Ann."}, {"role": "assistant", "content": "Hello Ann."}]
    request = await request_of(msgspec.convert({"messages": before, "prompt": "Who am I?"}, LlmParams), tmp_path)
    assert [(each.role, each.text) for each in request.messages] == [
        ("user", "I am Ann."),
        ("assistant", "Hello Ann."),
        ("user", "Who am I?"),
    ]


async def test_images_stand_where_they_were_written(tmp_path: Path) -> None:
    content = [{"type": "image_url", "image_url": {"url": URL, "detail": "low"}}, {"type": "text", "text": "What?"}]
    (message,) = await messages_of(tmp_path, {"role": "user", "content": content})
    assert message == Message("user", (Image(url=URL, detail="low"), Text("What?")))


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"role": "tool", "content": "x"}, "messages[0].tool_call_id: names the call that this is the result of"),
        ({"role": "user", "content": [{"type": "sound"}]}, "a part of a message is text or an image, not 'sound'"),
    ],
)
async def test_a_message_that_makes_no_sense_fails_the_step(
    message: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(StepError) as caught:
        await messages_of(tmp_path, message)
    assert (str(caught.value), caught.value.code) == (words, "params")
