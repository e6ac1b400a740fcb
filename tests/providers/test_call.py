"""Groups D and E over real sockets: how a call ends, what it retries, when it waits and whom it asks next.

Time is driven: deadlines of minutes pass in milliseconds.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from providers.faulty_calls import ASK, DIALECTS, Told, faulty
from tailrace.errors import PeerError, Permanent, ProviderError, Rejected, Retryable, StreamCut, Unavailable
from tailrace.messages import AnyDelta, Dialect
from tailrace.providers.attempt import StopCall
from tailrace.providers.call import Caller
from tailrace.providers.call_listener import CallMiddleware, ForwardingListener
from tailrace.providers.no_streaming import NonStreamingRoutes
from tailrace.testing.clock import driven
from tailrace.testing.provider.names import HUGE_RETRY_AFTER_S

OK = "The mill wheel turns, and the tailrace carries the water on. Nothing is lost on the way."
ONCE: Any = {"max_attempts": 1}


def now() -> float:
    return asyncio.get_running_loop().time()


# ── how it ends ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("scenario", ["ok+no-ending", "ok+end@50%", "ok+cut@50%", "ok+reset@50%"])
async def test_D48_D57_no_terminal_event_is_retried(dialect: Dialect, scenario: str) -> None:
    async with faulty(scenario) as bench:
        result = await bench.call(bench.route(dialect), told=(told := Told()))
        assert (result.completion.text, result.incomplete) == (OK, None)
        assert isinstance(result.attempts[0].error, Retryable)
        assert result.attempts[0].error.kind == "retryable"
        assert told.text == OK


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_D48_a_cut_is_said_to_be_one(dialect: Dialect) -> None:
    async with faulty("empty+end@0") as bench:
        with pytest.raises(StreamCut):
            await bench.call(bench.route(dialect, **ONCE))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("framing", ["", "+content-length", "+crlf", "+gzip"])
async def test_A15_a_whole_terminal_event_without_its_blank_line_is_not_paid_for_twice(
    dialect: Dialect, framing: str
) -> None:
    async with faulty(f"ok+no-last-blank{framing}") as bench:
        result = await bench.call(bench.route(dialect), told=(told := Told()))
        assert (result.completion.text, told.text) == (OK, OK)
        assert len(bench.server.requests) == 1


async def test_D49_done_without_a_finish_reason_is_complete() -> None:
    async with faulty("ok+no-finish-reason") as bench:
        result = await bench.call(bench.route())
        assert (result.completion.text, len(result.attempts)) == (OK, 1)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("kind", "status", "error"),
    [
        ("overloaded", (503, 529), Unavailable),
        ("rate-limit", (429,), Unavailable),
        ("server", (500,), Unavailable),
        ("invalid", (400,), Rejected),
        ("auth", (401,), Rejected),
    ],
)
async def test_D50_D51_an_error_in_the_stream_is_typed_by_what_it_is_called(
    dialect: Dialect, kind: str, status: tuple[int, ...], error: type[ProviderError]
) -> None:
    async with faulty(f"ok+error-{kind}") as bench:
        result = await bench.call(bench.route(dialect, **ONCE), told=Told("keep"))
        assert result.incomplete is not None
        assert type(result.incomplete.error) is error
        assert result.incomplete.error.status in status
        assert OK.startswith(result.completion.text)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_D52_an_error_as_the_first_event_has_a_status_to_pass_on(dialect: Dialect) -> None:
    async with faulty("first-error-rate-limit") as bench:
        with pytest.raises(Unavailable) as caught:
            await bench.call(bench.route(dialect, **ONCE))
        assert caught.value.status == 429


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("code", [400, 401, 403, 404, 413, 422])
async def test_D53_what_will_fail_again_is_not_retried(dialect: Dialect, code: int) -> None:
    async with faulty() as bench:
        with pytest.raises(Rejected) as caught:
            await bench.call(bench.route(dialect, model=f"status-{code}"))
        assert (caught.value.status, caught.value.tried) == (code, ("faulty",))
        assert len(bench.server.requests) == 1


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("code", [408, 409, 429, 500, 502, 503, 529])
@driven
async def test_what_may_pass_is_retried(dialect: Dialect, code: int) -> None:
    async with faulty(f"status-{code}", f"status-{code}-html") as bench:
        result = await bench.call(bench.route(dialect))
        assert result.completion.text == OK
        assert [getattr(attempt.error, "status", None) for attempt in result.attempts] == [code, code, None]


async def test_D54_an_empty_completed_keeps_what_was_accumulated() -> None:
    async with faulty("ok+empty-completed") as bench:
        assert (await bench.call(bench.route("responses"))).completion.text == OK


async def test_D55_an_item_that_was_never_added_is_created() -> None:
    async with faulty("tools+no-item-added") as bench:
        result = await bench.call(bench.route("responses"))
        assert [call.name for call in result.completion.tool_calls] == ["get_weather"]


async def test_D56_incomplete_is_not_success() -> None:
    async with faulty("length", "error-server") as bench:
        assert (await bench.call(bench.route("responses"))).completion.stop == "length"
        cut = await bench.call(bench.route("responses", **ONCE))
        assert cut.incomplete is not None


async def test_D58_what_follows_the_finish_reason_is_read() -> None:
    async with faulty("ok+late-text") as bench:
        result = await bench.call(bench.route("chat"))
        assert result.completion.text == OK
        assert result.completion.usage.output_tokens


# ── retries and fail-over ────────────────────────────────────────────────────────────────────────────────────


@driven
async def test_attempts_are_spaced_and_bounded() -> None:
    async with faulty() as bench:
        began, told = now(), Told()
        with pytest.raises(Unavailable):
            await bench.call(bench.route(model="status-500", max_attempts=4, backoff_s=1.0), told=told)
        at = [request.received_at - began for request in bench.server.requests]
        gaps = [later - sooner for sooner, later in pairwise(at)]
        assert len(at) == 4
        for gap, full in zip(gaps, (1.0, 2.0, 4.0), strict=True):
            assert full / 2 <= gap <= full + 0.01
        assert [fact[0] for fact in told.facts] == ["started", "discarded"] * 4


@pytest.mark.parametrize(
    ("status", "least", "most"),
    [("status-429-after-7", 7.0, 7.8), ("status-503-after-date-20", 18.0, 22.1), ("status-429", 0.25, 0.6)],
)
@driven
async def test_E66_retry_after_is_honoured_within_reason(status: str, least: float, most: float) -> None:
    async with faulty(status) as bench:
        began = now()
        result = await bench.call(bench.route())
        assert result.completion.text == OK
        assert least <= now() - began <= most


@driven
async def test_K139_a_wait_that_is_too_long_is_not_waited_out() -> None:
    async with faulty("status-429-after-huge") as bench:
        began = now()
        with pytest.raises(Unavailable) as caught:
            await bench.call(bench.route())
        assert now() - began < 1
        assert caught.value.retry_after_s == HUGE_RETRY_AFTER_S
        assert len(bench.server.requests) == 1


@pytest.mark.parametrize("code", [429, 503, 529])
@driven
async def test_not_now_moves_on_at_once(code: int) -> None:
    async with faulty(f"status-{code}-after-20") as bench:
        began = now()
        result = await bench.call(bench.route("chat", "first"), bench.route("anthropic", "second"))
        assert now() - began < 0.01
        assert (result.tried, result.provider, result.completion.dialect) == (
            ("first", "second"),
            "second",
            "anthropic",
        )


@driven
async def test_after_everyone_said_not_now_the_first_is_asked_again() -> None:
    async with faulty("status-429-after-9", "status-401", "ok") as bench:
        began = now()
        result = await bench.call(bench.route(name="first"), bench.route(name="second"))
        assert [attempt.provider for attempt in result.attempts] == ["first", "second", "first"]
        assert result.tried == ("first", "second")
        assert 9 <= now() - began < 10


@driven
async def test_a_failure_that_may_pass_is_retried_before_anyone_else_is_asked() -> None:
    async with faulty("status-500", "ok+cut@0", "status-502", "ok") as bench:
        result = await bench.call(bench.route(name="first"), bench.route("responses", name="second"))
        assert [attempt.provider for attempt in result.attempts] == ["first", "first", "first", "second"]


@driven
async def test_a_permanent_error_at_one_is_none_at_the_next() -> None:
    async with faulty("status-401", "ok") as bench:
        result = await bench.call(bench.route(name="first"), bench.route(name="second"))
        assert (result.completion.text, result.tried) == (OK, ("first", "second"))


@pytest.mark.parametrize(
    ("first", "second", "error"),
    [
        ("status-401", "status-500", Retryable),
        ("status-500", "status-401", Retryable),
        ("status-401", "status-404", Permanent),
        ("html", "status-404", PeerError),
    ],
)
@driven
async def test_all_failed_is_retryable_if_any_was(first: str, second: str, error: type[ProviderError]) -> None:
    async with faulty() as bench:
        with pytest.raises(error) as caught:
            await bench.call(bench.route(name="a", model=first), bench.route(name="b", model=second))
        assert caught.value.tried == ("a", "b")


async def test_E64_the_model_of_the_route_is_asked_for() -> None:
    async with faulty("status-400", "ok") as bench:
        await bench.call(bench.route(model="one"), bench.route("anthropic", model="two"))
        assert [request.json()["model"] for request in bench.server.requests] == ["one", "two"]


async def test_a_call_without_a_route_is_a_mistake_of_the_caller() -> None:
    async with faulty() as bench:
        with pytest.raises(ValueError, match="at least one route"):
            await bench.call()


# ── who does not stream ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_refused_stream_is_asked_for_whole_and_remembered_for_a_while(dialect: Dialect) -> None:
    clock = 0.0
    async with faulty() as bench:
        bench.refusals = NonStreamingRoutes(reprobe_s=60.0, clock=lambda: clock)
        route = bench.route(dialect, model="ok+no-streaming")
        told = Told()
        first = await bench.call(route, told=told)
        await bench.call(route)
        asked = [request.json().get("stream", False) for request in bench.server.requests]
        assert asked == [True, False, False]
        assert first.completion.text == OK
        assert told.facts == [("started", 1, "faulty")]  # nothing to notice but the absence of deltas
        clock = 61.0
        bench.server.extend("ok")
        again = await bench.call(route, told=(told := Told()))
        assert again.attempts[0].streamed
        assert told.text == OK


async def test_a_refusal_is_of_one_model_at_one_provider() -> None:
    async with faulty() as bench:
        await bench.call(bench.route(model="ok+no-streaming"))
        result = await bench.call(bench.route(model="ok"))
        assert result.attempts[0].streamed


async def test_what_fails_whole_too_is_not_remembered() -> None:
    async with faulty("no-streaming", "status-401") as bench:
        with pytest.raises(Rejected) as caught:
            await bench.call(bench.route())
        assert caught.value.status == 401
        assert not bench.refusals.holds("faulty", "ok")


# ── what is told ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_F69_the_usage_of_a_failed_and_of_an_interrupted_attempt_is_known() -> None:
    async with faulty("ok+cut@90%", "ok") as bench:
        result = await bench.call(bench.route("anthropic"), told=(told := Told()))
        assert told.attempts[0].usage.input_tokens  # said at the start, in this dialect
        assert result.usage == told.attempts[0].usage + result.completion.usage

        bench.server.extend("ok+stall@50%")
        told = Told()
        task = asyncio.create_task(bench.call(bench.route("anthropic"), told=told))
        await told.heard.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert told.attempts[0].interrupted
        assert told.attempts[0].usage.input_tokens


# ── middleware ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_middleware_wraps_the_listener_the_first_one_innermost() -> None:
    order: list[str] = []

    def named(name: str) -> CallMiddleware:
        class Noting(ForwardingListener):
            def deltas(self, deltas: list[AnyDelta]) -> StopCall | None:
                order.append(name)
                return super().deltas(deltas)

        return lambda _request, _routes, listener: Noting(listener)

    async with faulty("ok+cut@60%") as bench:
        caller = Caller(middleware=[named("inner"), named("outer")])
        result = await caller.complete(ASK, [bench.route(**ONCE)], listener=(told := Told("keep")))
    assert order[:2] == ["outer", "inner"]
    assert result.incomplete is not None  # the verdict passes through
    assert result.completion.text == told.text
