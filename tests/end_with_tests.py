"""Ends a server that a test started when the test process is killed, which runs no `finally` of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Reads until the test process closes the pipe or is gone. $1: the file with the server's process id in its first line,
# which is missing while none runs. $2: a directory to remove, or nothing.
_WATCH = 'read -r _; if [ -s "$1" ]; then kill -9 "$(head -n 1 "$1")"; fi; if [ -n "$2" ]; then rm -rf "$2"; fi'


@contextmanager
def ended_with_tests(pid_file: Path, directory: Path | None = None) -> Iterator[None]:
    """Kills the server of this file and removes this directory should they still be there after the block, or after the
    death of this process."""
    command = ["sh", "-c", _WATCH, "sh", str(pid_file), str(directory or "")]
    # A session of its own: neither Ctrl-C nor a signal to the test's process group reaches it.
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True):
        yield
