"""Deviations of single providers that cannot be detected from the bytes alone; the caller tells a decoder which apply.

Guessing them from the text would corrupt a well-behaved provider's answer, so each is off until the registry of
providers turns it on.
"""

from __future__ import annotations

import msgspec


class WireQuirks(msgspec.Struct, frozen=True):
    """All off: the provider speaks its dialect as documented."""

    cumulative_text: bool = False  # each delta repeats the whole text so far (A17)
    name_in_pieces: bool = False  # a tool's name arrives in pieces to be joined (B28)
    ends_without_done: bool = False  # the finish reason is the terminal event: `[DONE]` is never sent (D48)


NONE = WireQuirks()
