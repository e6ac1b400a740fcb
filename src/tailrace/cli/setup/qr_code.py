"""An address as a QR code that a phone reads from the terminal."""

from __future__ import annotations

from typing import Final

_QUIET: Final = 2  # modules around it; four would be by the book, and two are read
_COLOURS: Final = "\x1b[38;5;16;48;5;231m"  # black on white, whatever the terminal's are


def qr_lines(text: str) -> str:
    """The code in lines of half blocks, with their colours; empty where the extra that draws it is not installed."""
    try:
        import segno
    except ImportError:
        return ""
    rows = [bytes(row) for row in segno.make_qr(text, error="l").matrix_iter(border=_QUIET)]
    rows += [bytes(len(rows[0]))] * (len(rows) % 2)
    halves = zip(rows[::2], rows[1::2], strict=True)
    lines = ("".join(" ▀▄█"[above + 2 * below] for above, below in zip(*pair, strict=True)) for pair in halves)
    return "\n".join(f"{_COLOURS}{line}\x1b[0m" for line in lines)
