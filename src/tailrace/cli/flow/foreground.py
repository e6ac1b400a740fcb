"""Whether a terminal is this program's to draw on."""

from __future__ import annotations

import os
from typing import TextIO


def is_in_foreground(terminal: TextIO) -> bool:
    """False in the background of a shell (`&`, `bg`), where somebody types on the same terminal. True where that cannot
    be known: a terminal that is not this session's has no background."""
    try:
        return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return True
