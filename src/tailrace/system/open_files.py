"""How many files a process may have open: each connection is one, on either side.

A shell gives its programs 1,024 where the system would allow many more. Who wants them has to ask.
"""

from __future__ import annotations

import sys
from typing import Final

# A soft limit beyond that is of no use, and slow for a child that closes every file it could have.
MOST: Final = 65_536


def open_file_limit() -> int:
    """How many this process may have; 0 where the system has no limit, or does not tell."""
    if sys.platform == "win32":
        return 0
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 0 if soft == resource.RLIM_INFINITY else soft


def allow_open_files() -> int:
    """Raises this process's limit to the most that it may have, and returns it; 0 where the system has no limit, or
    does not tell. Its children inherit it."""
    if sys.platform == "win32":
        return 0
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft == resource.RLIM_INFINITY:
        return 0
    if soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # macOS has a further limit of its own
            return soft
        return wanted
    return soft
