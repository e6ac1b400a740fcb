"""How the model calls of a turn go: which model is asked, which try it is, and what there is to say where it fails.

Pure but for the wall clock: changes of a run's view in, text out.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple

from tailrace.app.error_advice import failure_text
from tailrace.cli.screen.sanitize import sanitized_line
from tailrace.events import RunFailure, RunFinished
from tailrace.runs.view import changes
from tailrace.runs.view.changes import Change


class FailureWords(NamedTuple):
    """What happened, and what to do next; the second may be empty."""

    what: str
    advice: str


Advise = Callable[[RunFailure, str], str]
"""The failure and the provider's name to what to do next."""


class CallProgress:
    """`max_tries` says how often a provider is asked. `wall_clock` gives seconds since the epoch."""

    def __init__(
        self, max_tries: Callable[[str], int], advise: Advise, *, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._max_tries = max_tries
        self._advise = advise
        self._wall_clock = wall_clock
        self._began_at = 0.0  # the turn, by the wall clock
        self._forget_call()

    def _forget_call(self) -> None:
        self._route = ("", "")  # the provider and model that are asked
        self._tries = 0  # of the call
        self._tries_there = 0  # at that provider and model
        self._reason = ""  # why the last try failed, until the next begins
        self._retry_at: float | None = None  # when that is, where the provider has said so

    def note(self, change: Change) -> None:
        match change:
            case changes.RunBegan(started=started):  # the turn before may have failed in the middle of a call
                self._began_at = started.at
                self._forget_call()
            case changes.AttemptBegan(asked=asked):
                route = (asked.provider, asked.model)
                self._tries_there = self._tries_there + 1 if route == self._route else 1
                self._tries += 1
                self._route, self._reason = route, ""
            case changes.TextWithdrawn(discarded=True, reason=reason, retry_at=retry_at):
                self._reason, self._retry_at = reason, retry_at
            case changes.MessageJoined(message=message) if message.role == "assistant":
                self._forget_call()
            case _:
                pass

    @property
    def model(self) -> str:
        """The model that is asked, as `provider/model`; empty where none is."""
        return "/".join(filter(None, self._route))

    @property
    def is_between_tries(self) -> bool:
        return bool(self._reason)

    @property
    def status(self) -> str:
        """Empty while the first try of a call goes well."""
        provider, model = self._route
        most = self._max_tries(provider) if provider else 1
        if self._reason:
            left_s = math.ceil((self._retry_at or 0) - self._wall_clock())
            when = f"in {left_s} s" if left_s > 0 else "follows"
            follows = f"try {self._tries_there + 1} of {most} {when}" if self._tries_there < most else "trying on"
            return sanitized_line(f"{self._reason} · {follows}", 150)
        if self._tries_there > 1:
            return f"try {self._tries_there} of {most}"
        if self._tries > 1:
            return sanitized_line(f"asking {provider}/{model} instead", 150)
        return ""

    def failure(self, finished: RunFinished) -> FailureWords | None:
        """None for a run that did not fail."""
        if (error := finished.error) is None:
            return None
        provider, _ = self._route
        took_s = max(0.0, finished.at - self._began_at)
        what = failure_text(error, model=self.model if provider else "", tries=self._tries, took_s=took_s)
        return FailureWords(sanitized_line(what, 2000), sanitized_line(self._advise(error, provider), 300))
