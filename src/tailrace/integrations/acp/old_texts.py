"""What files held before a tool wrote them whole, for the diffs that an editor shows. In memory, within a limit."""

from __future__ import annotations

from typing import Final

MAX_CHARS: Final = 16_000_000  # of all texts of a session; the oldest go first


class OldTexts:
    """By path and by the text that was written: the log is read later than the tools run, and one file may be written
    several times in between."""

    def __init__(self, max_chars: int = MAX_CHARS) -> None:
        self._max_chars = max_chars
        self._texts: dict[tuple[str, int], str] = {}
        self._chars = 0

    def keep(self, path: str, new: str, old: str | None) -> None:
        """`old` is None where there was no file, or its text cannot be shown."""
        key = (path, hash(new))
        self._chars -= len(self._texts.pop(key, ""))
        if old is not None:
            self._texts[key] = old
            self._chars += len(old)
        while self._chars > self._max_chars:
            self._chars -= len(self._texts.pop(next(iter(self._texts))))

    def before(self, path: str, new: str) -> str | None:
        return self._texts.get((path, hash(new)))
