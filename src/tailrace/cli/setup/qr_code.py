"""An address as a QR code that a phone reads from the terminal."""

from __future__ import annotations

import io
from typing import Final

_QUIET: Final = 2  # modules around it; four would be by the book, and two are read
_COLOURS: Final = "\x1b[38;5;231;48;5;16m"  # white blocks on black, whatever the terminal's colours are


def qr_lines(text: str) -> str:
    """The code in lines of half blocks, with their colours; empty where the extra that draws it is not installed."""
    try:
        import segno
    except ImportError:
        return ""
    drawn = io.StringIO()
    segno.make_qr(text, error="l").terminal(out=drawn, border=_QUIET, compact=True)
    return "\n".join(f"{_COLOURS}{line}\x1b[0m" for line in drawn.getvalue().splitlines())
