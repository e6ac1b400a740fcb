"""Random hexadecimal text for ids that cannot be guessed: the system's random bytes, asked for in blocks.

A system call per id costs more than the id, and it hands the interpreter to another thread. A forked process asks for a
block of its own: it would make its parent's ids otherwise.
"""

from __future__ import annotations

import os
from typing import Final

_DIGITS: Final = 24
_BLOCK: Final = 128  # pieces
_pieces: list[str] = []


def random_hex(digits: int) -> str:
    """So many random digits, at most 24. Any thread may call it."""
    if not 0 < digits <= _DIGITS:
        raise ValueError(f"{digits} digits; at most {_DIGITS}")
    try:
        piece = _pieces.pop()  # atomic: no two threads get the same one
    except IndexError:
        piece, *rest = os.urandom(_DIGITS // 2 * _BLOCK).hex(" ", _DIGITS // 2).split()
        _pieces.extend(rest)
    return piece[:digits]


def forget() -> None:
    """The next one comes from a new block."""
    _pieces.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget)
