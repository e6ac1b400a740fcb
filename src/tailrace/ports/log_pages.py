"""Entries as viewers are given them: together, each encoded and framed once for all viewers at the same place."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tailrace.events import Entry, to_json


class StoredLine(NamedTuple):
    """An entry as it is stored. Its event is not decoded."""

    seq: int
    attempt: int
    json: bytes  # the event's

    @property
    def type(self) -> bytes:
        """The event's type: the first field of its JSON."""
        return self.json[_TYPE_AT : self.json.index(b'"', _TYPE_AT)]


_TYPE_AT = len(b'{"type":"')
Frame = Callable[[StoredLine], bytes]


class LogPage(tuple[StoredLine, ...]):  # noqa: SLOT001 - a tuple takes no slots; the dict holds what was framed
    """A few consecutive entries of a log, for viewers that pass them on as they are stored. Viewers at the same place
    are handed the same page, so each entry is framed once."""

    _framed: dict[Frame, bytes] | None = None

    def framed(self, frame: Frame) -> bytes:
        """What `frame` makes of each entry, joined. `frame` must be a function of a module: its result is kept."""
        framed = self._framed
        if framed is None:
            framed = self._framed = {}
        if (data := framed.get(frame)) is None:
            data = framed[frame] = b"".join(map(frame, self))
        return data


class Batch(tuple[Entry, ...]):  # noqa: SLOT001 - a tuple takes no slots; the dict holds what was encoded
    """Entries that a viewer is given together. Viewers at the same place are handed the same object, so each event is
    encoded once: for storage, or by the first viewer. What was made is kept here and not by `cached_property`: that one
    takes a lock, and there are two of them for every token."""

    stored: bytes = b""  # the JSON of these events, a line each, where a commit has encoded them
    sources: tuple[Batch, ...] = ()  # the batches of which this one is the end
    _lines: list[bytes] | None = None
    _page: LogPage | None = None

    @property
    def lines(self) -> list[bytes]:
        """The JSON of each event."""
        if self._lines is None:
            self._lines = self._encoded()
        return self._lines

    def _encoded(self) -> list[bytes]:
        if self.sources:
            return [line for batch in self.sources for line in batch.lines][-len(self) :]
        if self.stored:
            return self.stored.splitlines()  # JSON has no line ends inside
        return [to_json(entry.event) for entry in self]

    @property
    def stored_bytes(self) -> int:
        """How long these entries are as they are stored."""
        return len(self.stored) or sum(map(len, self.lines))

    @property
    def page(self) -> LogPage:
        """The same entries as they are stored."""
        if self._page is None:
            seqs, attempts = [entry.seq for entry in self], [entry.attempt for entry in self]
            self._page = LogPage(map(StoredLine, seqs, attempts, self.lines))
        return self._page
