"""What was entered while the screen did not have the terminal: before the program had started, or during a download.

Until then the terminal is in line mode, where Enter ends a line with "\\n". Read afterwards that would be Ctrl-J, which
begins a new line of a message instead of sending it.
"""

from __future__ import annotations

import os
import termios

from tailrace.system.unread_bytes import unread_bytes

_LOCAL_FLAGS = 3  # the place of the local modes in what `tcgetattr` returns


def typeahead(terminal: int) -> list[str]:
    """Takes the whole lines, in their order. What was not ended with Enter stays, for the screen to read."""
    if not os.isatty(terminal) or not termios.tcgetattr(terminal)[_LOCAL_FLAGS] & termios.ICANON:
        return []
    lines: list[str] = []
    while unread_bytes(terminal):  # in line mode: characters of whole lines
        lines.append(os.read(terminal, 1 << 16).decode(errors="replace").rstrip("\n"))  # one line at a time
    return [line for line in lines if line.strip()]
