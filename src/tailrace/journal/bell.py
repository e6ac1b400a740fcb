"""Bells: how processes that share one database file wake each other, and how they know who is dead.

Each process that has the journal open owns a named pipe in `<database>-bells/`. After a commit the writer puts one
byte into every other process's pipe: that is all a viewer in another process needs in order not to poll. The kernel
closes a pipe with its process, however that died, so a bell without a reader is a dead process: no heartbeat, no
process id that may have been reused.

Where named pipes do not exist (Windows, some network mounts) the bell is deaf: callers must look again on a timer,
and a dead owner is only known by its lease.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from pathlib import Path

# Two changes of a directory within one tick of the kernel's clock leave the same mtime: look again until it is older.
MTIME_TRUSTED_AFTER_NS = 50_000_000


class Bell:
    """This process's bell and its way to ring the others'. `ring_others` is for one thread at a time."""

    def __init__(self, database: Path) -> None:
        self._directory = database.with_name(database.name + "-bells")
        self._others: dict[str, int] = {}
        self._seen_mtime_ns = -1
        self.name = f"{os.getpid()}-{secrets.token_hex(4)}"
        self.fd: int | None = None
        self._own_writer: int | None = None
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            hidden = self._directory / f".{self.name}"  # a pipe that nobody reads yet would pass for a dead process's
            os.mkfifo(hidden, 0o600)
            self.fd = os.open(hidden, os.O_RDONLY | os.O_NONBLOCK)
            self._own_writer = os.open(hidden, os.O_WRONLY | os.O_NONBLOCK)  # without a writer it would be at its end
            hidden.rename(self._directory / self.name)
        except (OSError, AttributeError):
            self.close()
            self.name = ""  # nobody can tell by a bell whether this process lives

    def heard(self) -> None:
        """Takes what was rung. Call when `fd` is readable."""
        if self.fd is not None:
            with contextlib.suppress(BlockingIOError):
                os.read(self.fd, 65536)

    def has_company(self) -> bool:
        """Whether another process has the journal open."""
        self._look_for_others()
        return bool(self._others)

    def is_alive(self, name: str) -> bool:
        """Whether the process that owns this bell lives; True where nobody can know."""
        if not name or self.fd is None or name == self.name:
            return True
        fd = self._open(name)
        if fd is None:
            return False
        os.close(fd)
        return True

    def ring_others(self) -> None:
        if self.fd is None:
            return
        self._look_for_others()
        for name, fd in list(self._others.items()):
            try:
                os.write(fd, b"\0")
            except BlockingIOError:
                pass  # it has been rung often enough
            except OSError:
                os.close(self._others.pop(name))
                self._bury(name)

    def close(self) -> None:
        for fd in (self.fd, self._own_writer, *self._others.values()):
            if fd is not None:
                os.close(fd)
        self.fd = self._own_writer = None
        self._others.clear()
        if self.name:
            self._bury(self.name)

    def _look_for_others(self) -> None:
        try:
            mtime_ns = self._directory.stat().st_mtime_ns
        except OSError:
            return
        if mtime_ns == self._seen_mtime_ns:
            return
        if time.time_ns() - mtime_ns > MTIME_TRUSTED_AFTER_NS:
            self._seen_mtime_ns = mtime_ns
        for path in self._directory.iterdir():
            name = path.name
            if name != self.name and name not in self._others and not name.startswith("."):
                fd = self._open(name)
                if fd is None:
                    self._bury(name)
                else:
                    self._others[name] = fd

    def _open(self, name: str) -> int | None:
        try:
            return os.open(self._directory / name, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # no such pipe, or nobody reads it
            return None

    def _bury(self, name: str) -> None:
        with contextlib.suppress(OSError):
            (self._directory / name).unlink()
