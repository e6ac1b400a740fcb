"""Text in the JSON of a peer."""

from __future__ import annotations


def text_of(value: object) -> str:
    """A field that should be text; empty where it is anything else."""
    return value if isinstance(value, str) else ""
