"""A conversation as one Markdown document: its questions as they were sent, and all that the agent said."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from tailrace.app.timeline.question import question_of, speaker_of
from tailrace.events import Entry, MessageRecorded
from tailrace.events.speakers import named_text
from tailrace.messages import Message
from tailrace.ports import Journal, Run

_PASTED: Final = re.compile(r"\[(\d{1,8}) (lines|characters) pasted(?:, \d+)?\]")


_ATTACHED: Final = re.compile(r"\n\n<(?:file|directory|command_output) ")


async def markdown_of(journal: Journal, runs: Sequence[Run]) -> str:
    """The turns in this order, each under its question."""
    facts = await journal.facts_of_runs([run.id for run in runs])
    return "\n\n".join(
        section(question_of(run), *_pasted_text(run), *_said(run, entries))
        for run, entries in zip(runs, facts, strict=True)
    )


def section(question: str, *texts: str) -> str:
    """One exchange as Markdown, under a heading. A code block that a part leaves open, as an answer does that was cut,
    is closed: else the rest of the document would be code."""
    from tailrace.delivery.text.balance import OpenMarkup, open_fence

    first = question.partition("\n")[0]
    heading = f"## …\n\n{question}" if open_fence(first) else f"## {question}"  # a fence is none behind "##"
    parts = (OpenMarkup(open_fence(part)).close(part.rstrip()) for part in (heading, *texts))
    return "\n\n".join(filter(None, parts))


def _pasted_text(run: Run) -> Iterator[str]:
    """What was sent, without attachments, where the question that is shown has marks in place of pastes."""
    shown = question_of(run).removeprefix(named_text(speaker_of(run), ""))
    if _PASTED.search(shown):
        yield _ATTACHED.split(msgspec.convert(run.new.input.get("message"), Message).text)[0]


def _said(run: Run, entries: Sequence[Entry]) -> Iterator[str]:
    """What the agent said before each of its tools, and at the end."""
    for entry in entries:
        match entry.event:
            case MessageRecorded(message) if message.tool_calls:
                yield message.text
            case _:
                pass
    if run.finished is not None:
        yield run.finished.output
