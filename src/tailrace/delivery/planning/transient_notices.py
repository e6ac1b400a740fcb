"""Notices that hold for a while: the process restarts, the run has shown nothing new for minutes.

Pure. They belong to no entry of the log, so that they never change the order or the keys of its slots. A notice is
edited in place where messages can be edited, and deleted once something else was shown where messages can be deleted.
On other platforms each one is a message, and further ones come at growing intervals.
"""

from __future__ import annotations

from tailrace.delivery.planning.outline import NoteSlot, Outline
from tailrace.delivery.planning.presenter import Presenter, long_run_notice, restart_notice
from tailrace.delivery.planning.state import DeliveryState
from tailrace.events import GatewayNotice

LONG_RUN_S = 180.0  # without anything new, after which the chat is told that the run goes on
UPDATE_S = 60.0  # between two edits of that notice
_PREFIX = "p"


class TransientNotices:
    def __init__(self, outline: Outline, state: DeliveryState, presenter: Presenter) -> None:
        self.slots: list[NoteSlot] = []
        self._outline, self._state, self._presenter = outline, state, presenter
        self._edits = state.capabilities.edits
        self._note: NoteSlot | None = None  # the one that holds now
        self._left: NoteSlot | None = None  # the last one of another process
        self._news_at = 0.0
        self._next_at: float | None = None  # when the run will have been silent for so long that it is said

    def restore(self) -> None:
        """Adopts the notices that another process has sent: they are deleted, the last one once it is known whether it
        is edited instead."""
        left = [NoteSlot(key, "") for key in self._state.chains if is_transient(key)]
        self._left = left.pop() if left and self._edits else None
        self.slots = left

    def suspend(self) -> None:
        """The process is about to end, and the chat shows nothing that could say so."""
        self._say(restart_notice())

    def news(self, now: float) -> None:
        """Something else was shown."""
        self._news_at, self._next_at = now, now + LONG_RUN_S
        self._withdraw()

    def due(self, now: float, *, idle: bool) -> float:
        """Adds the notice that is due, and returns when to ask again. `idle`: the run goes on, the chat waits for it,
        and no shown text is growing."""
        if self._next_at is None:
            self._news_at, self._next_at = now, now + LONG_RUN_S
        if not idle:
            self._withdraw()
            self._next_at = max(self._next_at, now + LONG_RUN_S)
            return float("inf") if self._outline.finished is not None else self._next_at
        if now >= self._next_at:
            silent_s = now - self._news_at
            self._say(long_run_notice(silent_s, self._outline.activity))
            self._next_at = now + (UPDATE_S if self._edits else silent_s)
        return self._next_at

    def _withdraw(self) -> None:
        self._take_up_left()
        for slot in self.slots:
            slot.text = ""
        self._note = None

    def _take_up_left(self) -> None:
        if self._left is not None:
            self._note, self._left = self._left, None
            self.slots.append(self._note)

    def _say(self, notice: GatewayNotice) -> None:
        text = self._presenter.notice(notice.kind, notice.text, notice.extra)
        if not text:
            return
        self._take_up_left()
        if self._note is not None and self._edits:
            self._note.text, self._note.kind = text, notice.kind
            return
        number = sum(1 for key in self._state.chains if is_transient(key))
        self._note = NoteSlot(f"{_PREFIX}{max(number, len(self.slots))}", text, notice.kind)
        self.slots.append(self._note)


def is_transient(key: str) -> bool:
    """Whether a slot with this key is a transient notice."""
    return key.startswith(_PREFIX) and key[len(_PREFIX) :].isdigit()
