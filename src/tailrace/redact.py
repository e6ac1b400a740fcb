"""Which values count as secrets, and a text without them (J114). At the bottom: every layer shows or stores texts."""

from __future__ import annotations

from collections.abc import Iterable

MIN_SECRET_CHARS = 6  # shorter values ("x", "test") would redact ordinary words


def secret_values(values: Iterable[str]) -> list[str]:
    """The values that are long enough, the longest first: one may be part of another."""
    return sorted({value for value in values if len(value) >= MIN_SECRET_CHARS}, key=len, reverse=True)


def without_secrets(text: str, values: Iterable[str]) -> str:
    for secret in secret_values(values):
        text = text.replace(secret, "…")
    return text
