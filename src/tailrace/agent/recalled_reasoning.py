"""The reasoning behind calls that a client returns to the agent without it (K131).

A client that runs tools sends the conversation back as it knows it: without reasoning that it was not shown, and
without what a provider of another dialect has signed. Some providers refuse the result of a tool then. The turn that
made the calls is in the journal, with all that its provider sent.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from tailrace.agent.session import TURN_KIND
from tailrace.errors import RunNotFound
from tailrace.events import MessageRecorded
from tailrace.messages import Message, Reasoning
from tailrace.ports import ENDED, Journal, Run

_SEARCHED_RUNS: Final = 50  # the newest turns, among which calls of another process are looked for
_KNOWN_CALLS: Final = 20_000  # the newest ones, about 200 bytes each
_NOT_IN_AN_ID: Final = re.compile(r"[^a-zA-Z0-9_-]")  # what one of the APIs replaces on the way to its client
_encode = msgspec.json.Encoder(order="deterministic").encode


class RecalledReasoning:
    """Which turn made which calls. One for each process: what it does not know is looked for in the journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._runs: dict[bytes, str] = {}  # by the calls of a message; empty: no turn is known to have made them

    def note(self, run: Run, messages: Iterable[Message]) -> None:
        """Takes note of the messages of a turn that has ended."""
        for message in messages:
            if message.role == "assistant" and message.tool_calls:
                self._remember(_key(message, _requester(run)), run.id if _reasoning_in(message) else "")

    async def restored(self, history: tuple[Message, ...], *, requester: str) -> tuple[Message, ...]:
        """The history with the reasoning of the requester's own turns before the calls that they made."""
        wanted = {
            at: _key(message, requester)
            for at, message in enumerate(history)
            if message.role == "assistant" and message.tool_calls and not _reasoning_in(message)
        }
        if any(key not in self._runs for key in wanted.values()):
            await self._search(set(wanted.values()), requester)
        found = await self._reasoning_of({self._runs.get(key, "") for key in wanted.values()} - {""}, requester)
        if not found:
            return history
        restored = list(history)
        for at, key in wanted.items():
            if key in found:
                others = (part for part in history[at].parts if not isinstance(part, Reasoning))
                restored[at] = Message("assistant", (*found[key], *others))
        return tuple(restored)

    async def _search(self, keys: set[bytes], requester: str) -> None:
        newest = await self._journal.runs(kind=TURN_KIND, states=ENDED, limit=_SEARCHED_RUNS)
        runs = [run for run in newest if run.new.input.get("foreign") and _requester(run) == requester]
        for run, facts in zip(runs, await self._journal.facts_of_runs([run.id for run in runs]), strict=True):
            self.note(run, (entry.event.message for entry in facts if isinstance(entry.event, MessageRecorded)))
        for key in keys:
            self._runs.setdefault(key, "")

    async def _reasoning_of(self, run_ids: set[str], requester: str) -> dict[bytes, Sequence[Reasoning]]:
        if not run_ids:
            return {}
        try:
            read = await self._journal.facts_of_runs(sorted(run_ids))
        except RunNotFound:  # one was deleted meanwhile
            self._runs.clear()
            return {}
        recorded = (
            entry.event.message for facts in read for entry in facts if isinstance(entry.event, MessageRecorded)
        )
        return {_key(message, requester): thoughts for message in recorded if (thoughts := _reasoning_in(message))}

    def _remember(self, key: bytes, run_id: str) -> None:
        self._runs.pop(key, None)  # the newest is last
        self._runs[key] = run_id
        while len(self._runs) > _KNOWN_CALLS:
            del self._runs[next(iter(self._runs))]


def _requester(run: Run) -> str:
    requester: str = run.new.input.get("requester") or ""
    return requester


def _reasoning_in(message: Message) -> Sequence[Reasoning]:
    """The reasoning that its provider takes back."""
    return [part for part in message.parts if isinstance(part, Reasoning) and part.native is not None]


def _key(message: Message, requester: str) -> bytes:
    """What is the same of a message's calls however a client spells them. Some servers count their ids anew in each
    answer, so the id alone would mix up conversations."""
    calls = [
        (
            _NOT_IN_AN_ID.sub("_", call.id),
            call.name,
            parsed if (parsed := call.parsed()) is not None else call.arguments,
        )
        for call in message.tool_calls
    ]
    return hashlib.sha256(_encode([requester, calls])).digest()
