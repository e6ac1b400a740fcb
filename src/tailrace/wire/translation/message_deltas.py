"""A message as the deltas in which it would have been streamed."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace import messages
from tailrace.messages import JsonObject, Native, NativeDelta, Reasoning, ReasoningDelta, RefusalDelta, ToolCallDelta
from tailrace.wire.reasoning_seal import USUAL_FIELD, field_delta, field_of, is_signed_item
from tailrace.wire.translation.citations import cited_block, of_annotations


def message_deltas(message: messages.Message, *, choice: int = 0, texts: bool = True) -> Iterator[messages.AnyDelta]:
    """The message of an assistant, part by part. Without `texts`: the parts that are neither text nor reasoning."""
    calls, named = 0, USUAL_FIELD
    for part in message.parts:
        match part:
            case messages.Text(text) if texts and text:
                yield messages.TextDelta(text, choice)
            case Reasoning(text) if texts and text:
                if not is_signed_item(part) and (field := field_of(part)) != named:
                    named = field
                    yield field_delta(field, choice)
                yield ReasoningDelta(text, choice)
                yield from _signatures(part, choice)
            case Reasoning() if texts:
                yield from _signatures(part, choice)
            case messages.Refusal(text):
                yield RefusalDelta(text, choice)
            case messages.ToolCall(id_, name, arguments):
                yield ToolCallDelta(calls, id_, name, arguments, choice)
                calls += 1
            case Native():
                yield from _natives(part, choice, texts=texts)
            case _:
                pass


def _signatures(part: Reasoning, choice: int) -> Iterator[NativeDelta]:
    """What signs the reasoning, as its provider's own decoder gives it."""
    if (dialect := part.dialect) is None:
        return
    match part.native:
        case {"type": "thinking", "signature": str(signature)} if signature:
            signed: JsonObject = {"type": "signature_delta", "signature": signature}
            yield NativeDelta(dialect, {"delta": signed}, choice)
        case {"type": "redacted_thinking"} as block:
            yield NativeDelta(dialect, {"start": block}, choice)
            yield NativeDelta(dialect, {"stop": True}, choice)
        case {"encrypted_content": str(sealed)} as item if sealed:
            yield NativeDelta(dialect, {"encrypted_content": sealed, "reasoning": item}, choice)
        case _:
            pass


def _natives(part: Native, choice: int, *, texts: bool) -> Iterator[NativeDelta]:
    match part.item:
        case {"type": "output_text"} as item:
            if texts and (annotations := [each.chat_annotation() for each in of_annotations(item)]):
                yield NativeDelta("chat", {"delta": {"annotations": annotations}}, choice)
        case {"type": "text"} as block:
            if texts and (cited := cited_block(block)) is not None:
                yield cited
        case item:
            yield NativeDelta(part.dialect, {"item": item}, choice)
