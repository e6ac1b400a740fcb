"""The estimate counts everything that a model reads, each part once."""

from __future__ import annotations

import pytest

from tailrace.messages import Image, Message, ModelRequest, Native, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from tailrace.wire.token_estimate import message_tokens, request_tokens


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        (Text("x" * 40), 10),
        (Reasoning("x" * 40), 10),
        (Refusal("x" * 40), 10),
        (ToolCall("id", "name", "x" * 36), 10),
        (ToolResult("id", "x" * 40), 10),
        (ToolResult("id", (Text("x" * 40), Image(url="https://example.org/a.png"))), 1010),
        (Image(data="x" * 99), 1000),
        (Native("chat", {"a": 1234567890123}), 4),
    ],
)
def test_a_part_counts_by_its_characters(part: Part, tokens: int) -> None:
    assert message_tokens([Message("user", (part,))] * 2) == 2 * (tokens + 4)


def test_a_request_counts_its_system_prompt_and_prefill_too() -> None:
    request = ModelRequest("m", (Message("user", (Text("x" * 40),)),), system="x" * 40, prefill="x" * 40)
    assert request_tokens(request) == 34
