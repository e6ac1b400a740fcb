"""How much a pipe or a terminal holds unread."""

from __future__ import annotations

import array
import fcntl
import termios


def unread_bytes(file: int) -> int:
    """Without reading it. Of a terminal in line mode: the characters of whole lines. Raises `OSError`."""
    count = array.array("i", [0])
    fcntl.ioctl(file, termios.FIONREAD, count)
    return count[0]
