from __future__ import annotations

from tailrace.providers.no_streaming import MAX_ROUTES, NonStreamingRoutes


def test_the_newest_routes_are_remembered_and_no_more_than_so_many() -> None:
    routes = NonStreamingRoutes(clock=lambda: 0.0)
    for number in range(MAX_ROUTES + 10):
        routes.remember("p", f"model-{number}")
    assert not routes.holds("p", "model-9")
    assert routes.holds("p", "model-10")
    assert routes.holds("p", f"model-{MAX_ROUTES + 9}")
