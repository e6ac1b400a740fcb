"""Which routes do not stream: recognised by the error, remembered for a while, then tried again."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from tailrace.errors import Permanent, ProviderError

REPROBE_S = 3600.0
MAX_ROUTES = 1024  # clients choose the names of models
_REFUSED = re.compile(
    r"not (?:be )?(?:support|allow|availab|enabl|implement|permit)|unsupported|n.t support|disabled|"
    r"must be (?:false|verified)|cannot (?:be )?stream|without stream",
    re.IGNORECASE,
)
_STATUSES = frozenset({400, 403, 404, 405, 406, 415, 422, 501})


def says_no_streaming(error: ProviderError) -> bool:
    """Whether the endpoint refused to stream, not the request as such. A refused `stream_options` does not count."""
    message = str(error).replace("stream_options", "")
    if not re.search(r"stream", message, re.IGNORECASE) or not _REFUSED.search(message):
        return False
    return isinstance(error, Permanent) or error.status in _STATUSES


class NonStreamingRoutes:
    """Remembered per provider and model, until `reprobe_s` have passed."""

    def __init__(self, *, reprobe_s: float = REPROBE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._reprobe_s = reprobe_s
        self._clock = clock
        self._until: dict[tuple[str, str], float] = {}

    def remember(self, provider: str, model: str) -> None:
        self._until.pop((provider, model), None)
        self._until[provider, model] = self._clock() + self._reprobe_s
        if len(self._until) > MAX_ROUTES:
            del self._until[next(iter(self._until))]

    def holds(self, provider: str, model: str) -> bool:
        until = self._until.get((provider, model))
        if until is None:
            return False
        if self._clock() < until:
            return True
        del self._until[provider, model]
        return False
