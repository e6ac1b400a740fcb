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
import threading
from pathlib import Path


class WakeupPipe:
    """This process's bell and its way to ring the others'. Any thread may ring; the loop listens.

    Nobody looks into the directory at every commit: a newcomer rings all the others once, and whoever is rung looks
    for newcomers and rings them back. So a commit that came before the newcomer was known is not missed either.
    """

    def __init__(self, database: Path) -> None:
        self._directory = database.with_name(database.name + "-bells")
        self._lock = threading.Lock()
        self._peers: dict[str, int] = {}
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
            return
        self._discover_peers()

    def drain(self) -> None:
        """Takes what was rung. Call when `fd` is readable."""
        if self.fd is not None:
            with contextlib.suppress(BlockingIOError):
                os.read(self.fd, 65536)
            self._discover_peers()

    @property
    def has_peers(self) -> bool:
        """Whether another process has the journal open."""
        return bool(self._peers)

    def is_alive(self, name: str) -> bool:
        """Whether the process that owns this bell lives; True where nobody can know."""
        if not name or self.fd is None or name == self.name:
            return True
        fd = self._open(name)
        if fd is None:
            return False
        os.close(fd)
        return True

    def wake_peers(self) -> None:
        if self._peers:
            with self._lock:
                self._wake(list(self._peers))

    def close(self) -> None:
        for fd in (self.fd, self._own_writer, *self._peers.values()):
            if fd is not None:
                os.close(fd)
        self.fd = self._own_writer = None
        self._peers.clear()
        if self.name:
            self._remove_dead_pipe(self.name)

    def _discover_peers(self) -> None:
        with self._lock:
            names = {path.name for path in self._directory.iterdir() if not path.name.startswith(".")}
            for name in names - self._peers.keys() - {self.name}:
                fd = self._open(name)
                if fd is None:
                    self._remove_dead_pipe(name)
                else:
                    self._peers[name] = fd
                    self._wake([name])

    def _wake(self, names: list[str]) -> None:
        for name in names:
            try:
                os.write(self._peers[name], b"\0")
            except BlockingIOError:
                pass  # it has been rung often enough
            except OSError:  # nobody reads it any more
                os.close(self._peers.pop(name))
                self._remove_dead_pipe(name)

    def _open(self, name: str) -> int | None:
        try:
            return os.open(self._directory / name, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # no such pipe, or nobody reads it
            return None

    def _remove_dead_pipe(self, name: str) -> None:
        with contextlib.suppress(OSError):
            (self._directory / name).unlink()
