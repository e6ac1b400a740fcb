"""About how many tokens a conversation fills: a rough measure, the same for every model. Pure.

It decides when a history is compressed, and how long a provider may take over it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tailrace.messages import Image, Message, Native, Reasoning, Refusal, Text, ToolCall, ToolResult

CHARS_PER_TOKEN = 4
_IMAGE_TOKENS = 1000


def tokens_in(messages: Iterable[Message]) -> int:
    """Roughly how many tokens of the context these fill."""
    return sum(map(_tokens_of, messages))


def _tokens_of(message: Message) -> int:
    chars = 0
    for part in message.parts:
        match part:
            case Text(text) | Refusal(text) | Reasoning(text=text):
                chars += len(text)
            case ToolCall():
                chars += len(part.name) + len(part.arguments)
            case ToolResult(content=str() as content):
                chars += len(content)
            case ToolResult() | Image():
                chars += _IMAGE_TOKENS * CHARS_PER_TOKEN
            case Native(item=item):
                chars += len(msgspec.json.encode(item))
    return chars // CHARS_PER_TOKEN + 4
