"""About how many tokens a conversation fills, the same for every model. Deadlines and compression depend on it, and
counts where no provider has given one; never a bill."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, assert_never

import msgspec

from tailrace import messages
from tailrace.messages import Message, ModelRequest, Native, Part, Reasoning, Refusal, Text, ToolCall, ToolResult, Usage

CHARS_PER_TOKEN: Final = 4
_IMAGE_TOKENS: Final = 1000
_MESSAGE_TOKENS: Final = 4  # for its role and its limits
_NOTHING_KNOWN: Final = Usage()


def request_tokens(request: ModelRequest) -> int:
    """The system prompt, the messages and the beginning of the answer."""
    return (len(request.system) + len(request.prefill)) // CHARS_PER_TOKEN + message_tokens(request.messages)


def input_tokens(request: ModelRequest) -> int:
    """The same, and the tools that are offered."""
    tokens = request_tokens(request)
    if request.tools:
        tokens += len(msgspec.json.encode(request.tools)) // CHARS_PER_TOKEN
    return tokens


def message_tokens(history: Iterable[Message]) -> int:
    tokens = 0
    for message in history:
        chars = 0
        for part in message.parts:
            chars += len(part.text) if part.__class__ is Text else _chars(part)  # by class: a `match` costs much more
        tokens += chars // CHARS_PER_TOKEN + _MESSAGE_TOKENS
    return tokens


def prompt_tokens(prompt: object) -> int:
    """Of a text, of several, or of tokens as numbers: what completions and embeddings take."""
    match prompt:
        case str():
            return -(-len(prompt) // CHARS_PER_TOKEN)
        case list():
            return sum(map(prompt_tokens, prompt))
        case int():
            return 1
        case _:
            return 0


def with_estimate(known: Usage, request: ModelRequest, answer: Message) -> Usage:
    """The usage of an answer that its provider has not counted to the end: what it said, and an estimate of the
    rest."""
    if not answer.parts:
        return known
    said = known.input_tokens or known.cache_read_tokens or known.cache_write_tokens
    asked = 0 if said else input_tokens(request)
    answered = max(0, message_tokens((answer,)) - _MESSAGE_TOKENS - known.output_tokens)
    estimate = Usage(asked, answered, estimated_tokens=asked + answered)
    return estimate if known == _NOTHING_KNOWN else known + estimate


def estimated_usage(asked: int, answered_chars: int) -> Usage:
    """The same where no more is known than the tokens of the request and the length of the answer."""
    answered = answered_chars // CHARS_PER_TOKEN
    return Usage(asked, answered, estimated_tokens=asked + answered)


def _chars(part: Part) -> int:
    match part:
        case Text(text) | Refusal(text) | Reasoning(text=text):
            return len(text)
        case ToolCall(name=name, arguments=arguments):
            return len(name) + len(arguments)
        case ToolResult(content=content):
            return len(content) if isinstance(content, str) else sum(map(_chars, content))
        case messages.Image():
            return _IMAGE_TOKENS * CHARS_PER_TOKEN
        case messages.File(data=data):
            return max(len(data) // 4, _IMAGE_TOKENS * CHARS_PER_TOKEN)  # a page or two at least
        case Native(item=item):
            return len(msgspec.json.encode(item))
        case _:
            assert_never(part)
