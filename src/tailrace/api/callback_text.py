"""What the events of a turn are to a callback that takes text: each piece of the answer, and the end of each response.

Values only: who calls the callback, and in which thread, is `blocking_agent`'s affair.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from tailrace.events import (
    AnyEvent,
    ApprovalFact,
    AttemptFact,
    AttemptStarted,
    Commentary,
    Delivered,
    GatewayNotice,
    HistoryFact,
    LongToolHint,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    ReasoningChunk,
    RunFinished,
    RunForked,
    RunStarted,
    SequenceFact,
    Snapshot,
    ToolCallChunk,
    ToolCallFinished,
)


class CallbackText:
    """What a `stream_callback` is called with: the text as it comes, and None when a response of the model has ended,
    also one that only called tools. A turn ends with None in any case."""

    def __init__(self) -> None:
        self._is_open = True  # None is still to come

    def of_event(self, event: AnyEvent) -> Iterator[str | None]:
        match event:
            case MessageChunk(text) | Commentary(text):
                self._is_open = True
                yield text
            case AttemptStarted():
                self._is_open = True
            case MessageRecorded(message) if message.role == "assistant":
                yield from self._end()
            case MessageStop(final=True) | RunFinished():
                yield from self._end()
            case MessageStop() | ReasoningChunk() | ToolCallChunk() | ToolCallFinished() | LongToolHint():
                pass
            case RunStarted() | RunForked() | GatewayNotice() | Snapshot():
                pass
            case _ if isinstance(event, AttemptFact | HistoryFact | ApprovalFact | SequenceFact | Delivered):
                pass
            case _:
                assert_never(event)

    def _end(self) -> Iterator[None]:
        if self._is_open:
            self._is_open = False
            yield None
