"""How processes that share one database file wake each other, and how they know which of them are dead.

Each process that has the journal open owns a named pipe in `<database>-bells/`. After a commit the writer puts one
byte into the pipe of every other process, so a viewer in another process need not poll. The kernel closes a pipe with
its process, however that process died. A pipe without a reader therefore belongs to a dead process: no heartbeat is
needed, and no process id that may have been reused.

Where named pipes do not exist (Windows, some network mounts) `fd` is None: the journal polls, and a dead owner is known
by its lease alone.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from pathlib import Path


class WakeupPipe:
    """The pipe of this process and the writing ends of the others. Any thread may wake peers; the loop reads.

    A commit does not look into the directory. A new process wakes all others once, and a process that was woken looks
    for new pipes and wakes them in return. So a commit made before a new process was known is not missed either.
    """

    def __init__(self, database: Path) -> None:
        self._directory = database.with_name(database.name + "-bells")
        self._lock = threading.Lock()
        self._peers: dict[str, int] = {}
        self.name = f"{os.getpid()}-{secrets.token_hex(4)}"
        self.fd: int | None = None
        self._own_writer: int | None = None
        if self._create():
            self.discover_peers()
        else:
            self.name = ""  # other processes must not judge by a pipe whether this one lives

    def _create(self) -> bool:
        hidden = self._directory / f".{self.name}"  # under its own name a pipe without a reader would count as dead
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            os.mkfifo(hidden, 0o600)
            self.fd = os.open(hidden, os.O_RDONLY | os.O_NONBLOCK)
            self._own_writer = os.open(hidden, os.O_WRONLY | os.O_NONBLOCK)  # without a writer it is at its end
            hidden.rename(self._directory / self.name)
        except (OSError, AttributeError):
            self._close_own()
            return False
        return True

    def reopen(self) -> None:
        """Makes the pipe again, under the same name. A peer that writes to the old one finds the new one instead."""
        if self.name:
            with self._lock:
                self._close_own()
                self._create()

    def drain(self) -> None:
        """Empties the pipe. Call when `fd` is readable."""
        if self.fd is not None:
            with contextlib.suppress(BlockingIOError):
                os.read(self.fd, 65536)

    def discover_peers(self) -> None:
        """Finds and wakes processes that came since. Raises `OSError` where this pipe or its directory is gone."""
        if self.fd is None:
            return
        with self._lock:
            names = {path.name for path in self._directory.iterdir() if not path.name.startswith(".")}
            for name in names - self._peers.keys() - {self.name}:
                self._connect(name)
        if self.name not in names:
            raise FileNotFoundError(f"{self._directory / self.name} was removed")

    @property
    def has_peers(self) -> bool:
        """Whether another process has the journal open."""
        return bool(self._peers)

    def is_alive(self, name: str) -> bool:
        """Whether the process that owns this pipe lives; True where that cannot be known."""
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
                for name in list(self._peers):
                    self._wake(name)

    def close(self) -> None:
        self._close_own()
        for fd in self._peers.values():
            os.close(fd)
        self._peers.clear()
        if self.name:
            self._remove_dead_pipe(self.name)

    def _close_own(self) -> None:
        for fd in (self.fd, self._own_writer):
            if fd is not None:
                os.close(fd)
        self.fd = self._own_writer = None

    def _connect(self, name: str) -> None:
        fd = self._open(name)
        if fd is None:
            self._remove_dead_pipe(name)
        else:
            self._peers[name] = fd
            self._wake(name)

    def _wake(self, name: str) -> None:
        try:
            os.write(self._peers[name], b"\0")
        except BlockingIOError:
            pass  # the pipe is full: its process will be woken
        except OSError:  # no reader: the process is dead, or it has made its pipe again
            os.close(self._peers.pop(name))
            self._connect(name)

    def _open(self, name: str) -> int | None:
        try:
            return os.open(self._directory / name, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # no such pipe, or it has no reader
            return None

    def _remove_dead_pipe(self, name: str) -> None:
        with contextlib.suppress(OSError):
            (self._directory / name).unlink()
