"""A non-streaming answer as the deltas in which it would have been streamed."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.messages import AnyDelta, Completion, FinishDelta, NativeDelta, UsageDelta
from tailrace.wire.body_events import events_of
from tailrace.wire.chat import completion_from_body
from tailrace.wire.message_deltas import message_deltas
from tailrace.wire.peer_json import object_of
from tailrace.wire.responses.completion import finish_reason_of


def deltas_of(completion: Completion, *, texts: bool = True) -> Iterator[AnyDelta]:
    """Every choice, usage and finish reasons included, after the events for a client of the same dialect. Without
    `texts`: what follows once the texts were streamed."""
    yield from events_of(completion)
    choices = completion.body.get("choices")
    if completion.dialect == "chat" and isinstance(choices, list) and len(choices) > 1:
        for number, choice in enumerate(choices):
            one = completion_from_body({**completion.body, "choices": [choice]})
            yield from message_deltas(one.message, choice=number, texts=texts)
            yield FinishDelta(one.finish_reason, number)
    else:
        yield from message_deltas(completion.message, texts=texts)
        if completion.stop_sequence:
            yield NativeDelta("anthropic", {"stop_sequence": completion.stop_sequence})
        if completion.dialect == "anthropic" and completion.refusal:
            yield NativeDelta("anthropic", {"refusal": completion.refusal})
        own = completion.dialect == "responses"
        yield FinishDelta(
            finish_reason_of(completion.body, completion.finish_reason) if own else completion.finish_reason
        )
    yield UsageDelta(completion.usage, object_of(completion.body.get("usage")))
