"""Entries as viewers are given them: together, each encoded and framed once for all viewers at the same place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from tailrace.events import Entry, from_json, to_json

T = TypeVar("T")


class _Kept(Generic[T]):
    """Made when it is asked for first, and an attribute from then on: `functools.cached_property` without its lock,
    which it has until Python 3.12 and which costs a token more than what is kept."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make

    def __get__(self, owner: Any, _kind: type | None = None) -> T:
        made = owner.__dict__[self._make.__name__] = self._make(owner)
        return made


class StoredLine(NamedTuple):
    """An entry as it is stored. Its event is not decoded."""

    seq: int
    attempt: int
    json: bytes  # the event's

    @property
    def type(self) -> bytes:
        """The event's type: the first field of its JSON."""
        return self.json[_TYPE_AT : self.json.index(b'"', _TYPE_AT)]

    @property
    def entry(self) -> Entry:
        return Entry(self.seq, from_json(self.json), self.attempt)


_TYPE_AT = len(b'{"type":"')
Frame = Callable[[StoredLine], bytes]


class LogPage(tuple[StoredLine, ...]):  # noqa: SLOT001 - a tuple takes no slots; the dict holds what was framed
    """A few consecutive entries of a log, for viewers that pass them on as they are stored. Viewers at the same place
    are handed the same page, so each entry is framed once."""

    @_Kept
    def frames(self) -> dict[Frame, bytes]:
        """What `framed` has returned so far."""
        return {}

    def framed(self, frame: Frame) -> bytes:
        """What `frame` makes of each entry, joined. `frame` must be a function of a module: its result is kept."""
        frames = self.frames
        if (data := frames.get(frame)) is None:
            data = frames[frame] = b"".join(map(frame, self))
        return data

    @property
    def entries(self) -> list[Entry]:
        return [line.entry for line in self]


class Batch(tuple[Entry, ...]):  # noqa: SLOT001 - a tuple takes no slots; the dict holds what was encoded
    """Entries that a viewer is given together. Viewers at the same place are handed the same object, so each event is
    encoded once: for storage, or by the first viewer."""

    stored: bytes = b""  # the JSON of these events, a line each, where a commit has encoded them
    unjoined_bytes: int = 0  # how long that is, where it is too long to be held in one piece
    sources: tuple[Batch, ...] = ()  # the batches of which this one is all, or the end

    @_Kept
    def lines(self) -> list[bytes]:
        """The JSON of each event."""
        if self.sources:
            return [line for batch in self.sources for line in batch.lines][-len(self) :]
        if self.stored:
            return self.stored.splitlines()  # JSON has no line ends inside
        return [to_json(entry.event) for entry in self]

    @_Kept
    def stored_bytes(self) -> int:
        """How long these entries are as they are stored."""
        if self.sources and not self.stored:
            return sum(batch.stored_bytes for batch in self.sources)  # or a little more, where this is the end of them
        return len(self.stored) or self.unjoined_bytes or sum(map(len, self.lines))

    @_Kept
    def page(self) -> LogPage:
        """The same entries as they are stored."""
        return LogPage(map(StoredLine, [entry.seq for entry in self], [entry.attempt for entry in self], self.lines))
