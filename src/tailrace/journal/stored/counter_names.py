"""The order of counters' names, alike in every database: that of their UTF-8 bytes."""

from __future__ import annotations


def end_of(prefix: str) -> str:
    """The least name that is greater than every one that begins so. The last character of a prefix is ASCII."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)
