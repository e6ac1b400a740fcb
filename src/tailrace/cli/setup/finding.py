"""The result of one check of `tailrace doctor`. An integration's own checks return these too."""

from __future__ import annotations

from typing import Literal

import msgspec

State = Literal["ok", "note", "broken"]


class Finding(msgspec.Struct, frozen=True):
    """`advice` says what to do."""

    state: State
    what: str
    advice: str = ""
