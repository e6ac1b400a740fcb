"""Which values count as secrets, and texts without them (J113, J114). At the bottom: every layer shows or stores texts.

Pure. A secret split over chunks is found by holding back what could still become one. Configured patterns match
within a run of non-blank characters, so only an unfinished word is ever held for them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote

REDACTED = "[redacted]"
_MAX_WORD_CHARS = 512  # a longer run of non-blanks is data, not a key: it is not held back
MIN_SECRET_CHARS = 6  # shorter values ("x", "test") would redact ordinary words


def secret_values(values: Iterable[str]) -> list[str]:
    """The values that are long enough, the longest first: one may be part of another."""
    return sorted({value for value in values if len(value) >= MIN_SECRET_CHARS}, key=len, reverse=True)


def spellings(secrets: Iterable[str]) -> list[str]:
    """The secrets as texts show them, the longest first: as they are, within JSON, as Python quotes them in an error,
    and within an address. A password with a quote in it is written otherwise in a log of JSON lines."""
    return secret_values(spelling for secret in secret_values(secrets) for spelling in _spellings(secret))


def _spellings(secret: str) -> Iterator[str]:
    yield secret
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield repr(secret)[1:-1]
    yield quote(secret, errors="surrogateescape")
    yield quote(secret, safe="", errors="surrogateescape")


def without_secrets(text: str, values: Iterable[str]) -> str:
    for secret in spellings(values):
        text = text.replace(secret, "…")
    return text


class TextRedactor:
    """What is secret, compiled once. `redact` is for whole texts; `stream` gives a filter for one streamed text."""

    def __init__(self, secrets: Iterable[str] = (), patterns: Iterable[str] = ()) -> None:
        self.words = tuple(patterns)
        self.secrets: tuple[str, ...] = ()
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        """These are secret from now on, beside those that are."""
        self.secrets = tuple(secret_values([*self.secrets, *secrets]))
        self._spellings = spellings(self.secrets)
        alternatives = [re.escape(spelling) for spelling in self._spellings] + [f"(?:{word})" for word in self.words]
        self.pattern = re.compile("|".join(alternatives)) if alternatives else None

    def redact(self, text: str) -> str:
        return self.pattern.sub(REDACTED, text) if self.pattern is not None and self._may_match(text) else text

    def matches(self, text: str) -> list[re.Match[str]]:
        return [*self.pattern.finditer(text)] if self.pattern is not None and self._may_match(text) else []

    def _may_match(self, text: str) -> bool:
        """Nearly never: a search for each spelling is many times faster than the pattern."""
        return bool(self.words) or any(map(text.__contains__, self._spellings))

    def stream(self) -> RedactingStream:
        return RedactingStream(self)

    def held_from(self, data: str) -> int:
        """Where the tail begins that may be the start of a secret. Never inside a complete one."""
        keep = size = len(data)
        for secret in self._spellings:
            at = data.find(secret[0], max(0, size - len(secret) + 1))
            while at >= 0 and not secret.startswith(data[at:]):
                at = data.find(secret[0], at + 1)
            keep = min(keep, at) if at >= 0 else keep
        if self.words:
            word = size
            while word > 0 and not data[word - 1].isspace():
                word -= 1
            if size - word <= _MAX_WORD_CHARS:
                keep = min(keep, word)
        # A complete secret that straddles the cut stays whole: it is held together with what follows.
        return next((found.start() for found in self.matches(data) if found.start() < keep < found.end()), keep)

    @property
    def idle(self) -> bool:
        """There is nothing to redact."""
        return self.pattern is None


class RedactingStream:
    """One text in pieces. The joined output equals `redact` of the joined input, wherever it is cut."""

    def __init__(self, redactor: TextRedactor, held: str = "") -> None:
        self._redactor = redactor
        self.held = held  # the end of the text so far, which may be the beginning of a secret

    def copy(self) -> RedactingStream:
        """One in the same state."""
        return RedactingStream(self._redactor, self.held)

    def feed(self, text: str) -> str:
        if not text or self._redactor.pattern is None:  # idle, without a call for each token
            return text
        data = self.held + text
        keep = self._redactor.held_from(data)
        self.held = data[keep:]
        return self._redactor.redact(data[:keep])

    def close(self) -> str:
        held, self.held = self.held, ""
        return self._redactor.redact(held) if held else ""
