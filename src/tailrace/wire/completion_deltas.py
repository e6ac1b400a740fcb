"""An answer that came whole, as the deltas in which it would have been streamed."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.messages import (
    AnyDelta,
    Completion,
    FinishDelta,
    Message,
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
    UsageDelta,
)
from tailrace.wire.dialects import DIALECTS


def deltas_of(completion: Completion, *, texts: bool = True) -> Iterator[AnyDelta]:
    """Every choice of it, usage and finish reasons included. Without `texts`: what is left to say once they were."""
    choices = completion.body.get("choices")
    if completion.dialect == "chat" and isinstance(choices, list) and len(choices) > 1:
        for number, choice in enumerate(choices):
            one = DIALECTS["chat"].completion_from_body({**completion.body, "choices": [choice]})
            yield from message_deltas(one.message, choice=number, texts=texts)
            yield FinishDelta(one.finish_reason, number)
    else:
        yield from message_deltas(completion.message, texts=texts)
        yield FinishDelta(completion.finish_reason)
    usage = completion.body.get("usage")
    yield UsageDelta(completion.usage, usage if isinstance(usage, dict) else {})


def message_deltas(message: Message, *, choice: int = 0, texts: bool = True) -> Iterator[AnyDelta]:
    """One message of an assistant's, part by part."""
    calls = 0
    for part in message.parts:
        match part:
            case Text(text) if texts and text:
                yield TextDelta(text, choice)
            case Reasoning(text) if texts and text:
                yield ReasoningDelta(text, choice)
            case Refusal(text):
                yield RefusalDelta(text, choice)
            case ToolCall(id_, name, arguments):
                yield ToolCallDelta(calls, id_, name, arguments, choice)
                calls += 1
            case Native("responses", item):
                yield NativeDelta("responses", {"item": item}, choice)
            case _:
                pass
