"""Random hexadecimal text for ids that cannot be guessed."""

from __future__ import annotations

import os


def random_hex(digits: int) -> str:
    """So many random digits, an even number."""
    return os.urandom(digits // 2).hex()
