"""How processes that share one database file wake each other, and how they know which of them are dead.

Each process that has the journal open owns a named pipe in `<database>-pipes/`. After a commit the writer puts one byte
into the pipe of every other process. The kernel closes a pipe with its process, so one without a reader belongs to a
dead process. A pipe that is not there says nothing, so pipes of dead processes are kept for as long as a run names
them, and for a while. Where named pipes do not exist (Windows, some network mounts) `fd` is None: the journal polls,
and a dead owner is known by its lease alone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import threading
import time
from collections.abc import Collection
from pathlib import Path

from tailrace.system.private_files import give, make_private_directory

DEAD_KEPT_S = 600.0  # after the last wake-up of a process that is dead


def _has_no_reader(pipe: Path) -> bool:
    """False where that cannot be known."""
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as exc:
        return exc.errno == errno.ENXIO  # it is there and has no reader
    return False


class WakeupPipe:
    """The pipe of this process and the writing ends of the others. Any thread may wake peers; the loop reads.

    A commit does not look into the directory. A new process wakes all others once, and a process that was woken looks
    for new pipes and wakes them in return. So a commit made before a new process was known is not missed either.
    """

    def __init__(self, database: Path | None) -> None:
        """Without a database file there are no peers and no pipe."""
        self._lock = threading.Lock()
        self._peers: dict[str, int] = {}
        self.fd: int | None = None
        self._own_writer: int | None = None
        self.name = ""
        if database is None:
            return
        self._directory = database.with_name(database.name + "-pipes")
        self.name = f"{os.getpid()}-{secrets.token_hex(4)}"
        try:
            self._create()
        except (OSError, AttributeError):
            self.name = ""  # other processes must not judge by a pipe whether this one lives
        else:
            self.discover_peers()

    def _create(self) -> None:
        """Replaces the pipe, if there is one. Raises `OSError` and changes nothing where that cannot be done."""
        hidden = self._directory / f".{self.name}"  # under its own name a pipe without a reader would count as dead
        opened: list[int] = []
        try:
            make_private_directory(self._directory)
            self._directory.chmod(0o700)  # made by an earlier version, or by hand
            hidden.unlink(missing_ok=True)
            os.mkfifo(hidden, 0o600)
            opened.append(os.open(hidden, os.O_RDONLY | os.O_NONBLOCK))
            give(opened[0], self._directory)  # a service could not wake a command that root runs on its journal
            opened.append(os.open(hidden, os.O_WRONLY | os.O_NONBLOCK))  # without a writer it is at its end
            hidden.rename(self._directory / self.name)
        except BaseException:
            for fd in opened:
                os.close(fd)
            raise
        self._close_own()
        self.fd, self._own_writer = opened

    def reopen(self) -> None:
        """Makes the pipe again, under the same name. A peer that writes to the old one finds the new one instead.
        Raises `OSError` where it cannot be made: the old one stays open, so that this process does not look dead."""
        if self.name:
            with self._lock:
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
            names = self._names()
            for name in names - self._peers.keys() - {self.name}:
                self._connect(name)
        if self.name not in names:
            raise FileNotFoundError(f"{self._directory / self.name} was removed")

    def is_alive(self, name: str) -> bool:
        """Whether the process that owns this pipe lives; True where that cannot be known, as without such a pipe."""
        return not name or self.fd is None or name == self.name or not self._is_dead(name)

    def _is_dead(self, name: str) -> bool:
        return _has_no_reader(self._directory / name)

    def remove_dead(self, keep: Collection[str]) -> None:
        """Removes the pipes of dead processes, but for those that are needed to know that their processes are dead: a
        run names them, or they died so lately that something else may."""
        if self.fd is None:
            return
        long_ago = time.time() - DEAD_KEPT_S
        with contextlib.suppress(OSError):
            for name in self._names() - {*keep, self.name}:
                if self._is_dead(name) and (self._directory / name).stat().st_mtime < long_ago:
                    self._remove(name)

    def _names(self) -> set[str]:
        """The pipes but for those that are being made: they are hidden until they have a reader. Raises `OSError`."""
        return {path.name for path in self._directory.iterdir() if not path.name.startswith(".")}

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
            self._remove(self.name)

    def _close_own(self) -> None:
        for fd in (self.fd, self._own_writer):
            if fd is not None:
                os.close(fd)
        self.fd = self._own_writer = None

    def _connect(self, name: str) -> None:
        with contextlib.suppress(OSError):  # no such pipe, or it has no reader
            self._peers[name] = os.open(self._directory / name, os.O_WRONLY | os.O_NONBLOCK)
            self._wake(name)

    def _wake(self, name: str) -> None:
        try:
            os.write(self._peers[name], b"\0")
        except BlockingIOError:
            pass  # the pipe is full: its process will be woken
        except OSError:  # no reader: the process is dead, or it has made its pipe again
            os.close(self._peers.pop(name))
            self._connect(name)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(OSError):
            (self._directory / name).unlink()
