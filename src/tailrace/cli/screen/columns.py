"""Text in a number of columns of the terminal. Pure."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size


def padded(text: str, size: int, *, right: bool = False) -> str:
    """The text in exactly so many columns of the terminal; `…` says that it was cut."""
    length = cell_len(text)
    if length > size:
        return set_cell_size(set_cell_size(text, size - 1).rstrip() + "…", size) if size > 0 else ""
    space = " " * (size - length)
    return space + text if right else text + space
