"""The answer to an approval, by one key: what each key means, how long there is, and which keys count.

Pure, but for the clock. A key that was meant for the message that the user was typing must not approve anything: keys
count when the menu has stood on the screen for a moment, no key was pressed in that time, and the screen shows that
they count. The time until it is drawn is no part of that moment: a busy machine may draw late. Nor may a key that was
meant for the menu begin a message, where the question was answered elsewhere just before.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final, Literal

from tailrace.cli.screen.painter import Rows
from tailrace.events import ApprovalAsked, Decision

ARMED_AFTER_S: Final = 0.5
WHY_KEY: Final = "w"
# The key, the decision, and what it covers. An approval is bound to the command, its directory and the requester.
CHOICES: Final[tuple[tuple[str, Decision, str], ...]] = (
    ("o", "once", "this time only"),
    ("s", "session", "exactly this, here, until this session ends"),
    ("a", "always", "exactly this, here, from now on"),
    ("d", "deny", "not now; the model is told"),
)
_BY_KEY: Final = {key: decision for key, decision, _ in CHOICES}
_WORDS: Final = {**_BY_KEY, WHY_KEY: "why"}
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
        self._astray = False  # the last key meant nothing, and those that follow it at once mean nothing either
        self._rest = ""  # of the word whose first letter was the answer: who types it out means no message by it
        self._late_until = 0.0  # a key of an answer was meant for the menu that is gone; infinite until that is seen

    # ── its life ─────────────────────────────────────────────────────────────────────────────────────────────

    def open(self, asked: ApprovalAsked) -> None:
        self.asked, self.gives_reason, self.decision = asked, False, None
        now = self._clock()
        self._drawn_at, self._bright, self._astray = None, False, False
        left_s = asked.expires_at - self._wall_clock() if asked.expires_at else self._timeout_s
        self._ends_at = now + left_s

    def close(self) -> None:
        if self.asked is not None and self.decision is None and not self.gives_reason and self.is_armed:
            self._late_until = math.inf
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
        if self.decision is not None:
            return "nothing" if self.swallows(key) else "draft"
        if not self.is_armed:
            if self.swallows(key):
                return "nothing"
            self.key_was_pressed()
            return "nothing" if self._astray else "draft"
        self._astray = False
        word = key.lower()
        if word == WHY_KEY:
            self.gives_reason = True
            return "why"
        if (decision := _BY_KEY.get(word)) is None:
            self._astray = True  # a word that is typed without looking: its other letters mean nothing
            self.key_was_pressed()
            return "nothing"
        self.decision, self._rest = decision, f"{decision[1:]}\r"
        self.key_was_pressed()
        return "answer"

    def swallows(self, key: str) -> bool:
        """Whether this key comes too late for an answer, or only ends the word that the answer's key began."""
        late, self._late_until = self._clock() < self._late_until, 0.0
        if late and (word := _WORDS.get(key.lower())):
            self._rest = f"{word[1:]}\r"
            self.key_was_pressed()
            return True
        if self._rest and key == self._rest[0] and self._clock() - self._quiet_since < 2 * ARMED_AFTER_S:
            self._rest = self._rest[1:]
            self.key_was_pressed()
            return True
        self._rest = ""
        return False

    @property
    def may_swallow(self) -> bool:
        return bool(self._rest) or self._clock() < self._late_until

    def back(self) -> None:
        """From the reason, or from an answer that was not taken, to the choices."""
        self.gives_reason, self.decision = False, None

    # ── what is shown ────────────────────────────────────────────────────────────────────────────────────────

    @property
    def seconds_left(self) -> int:
        return max(0, round(self._ends_at - self._clock()))

    def was_drawn(self) -> None:
        """The frame with the last `rows`, or without the menu, is on the screen."""
        if self._late_until == math.inf:
            self._late_until = self._clock() + ARMED_AFTER_S
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
