"""Attempts whose process ended before they did, as a run's log tells of them: who was asked, and how much was shown.

Pure. No provider's count of such an attempt comes any more: the process that goes on with the run records an estimate.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias, assert_never

import msgspec

from tailrace.events import (
    ApprovalFact,
    AttemptFact,
    AttemptStarted,
    Commentary,
    Delivered,
    Entry,
    GatewayNotice,
    HistoryFact,
    LlmDelta,
    LongToolHint,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    ProviderEvents,
    ReasoningChunk,
    RunFact,
    RunForked,
    SequenceFact,
    ShownFact,
    Snapshot,
    StepFailed,
    StepFinished,
    ToolArgumentsChunk,
    ToolCallChunk,
    ToolCallFinished,
    UsageRecorded,
)

_Bookkeeping: TypeAlias = (
    RunFact | AttemptFact | ShownFact | HistoryFact | ApprovalFact | SequenceFact | Delivered | Snapshot
)
_Asked: TypeAlias = tuple[int, str, str]  # the number of the try, the provider, the model
_NoPart: TypeAlias = (
    MessageStop | Commentary | ToolCallChunk | ToolCallFinished | LongToolHint | GatewayNotice | _Bookkeeping
)


class LostAttempt(msgspec.Struct, frozen=True):
    """An attempt that had begun to answer and whose usage is not on record."""

    number: int
    provider: str
    model: str
    text_chars: int = 0  # of the text that viewers saw
    other_chars: int = 0  # of thoughts and of the arguments of calls


class _OpenAttempt(msgspec.Struct):
    number: int
    provider: str
    model: str
    text_chars: int = 0
    other_chars: int = 0
    has_answer: bool = False

    @property
    def asked(self) -> _Asked:
        return (self.number, self.provider, self.model)


class _OpenAttempts(dict[str, _OpenAttempt]):
    """By block. A recorded usage does not say whose it is: where steps that run side by side have asked the same model
    for the same time, it is that of the one which ends or tries again next."""

    def __init__(self) -> None:
        super().__init__()
        self._used: list[_Asked] = []  # usages whose attempt is not known yet

    def end(self, block_id: str) -> None:
        attempt = self.pop(block_id, None)
        if attempt is not None and attempt.asked in self._used:
            self._used.remove(attempt.asked)

    def count(self, asked: _Asked) -> None:
        blocks = [block_id for block_id, attempt in self.items() if attempt.asked == asked]
        if len(blocks) == 1:
            del self[blocks[0]]
        elif blocks:
            self._used.append(asked)

    def uncounted(self) -> dict[str, _OpenAttempt]:
        """Of a usage after which nothing more came, any of those that it may be of has been counted."""
        left = dict(self)
        for asked in self._used:
            left.pop(next((block_id for block_id, attempt in left.items() if attempt.asked == asked), ""), None)
        return left


def lost_in(entries: Iterable[Entry]) -> LostAttempt | None:
    """The attempt that was under way when the log of a turn or of a call ended."""
    return lost_by_steps(entries).get("")


def lost_by_steps(entries: Iterable[Entry]) -> dict[str, LostAttempt]:
    """The same for a sequence, by the ids of its blocks. An attempt that a later process has withdrawn is among them
    until its usage is on record."""
    found = _OpenAttempts()
    for entry in entries:
        event, number = entry.event, entry.attempt
        match event:
            case AttemptStarted(provider, model, block_id):
                found.end(block_id)
                found[block_id] = _OpenAttempt(number, provider, model)
            case LlmDelta(block_id, text):
                _note(found.get(block_id), number, text=len(text))
            case MessageChunk(text):
                _note(found.get(""), number, text=len(text))
            case ReasoningChunk(text) | ToolArgumentsChunk(text=text):
                _note(found.get(""), number, other=len(text))
            case ProviderEvents():
                _note(found.get(""), number)
            case UsageRecorded():
                found.count((number, event.provider, event.model))
            case StepFinished(block_id) | StepFailed(block_id):
                found.end(block_id)
            case MessageRecorded():
                found.end("")
            case RunForked():
                found = _OpenAttempts()  # the other run has them
            case _ if isinstance(event, _NoPart):
                pass
            case _:
                assert_never(event)
    return {
        block_id: LostAttempt(each.number, each.provider, each.model, each.text_chars, each.other_chars)
        for block_id, each in found.uncounted().items()
        if each.has_answer
    }


def _note(attempt: _OpenAttempt | None, number: int, *, text: int = 0, other: int = 0) -> None:
    if attempt is not None and attempt.number == number:
        attempt.text_chars += text
        attempt.other_chars += other
        attempt.has_answer = True
