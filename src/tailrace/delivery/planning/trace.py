"""The planner's trace, for debugging: one line per entry or reply in, one per action out.

On when the logger `tailrace.delivery` is at debug level. A line has the fields that are listed here and no others, so
that no command, argument, file name or error of a platform gets into a log. Of texts it has the length, and of what a
message begins with a few characters: too few for a secret, enough to tell messages apart.
"""

from __future__ import annotations

import logging

import msgspec

log = logging.getLogger("tailrace.delivery")
PREFIX = 12  # characters
_FIELDS = frozenset(
    {"approval_id", "draft_id", "final", "index", "key", "kind", "markup", "message_id", "ok", "pause_s"}
)
_FIELDS |= {"retry_after_s", "state", "status", "tool_name", "what"}
_BEGINNINGS = frozenset({"Send", "Edit", "Draft", "Open"})  # the others have pieces: their beginnings add up to a text


def described(value: msgspec.Struct) -> str:
    """`Edit message_id='m1' final=False 312 characters 'Water leaves'`"""
    name = type(value).__name__
    words = [name]
    for field in value.__struct_fields__:
        content = getattr(value, field)
        if field in _FIELDS:
            words.append(f"{field}={content!r}")
        elif field in ("text", "output"):
            words.append(f"{len(content)} characters")
            if name in _BEGINNINGS:
                words.append(repr(content[:PREFIX]))
    return " ".join(words)
