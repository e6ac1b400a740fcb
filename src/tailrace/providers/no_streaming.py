"""Who does not stream: told from what an endpoint says, remembered for a while, asked again later."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from tailrace.errors import Permanent, ProviderError

REPROBE_S = 3600.0
_REFUSED = re.compile(
    r"not (?:be )?(?:support|allow|availab|enabl|implement|permit)|unsupported|n.t support|disabled|"
    r"must be (?:false|verified)|cannot (?:be )?stream|without stream",
    re.IGNORECASE,
)
_STATUSES = frozenset({400, 403, 404, 405, 406, 415, 422, 501})


def says_no_streaming(error: ProviderError) -> bool:
    """The endpoint refused to stream, as opposed to refusing the request. `stream_options` is another matter."""
    message = str(error).replace("stream_options", "")
    if not re.search(r"stream", message, re.IGNORECASE) or not _REFUSED.search(message):
        return False
    return isinstance(error, Permanent) or error.status in _STATUSES


class NonStreamingRoutes:
    """Per provider and model, until `reprobe_s` have passed."""

    def __init__(self, *, reprobe_s: float = REPROBE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._reprobe_s = reprobe_s
        self._clock = clock
        self._until: dict[tuple[str, str], float] = {}

    def remember(self, provider: str, model: str) -> None:
        self._until[provider, model] = self._clock() + self._reprobe_s

    def holds(self, provider: str, model: str) -> bool:
        until = self._until.get((provider, model))
        if until is None:
            return False
        if self._clock() < until:
            return True
        del self._until[provider, model]
        return False
