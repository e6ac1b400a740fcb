"""The answer to an approval, by one key: what each key means, how long there is, and which keys count.

Pure, but for the clock. A key that was meant for the message that the user was typing must not approve anything: keys
count when the menu has stood on the screen for a moment, no key was pressed in that time, and the screen shows that
they count. No key is lost: one that decides nothing is part of the message.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Literal

from tailrace.cli.screen.painter import Rows
from tailrace.events import ApprovalAsked, Decision

ARMED_AFTER_S: Final = 0.5
OWN_WORD_S: Final = 1.0  # between two letters of the word whose first one was the answer
WHY_KEY: Final = "w"
# The key, the decision, and what it covers. An approval is bound to the command, its directory and the requester.
CHOICES: Final[tuple[tuple[str, Decision, str], ...]] = (
    ("o", "once", "this time only"),
    ("s", "session", "exactly this, here, until this session ends"),
    ("a", "always", "exactly this, here, from now on"),
    ("d", "deny", "not now; the model is told"),
)
_BY_KEY: Final = {key: decision for key, decision, _ in CHOICES}
Pressed = Literal["answer", "why", "draft", "nothing"]


class ApprovalMenu:
    """Open while a question waits for its answer. `clock` is monotonic, in seconds."""

    def __init__(
        self, clock: Callable[[], float], timeout_s: float, *, wall_clock: Callable[[], float] = time.time
    ) -> None:
        """`timeout_s` holds for a question that does not say when it expires."""
        self._clock = clock
        self._wall_clock = wall_clock
        self._timeout_s = timeout_s
        self.asked: ApprovalAsked | None = None
        self.gives_reason = False  # the input line takes the reason of a denial
        self.decision: Decision | None = None  # the key that was pressed, until the log has the answer
        self._ends_at = 0.0
        self._quiet_since = 0.0
        self._drawn_at: float | None = None  # when it first stood on the screen
        self._painted_bright = False  # the last rows say that the keys count
        self._bright = False  # and they are on the screen
        self._rest, self._rest_until = "", 0.0  # of the word whose first letter was the answer

    # ── its life ─────────────────────────────────────────────────────────────────────────────────────────────

    def open(self, asked: ApprovalAsked) -> None:
        self.asked, self.gives_reason, self.decision = asked, False, None
        now = self._clock()
        self._drawn_at, self._bright = None, False
        left_s = asked.expires_at - self._wall_clock() if asked.expires_at else self._timeout_s
        self._ends_at = now + left_s

    def close(self) -> None:
        self.asked, self.gives_reason, self.decision = None, False, None

    # ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────

    def key_was_pressed(self) -> None:
        """Any key, whether or not the menu is open."""
        self._quiet_since = self._clock()
        self._bright = False

    @property
    def is_armed(self) -> bool:
        return self._bright and self._has_stood

    @property
    def _has_stood(self) -> bool:
        if self._drawn_at is None:
            return False
        return self._clock() - max(self._drawn_at, self._quiet_since) >= ARMED_AFTER_S

    def press(self, key: str) -> Pressed:
        """What this key does while the menu is open. "draft": it belongs to the message that was being typed."""
        if self.swallows(key):
            return "nothing"
        if self.decision is not None or not self.is_armed:
            self.key_was_pressed()
            return "draft"
        self.key_was_pressed()
        word = key.lower()
        if word == WHY_KEY:
            self.gives_reason = True
            return "why"
        if (decision := _BY_KEY.get(word)) is None:
            return "draft"
        self.decision = decision
        self._rest, self._rest_until = decision[1:] + "\r", self._clock() + OWN_WORD_S
        return "answer"

    def swallows(self, key: str) -> bool:
        """Drops the remaining letters of an answer that is typed as a word: its first key has decided."""
        if self._clock() >= self._rest_until or key.lower() != self._rest[:1]:
            self._rest = ""
            return False
        self._rest, self._rest_until = self._rest[1:], self._clock() + OWN_WORD_S
        return True

    @property
    def has_rest(self) -> bool:
        """Whether the next key may be a remaining letter of a typed answer, whose first key decided."""
        return bool(self._rest)

    def back(self) -> None:
        """From the reason, or from an answer that was not taken, to the choices."""
        self.gives_reason, self.decision = False, None

    # ── what is shown ────────────────────────────────────────────────────────────────────────────────────────

    @property
    def seconds_left(self) -> int:
        return max(0, round(self._ends_at - self._clock()))

    def was_drawn(self) -> None:
        """The frame with the last `rows`, or without the menu, is on the screen."""
        if self.asked is not None:
            self._drawn_at = self._clock() if self._drawn_at is None else self._drawn_at
            self._bright = self._painted_bright

    def rows(self) -> Rows:
        self._painted_bright = bright = self._has_stood
        left = f"{self.seconds_left} s left, then it is denied"
        if self.decision is not None:
            return Rows(((("", ""),), ((f"{self.decision} …", "yellow"),)))
        if self.gives_reason:
            said = "Why not? The model is told what you write. Enter denies, Esc goes back."
            return Rows(((("", ""),), ((said, "yellow"),), ((left, "dim"),)))
        rows = [
            (
                (f" {key} ", "bold reverse" if bright else "dim"),
                (f" {decision:<9}", "bold" if bright else "dim"),
                (what, "dim"),
            )
            for key, decision, what in CHOICES
        ]
        why = (
            (f" {WHY_KEY} ", "bold reverse" if bright else "dim"),
            (" why      ", "bold" if bright else "dim"),
            ("deny, and say why", "dim"),
        )
        seconds = self.seconds_left
        return Rows(((("", ""),), *rows, why, ((left, "bold red" if seconds <= 10 else "yellow"),)))
