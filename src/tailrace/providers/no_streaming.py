"""Which routes are asked for whole answers, and when a stream that failed is reason to ask for one. What is remembered
is tried again after a while. Pure but for the clock it is given."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from tailrace.errors import PeerError, Permanent, ProviderError, StreamCut, TimedOut
from tailrace.providers.retry.route_order import MOVES_ON
from tailrace.providers.transport.port import CANNOT_CONNECT
from tailrace.values.error_texts import says

REPROBE_S = 3600.0  # a route that refuses to stream
FIRST_REPROBE_S = 60.0  # a route whose streams failed: that may pass, so it is tried sooner; doubled each time
SUSPECT_S = 600.0  # how long a stream that failed counts against its route
MAX_ROUTES = 1024  # remembered at once: clients name any model they like
_STATUSES = frozenset({400, 403, 404, 405, 406, 415, 422, 501})
_MAY_MEAN_THE_STREAM = frozenset({400, 405, 406, 415})
# A 400 by another name.
_MEANS_THE_REQUEST = frozenset(
    {"context_length_exceeded", "content_policy_violation", "model_not_found", "invalid_api_key", "insufficient_quota"}
)


def says_no_streaming(error: ProviderError) -> bool:
    """Whether the endpoint refused to stream, not the request as such. A refused `stream_options` does not count."""
    message = str(error).replace("stream_options", "")
    if "stream" not in message.lower() or not says("stream_refused", message):
        return False
    return isinstance(error, Permanent) or error.status in _STATUSES


def may_be_the_stream(error: ProviderError) -> bool:
    """Whether the same request might be answered if it asked for no stream. Not where nothing was reached, nor where a
    deadline passed, nor where the provider said "not now" or named the key, the model, the size or a field."""
    match error:
        case TimedOut():
            return False
        case StreamCut() | PeerError():
            return True
        case Permanent():
            if error.status not in _MAY_MEAN_THE_STREAM or error.code in _MEANS_THE_REQUEST:
                return False
            return not says("names_a_field", str(error))
        case _ if error.status is None:
            return error.code != CANNOT_CONNECT
        case _:
            return error.status >= 500 and error.status not in MOVES_ON


def better_error(streamed: ProviderError, whole: ProviderError) -> ProviderError:
    """The error of a request that was rejected as a stream and failed whole too: the second, where it says
    something."""
    is_bare = str(whole).removeprefix(f"{whole.provider}: ") == f"HTTP {whole.status}"
    return whole if isinstance(whole, Permanent) and not is_bare else streamed


class _Remembered(msgspec.Struct):
    """What is known of one route."""

    until: float = float("-inf")  # asked whole until then
    known_s: float = 0.0  # for how long it was asked whole the last time; 0: never
    suspected_until: float = float("-inf")  # its last stream failed before anything was shown


class NonStreamingRoutes:
    """Remembered per provider and model, for at most `reprobe_s`. Bounded: the oldest route is forgotten first."""

    def __init__(self, *, reprobe_s: float = REPROBE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._reprobe_s = reprobe_s
        self._clock = clock
        self.routes: dict[tuple[str, str], _Remembered] = {}  # empty nearly always: an attempt looks at it first

    def holds(self, provider: str, model: str) -> bool:
        """Whether the route is known not to stream."""
        known = self.routes.get((provider, model))
        return known is not None and self._clock() < known.until

    def is_suspect(self, provider: str, model: str, *, is_last: bool) -> bool:
        """Whether the next attempt should ask for a whole answer: the last stream failed, and this attempt is the last
        one there, or it was meant to find out."""
        known = self.routes.get((provider, model))
        if known is None or self._clock() >= known.suspected_until:
            return False
        return is_last or known.known_s > 0

    def suspect(self, provider: str, model: str) -> None:
        """A stream failed before anything was shown, in a way that a whole answer need not."""
        self._known(provider, model).suspected_until = self._clock() + min(SUSPECT_S, self._reprobe_s)

    def acquit(self, provider: str, model: str) -> None:
        """A whole answer failed as well: the stream is tried again."""
        if (known := self.routes.get((provider, model))) is not None:
            known.suspected_until = float("-inf")

    def remember(self, provider: str, model: str, *, refused: bool = True) -> None:
        """A whole answer came. `refused`: the provider said that it does not stream; else its streams only fail."""
        known = self._known(provider, model)
        seconds = self._reprobe_s if refused else max(FIRST_REPROBE_S, 2 * known.known_s)
        known.known_s = min(seconds, self._reprobe_s)
        known.until = self._clock() + known.known_s
        known.suspected_until = float("-inf")

    def forget(self, provider: str, model: str) -> None:
        """It streams, or it gives no whole answers."""
        self.routes.pop((provider, model), None)

    def _known(self, provider: str, model: str) -> _Remembered:
        known = self.routes.pop((provider, model), None) or _Remembered()
        if len(self.routes) >= MAX_ROUTES:
            del self.routes[next(iter(self.routes))]
        self.routes[provider, model] = known
        return known
