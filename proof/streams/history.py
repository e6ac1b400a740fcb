"""What everyone saw, one JSON object a line. The judge reads these lines and nothing else; it says what they mean."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

_NUMBERED = re.compile(r"t(\d+)\.[\w-]+\.[a-z]x*")


def numbered_word(n: int, run: str, attempt: int, padding: int = 0) -> str:
    """`t17.r5.a `: word 17 of run r5, as attempt 1 says it. Another attempt says another word, as a model would."""
    return f"t{n}.{run}.{chr(ord('a') + min(attempt, 26) - 1)}{'x' * padding} "


def digest(word: str) -> str:
    return sha256(word.strip().encode()).hexdigest()[:12]


class Words:
    """Text in any pieces, words out. A word is whole when something follows it, or at the end."""

    def __init__(self) -> None:
        self._rest = ""

    def feed(self, text: str) -> Iterator[tuple[int, str]]:
        """The number and hash of each word; 0 for a word that has no number of ours, as where two were glued."""
        *whole, self._rest = re.split(r"\s", self._rest + text)
        for word in filter(None, whole):
            found = _NUMBERED.fullmatch(word)
            yield (int(found[1]) if found else 0), digest(word)

    def end(self) -> Iterator[tuple[int, str]]:
        yield from self.feed(" ")


class History:
    """Appends to one file. Every writer of a test is in one process, so the clock is one too."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("a", encoding="utf-8")
        self._began = time.monotonic()

    def write(self, by: str, run: str, what: str, **more: object) -> None:
        record = {"t": round(time.monotonic() - self._began, 4), "by": by, "run": run, "what": what, **more}
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _exc: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._file.close()
