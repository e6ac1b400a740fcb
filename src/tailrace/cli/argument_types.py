"""Types of arguments that more than one command has: argparse turns what they raise into one line and exit code 2."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

MAX_PORT: Final = 65_535


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """A whole number of this range."""

    def parse(text: str) -> int:
        digits = text.isascii() and text.isdecimal() and len(text) <= 18
        if digits and least <= int(text) and (most is None or int(text) <= most):
            return int(text)
        wanted = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise argparse.ArgumentTypeError(f"expected a whole number {wanted}; found {text[:40]!r}")

    return parse


PORT: Final = whole_number(0, MAX_PORT)
