"""The tasks of this process that wait for the next run of a session. Owns waking, nothing else: they read storage."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from weakref import WeakValueDictionary

from tailrace.journal.waiters import Waiters


class WatchedSession(Waiters):
    """Woken when the session may have another run."""

    __slots__ = ("mark", "newest")

    def __init__(self, mark: str) -> None:
        super().__init__()
        self.mark = mark
        self.newest = ""  # the newest run that was read from storage


def mark_of(session: str) -> str:
    """The name of a session in wake-ups between processes: short and of plain characters."""
    return hashlib.blake2b(session.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


class SessionWatch:
    """Costs nothing while no task waits."""

    def __init__(self) -> None:
        self._watched: WeakValueDictionary[str, WatchedSession] = WeakValueDictionary()  # its tasks keep each alive

    @property
    def names(self) -> list[str]:
        """The sessions that are watched."""
        return list(self._watched) if self._watched else []

    def watch(self, session: str) -> WatchedSession:
        if (watched := self._watched.get(session)) is None:
            watched = self._watched[session] = WatchedSession(mark_of(session))
        return watched

    def on_created(self, session: str) -> None:
        """A run of this session was created in this process."""
        if session and (watched := self._watched.get(session)) is not None:
            watched.wake()

    def on_notify(self, marks: Collection[str] | None) -> None:
        """Another process has created runs of the sessions with these marks; None stands for all."""
        for watched in list(self._watched.values()):
            if marks is None or watched.mark in marks:
                watched.wake()

    def on_poll(self, newest: Mapping[str, str]) -> None:
        """Storage was read: the newest run of each of these sessions."""
        for session, run_id in newest.items():
            watched = self._watched.get(session)
            if watched is not None and watched.newest != run_id:
                watched.newest = run_id
                watched.wake()
