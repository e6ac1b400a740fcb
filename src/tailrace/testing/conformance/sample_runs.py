"""Runs for the suites of the journal's ports: started, written to, finished, and read back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence

import pytest

from tailrace.events import (
    AnyEvent,
    Entry,
    LlmDelta,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    RunFailure,
    RunFinished,
    StepFailed,
    StepFinished,
    StepStarted,
)
from tailrace.journal.fold import SEQUENCE, outputs_text
from tailrace.messages import Usage, assistant
from tailrace.ports import Batch, Journal, Lease, LogPage, NewRun, Run, StoredLine

NEW = NewRun("agent", {"text": "hi"}, model="m", session="s")


async def started(journal: Journal, new: NewRun = NEW, owner: str = "me") -> tuple[Run, Lease]:
    run, lease = await journal.start(new, owner)
    assert lease is not None
    return run, lease


async def written(journal: Journal, lease: Lease, events: Sequence[AnyEvent], *, attempt: int = 1) -> int:
    seq = journal.append(lease, events, attempt=attempt)
    await journal.commit(lease)
    return seq


async def finished_run(journal: Journal, texts: Sequence[str] = ("Hel", "lo"), new: NewRun = NEW) -> Run:
    run, lease = await started(journal, new)
    for text in texts:
        await written(journal, lease, [MessageChunk(text)])
    output = "".join(texts)
    journal.append(lease, [MessageStop(final=True), MessageRecorded(assistant(output))])
    await journal.seal(lease, RunFinished("completed", output))
    return await journal.get(run.id)


async def finished_sequence(journal: Journal) -> tuple[Run, list[Entry], RunFinished]:
    """A sequence with a step that finished twice, one that failed, and its entries as a viewer saw them live."""
    run, lease = await started(journal, NewRun(SEQUENCE))
    watching = asyncio.ensure_future(everything(journal.tail(run.id)))
    answer = {"message": {"content": "It is 42.", "role": "assistant"}, "usage": {"output_tokens": 7}}
    await written(journal, lease, [StepStarted("ask"), LlmDelta("ask", "It is"), LlmDelta("ask", " 42.")])
    await written(journal, lease, [StepFinished("ask", "early"), StepStarted("sum", 2), StepFinished("ask", answer)])
    await written(journal, lease, [StepFinished("sum", [1, None]), StepFailed("send", RunFailure("retryable", "no"))])
    output = outputs_text({"ask": answer, "sum": [1, None]})
    finished = RunFinished("failed", output, Usage(1, 7), RunFailure("retryable", "no"), at=5.0)
    await journal.seal(lease, finished)
    return await journal.get(run.id), await watching, finished


async def everything(viewer: AsyncIterator[Batch]) -> list[Entry]:
    return [entry async for batch in viewer for entry in batch]


async def every_line(viewer: AsyncIterator[LogPage]) -> list[StoredLine]:
    return [line async for page in viewer for line in page]


async def refused(error: type[Exception], *attempts: Awaitable[object]) -> None:
    for attempt in attempts:
        with pytest.raises(error):
            await attempt


def texts_of(entries: Sequence[Entry]) -> list[str]:
    return [entry.event.text for entry in entries if isinstance(entry.event, MessageChunk)]
