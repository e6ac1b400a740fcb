"""Takes the secrets out of this process's own environment, which its children can read.

On Linux every process of the same user can read `/proc/<pid>/environ`: the block of variables that the process was
started with, whatever has become of `os.environ` since. A command that the agent runs would find keys in its parent's
block. Their values are overwritten there, and other processes of the user may not read this one's memory.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Collection
from pathlib import Path

_PR_SET_DUMPABLE = 4
# The fields of /proc/self/stat after the name, which ends with the last parenthesis: proc(5) counts it as the second.
_ENV_START, _ENV_END = 50 - 3, 51 - 3


def hide_secrets(names: Collection[str]) -> None:
    """Removes these variables from `os.environ` and from the block that other processes see. Once the configuration is
    loaded nothing reads them there. For the entry points: a library must leave its host's environment alone."""
    present = [name for name in names if os.environ.pop(name, None) is not None]
    if not present or sys.platform != "linux":
        return
    try:
        _overwrite(present)
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    except (OSError, ValueError, IndexError):  # no /proc: then children have none either
        return


def _overwrite(names: Collection[str]) -> None:
    fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    start, end = int(fields[_ENV_START]), int(fields[_ENV_END])
    if not 0 < start < end:
        return
    wanted = {os.fsencode(name) for name in names}
    at = start
    for variable in ctypes.string_at(start, end - start).split(b"\0"):
        name, sign, value = variable.partition(b"=")
        if sign and value and name in wanted:
            ctypes.memset(at + len(name) + 1, 0, len(value))
        at += len(variable) + 1
