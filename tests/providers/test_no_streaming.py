"""Who does not stream: how a provider says so, and of how many routes it is remembered."""

from __future__ import annotations

import pytest

from tailrace.errors import Rejected, Unavailable
from tailrace.providers.no_streaming import MAX_ROUTES, NonStreamingRoutes, says_no_streaming


def test_the_newest_routes_are_remembered_and_no_more_than_so_many() -> None:
    routes = NonStreamingRoutes(clock=lambda: 0.0)
    for number in range(MAX_ROUTES + 10):
        routes.remember("p", f"model-{number}")
    assert not routes.holds("p", "model-9")
    assert routes.holds("p", "model-10")
    assert routes.holds("p", f"model-{MAX_ROUTES + 9}")


@pytest.mark.parametrize(
    ("message", "status", "refused"),
    [
        ("Streaming is not supported for this model", 400, True),
        ("Unsupported value: 'stream' does not support true with this model.", 400, True),
        ("Your organization must be verified to stream this model.", 400, True),
        ("stream=true is not allowed", 422, True),
        ("This endpoint cannot stream", 501, True),
        ("Unknown field stream_options is not supported", 400, False),
        ("Tools are not supported", 400, False),
        ("the upstream is not available", 503, False),
        ("invalid api key", 401, False),
    ],
)
def test_what_says_that_streaming_is_not_supported(message: str, status: int, refused: bool) -> None:
    error = (Rejected if status < 500 else Unavailable)(message, status=status)
    assert says_no_streaming(error) is refused
