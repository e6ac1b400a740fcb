"""Where sequences are kept: every version is a run of its own in the journal, sealed when it is made.

So a definition is as durable as anything else, wherever the journal is, and needs no table of its own. Versions of one
name are told apart by an idempotency key: two processes that create one at once get two numbers.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import msgspec

from tailrace.errors import JournalError, RunNotFound
from tailrace.events import RunFinished
from tailrace.flows.definition.definition import (
    MAX_BLOCKS,
    Block,
    Definition,
    DefinitionError,
    SubSequence,
    parsed,
    walk,
)
from tailrace.flows.definition.public_ids import DEFINITION_KIND, public_id, run_id_of
from tailrace.ports import Journal, NewRun, Run

MAX_NESTING = 16
REMEMBERED = 256


class SequenceVersion(msgspec.Struct, frozen=True):
    """One version of one sequence, for good. `id` is its public one: `seq_…`."""

    id: str
    version: int
    definition: Definition


class SequenceStore:
    """The sequences of a journal."""

    def __init__(self, journal: Journal, owner: str) -> None:
        self._journal = journal
        self._owner = owner
        self._known: dict[str, SequenceVersion] = {}  # versions never change

    async def add(self, definition: Definition) -> SequenceVersion:
        """The next version of its name; the newest one again where that is the same."""
        newest = await self.newest(definition.name)
        if newest is not None and newest.definition == definition:
            return newest
        number = newest.version + 1 if newest is not None else 1
        while True:
            new = NewRun(
                DEFINITION_KIND,
                input={"definition": msgspec.to_builtins(definition), "version": number},
                session=_session(definition.name),
                idempotency_key=f"{_session(definition.name)}/{number}",
            )
            run, lease = await self._journal.start(new, self._owner)
            if lease is not None:
                await self._journal.seal(lease, RunFinished("completed"))
                return self._read(run)
            number += 1  # another process took this number

    async def get(self, sequence_id: str) -> SequenceVersion:
        """Raises `RunNotFound`."""
        run_id = run_id_of(sequence_id)
        if (known := self._known.get(run_id)) is not None:
            return known
        try:
            run = await self._journal.get(run_id)
        except RunNotFound as exc:
            raise RunNotFound(f"there is no sequence {sequence_id}") from exc
        if run.new.kind != DEFINITION_KIND:
            raise RunNotFound(f"there is no sequence {sequence_id}")
        return self._read(run)

    async def newest(self, name: str) -> SequenceVersion | None:
        runs = await self._journal.runs(session=_session(name), kind=DEFINITION_KIND, limit=1)
        return self._read(runs[0]) if runs else None

    async def named(self, name: str, version: int | None) -> SequenceVersion:
        """Raises `RunNotFound`."""
        found = await self.newest(name)
        before: str | None = None
        while found is not None and version is not None and found.version != version:
            before = run_id_of(found.id)
            runs = await self._journal.runs(session=_session(name), kind=DEFINITION_KIND, limit=1, before=before)
            found = self._read(runs[0]) if runs else None
        if found is None:
            raise RunNotFound(f"there is no sequence {name!r}" + (f" of version {version}" if version else ""))
        return found

    async def list(self, limit: int = 50, before: str | None = None) -> list[SequenceVersion]:
        """Newest first."""
        last = run_id_of(before) if before is not None else None
        return [self._read(run) for run in await self._journal.runs(kind=DEFINITION_KIND, limit=limit, before=last)]

    async def written_out(self, definition: Definition) -> Definition:
        """The same with every sub-sequence that it names in its place: an instance depends on nothing but itself.
        Raises `DefinitionError`."""
        blocks = await self._written_out(definition.blocks, "$.blocks", (), _BlockCounter())
        return msgspec.structs.replace(definition, blocks=blocks)

    async def _written_out(
        self, blocks: tuple[Block, ...], path: str, names: tuple[str, ...], counter: _BlockCounter
    ) -> tuple[Block, ...]:
        """`names` are those of the sequences that these blocks are in."""
        counter.add(blocks, path)
        named = [
            (here, block) for here, block in walk(blocks, path) if isinstance(block, SubSequence) and not block.blocks
        ]
        if not named:
            return blocks
        value = msgspec.json.decode(msgspec.json.encode(blocks))  # lists, not tuples
        for here, block in named:
            if len(names) >= MAX_NESTING:
                raise DefinitionError(here, f"sub-sequences nested more than {MAX_NESTING} deep: {' → '.join(names)}")
            found = await self._named_by(block, here)
            within = (*names, found.definition.name)
            inner = await self._written_out(found.definition.blocks, f"{here}.blocks", within, counter)
            written = msgspec.structs.replace(
                block, blocks=inner, sequence_id=found.id, sequence_name="", version=found.version
            )
            _put(value, here.removeprefix(path), msgspec.to_builtins(written))
        return msgspec.convert(value, tuple[Block, ...])

    async def _named_by(self, block: SubSequence, path: str) -> SequenceVersion:
        try:
            if block.sequence_id:
                return await self.get(block.sequence_id)
            return await self.named(block.sequence_name, block.version)
        except RunNotFound as exc:
            raise DefinitionError(path, str(exc)) from exc

    def _read(self, run: Run) -> SequenceVersion:
        if (known := self._known.get(run.id)) is not None:
            return known
        try:
            definition = parsed(run.new.input["definition"])
            version = SequenceVersion(public_id(run), int(run.new.input["version"]), definition)
        except (DefinitionError, KeyError, ValueError) as exc:
            raise JournalError(f"sequence {run.id} cannot be read: {exc}") from exc
        self._known[run.id] = version
        if len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]
        return version


class _BlockCounter:
    """Counts the blocks that are written out, before they are: sequences that name each other grow exponentially."""

    def __init__(self) -> None:
        self._left = MAX_BLOCKS

    def add(self, blocks: tuple[Block, ...], path: str) -> None:
        """Raises `DefinitionError`."""
        self._left -= sum(1 for _ in islice(walk(blocks), self._left + 1))
        if self._left < 0:
            raise DefinitionError(path, f"more than {MAX_BLOCKS} blocks")


def _session(name: str) -> str:
    return f"sequence/{name}"


def _put(value: Any, place: str, body: Any) -> None:
    """`place` is one of `walk`: `[0]`, `[1].branches[2][0]`."""
    *way, last = place.replace("[", ".").replace("]", "").strip(".").split(".")
    for part in way:
        value = value[int(part)] if part.isdigit() else value[part]
    value[int(last)] = body
