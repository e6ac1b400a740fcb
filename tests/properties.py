"""How many examples of a property are tried: as many as the test says in the full run, few in `make test`."""

from __future__ import annotations

import os
from typing import Final

PROFILE: Final = os.environ.get("TAILRACE_PROPERTIES", "full")
QUICK_EXAMPLES: Final = 20


def examples(number: int) -> int:
    return number if PROFILE == "full" else min(number, QUICK_EXAMPLES)
