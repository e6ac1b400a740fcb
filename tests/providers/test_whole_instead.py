"""A provider whose plain call works and whose stream does not, over real sockets: when it is asked for a whole answer,
and when never.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
import pytest

from providers.faulty_calls import ASK, DIALECTS, Bench, Told, faulty
from tailrace.errors import PeerError, Permanent, ProviderError, Rejected, Retryable, StreamCut, TimedOut, Unavailable
from tailrace.messages import Dialect, Usage
from tailrace.providers.no_streaming import MAX_ROUTES, NonStreamingRoutes, better_error, may_be_the_stream
from tailrace.providers.transport.port import CANNOT_CONNECT
from tailrace.testing.clock import driven

OK = "The mill wheel turns, and the tailrace carries the water on. Nothing is lost on the way."
AGAIN: Any = {"backoff_s": 0.001}
BROKEN = {
    "an error status": "ok+status-500",
    "a proxy's page with an error status": "ok+status-502-html",
    "nothing": "ok+end@0",
    "a page": "ok+html",
    "garbage": "ok+garbage",
    "an instant cut": "ok+cut@0",
    "an instant reset": "ok+reset@0",
    "no answer at all": "ok+drop",
    "an error as the first event": "ok+first-error-server",
}


def streamed(bench: Bench) -> list[bool]:
    """Which of the requests asked for a stream."""
    return [request.json().get("stream", False) for request in bench.server.requests]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", BROKEN)
async def test_the_last_attempt_at_a_provider_asks_for_a_whole_answer(dialect: Dialect, kind: str) -> None:
    async with faulty() as bench:
        route = bench.route(dialect, model=f"{BROKEN[kind]}+if-streamed", **AGAIN)
        result = await bench.call(route, told=(told := Told()))
        assert (result.completion.text, told.text, result.incomplete) == (OK, "", None)
        assert [attempt.streamed for attempt in result.attempts] == [True, True, False]
        assert streamed(bench) == [True, True, False]
        again = await bench.call(route)  # remembered: no stream is tried
        assert (again.completion.text, streamed(bench)[3:]) == (OK, [False])


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_rejected_stream_is_asked_for_whole_at_once(dialect: Dialect) -> None:
    async with faulty() as bench:
        route = bench.route(dialect, model="ok+bad-request+if-streamed")
        result = await bench.call(route, told=(told := Told()))
        assert (result.completion.text, len(result.attempts)) == (OK, 1)
        assert told.facts == [("started", 1, "faulty")]
        await bench.call(route)
        assert streamed(bench) == [True, False, False]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_stream_of_nothing_but_its_end_is_no_answer(dialect: Dialect) -> None:
    """A chat stream that is `[DONE]` alone, a message without a single event, a response without a beginning."""
    async with faulty() as bench:
        result = await bench.call(bench.route(dialect, model="ok+only-ending+if-streamed", **AGAIN))
        assert result.completion.text == OK


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("code", [400, 401, 403, 404, 408, 409, 413, 422, 429, 503, 529])
@driven
async def test_D53_what_has_nothing_to_do_with_streaming_is_not_asked_for_whole(dialect: Dialect, code: int) -> None:
    async with faulty() as bench:
        with pytest.raises(ProviderError) as caught:
            await bench.call(bench.route(dialect, model=f"ok+status-{code}+if-streamed"))
        assert caught.value.status == code
        assert all(streamed(bench))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("scenario", ["ok+stall@0", "silence", "only-comments"])
@driven
async def test_a_deadline_that_passed_is_not_followed_by_a_whole_answer(dialect: Dialect, scenario: str) -> None:
    """It would be waited for up to the total deadline."""
    async with faulty() as bench:
        with pytest.raises(TimedOut):
            await bench.call(bench.route(dialect, model=f"{scenario}+if-streamed"))
        assert streamed(bench) == [True] * 3


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("scenario", ["ok+cut@60%", "reasoning+cut@50%", "tools+cut@60%"])
async def test_a_stream_that_showed_something_works(dialect: Dialect, scenario: str) -> None:
    async with faulty(f"{scenario}+if-streamed", "status-500", "status-500") as bench:
        route = bench.route(dialect, max_attempts=2, **AGAIN)
        with contextlib.suppress(Retryable):
            await bench.call(route)
        assert streamed(bench) == [True, True]
        assert not bench.refusals.holds("faulty", "ok")


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_route_whose_text_was_continued_whole_streams_the_next_answer(dialect: Dialect) -> None:
    async with faulty("ok+cut@60%", "ok+cut@0", "ok") as bench:
        route = bench.route(dialect, **AGAIN)
        result = await bench.call(route, told=(told := Told()))
        assert (result.completion.text, told.text) == (OK, OK)
        assert streamed(bench) == [True, True, False]
        await bench.call(route)
        assert streamed(bench)[3:] == [True]


async def test_an_interrupt_is_not_followed_by_a_whole_answer() -> None:
    async with faulty() as bench:
        task = asyncio.create_task(bench.call(bench.route(model="ok+stall@0+if-streamed")))
        await bench.server.request()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert streamed(bench) == [True]


@pytest.mark.parametrize(
    ("whole", "reported"), [("status-422", 422), ("status-401", 401), ("status-500", 400), ("html", 400)]
)
async def test_D53_the_better_of_two_errors_is_reported(whole: str, reported: int) -> None:
    async with faulty("bad-request", whole, "ok") as bench:
        with pytest.raises(Rejected) as caught:
            await bench.call(bench.route())
        assert caught.value.status == reported
        assert streamed(bench) == [True, False]
        assert not bench.refusals.holds("faulty", "ok")


def test_which_of_two_errors_says_more() -> None:
    streamed = Rejected("temperature must be at most 2", status=400, provider="p")
    assert better_error(streamed, Rejected("HTTP 400", status=400, provider="p")) is streamed
    assert better_error(streamed, whole := Rejected("messages: too long", status=400, provider="p")) is whole


async def test_a_rejected_request_costs_one_plain_try_before_the_next_provider() -> None:
    async with faulty("bad-request", "bad-request", "ok") as bench:
        result = await bench.call(bench.route(name="first"), bench.route(name="second"), told=(told := Told()))
        assert (result.tried, told.text) == (("first", "second"), OK)
        assert streamed(bench) == [True, False, True]


async def test_fallbacks_are_asked_after_the_whole_answer_failed_too() -> None:
    async with faulty("status-500", "status-500", "status-500", "ok") as bench:
        result = await bench.call(bench.route(name="first", **AGAIN), bench.route(name="second"), told=(told := Told()))
        assert ([a.provider for a in result.attempts], told.text) == (["first"] * 3 + ["second"], OK)
        assert streamed(bench) == [True, True, False, True]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_one_attempt_a_call_learns_from_the_call_before(dialect: Dialect) -> None:
    """A step with a retry policy of its own asks each provider once a try."""
    async with faulty() as bench:
        route = bench.route(dialect, model="ok+status-500+if-streamed", max_attempts=1)
        with pytest.raises(Unavailable):
            await bench.call(route)
        assert (await bench.call(route)).completion.text == OK
        assert streamed(bench) == [True, False]


async def test_a_whole_answer_that_fails_too_leaves_the_next_call_to_the_stream() -> None:
    async with faulty("status-500", "status-500", "ok") as bench:
        route = bench.route(max_attempts=1)
        for _ in range(2):
            with pytest.raises(Unavailable):
                await bench.call(route)
        result = await bench.call(route, told=(told := Told()))
        assert (result.attempts[0].streamed, told.text) == (True, OK)


async def test_what_was_billed_before_an_early_cut_is_counted() -> None:
    """Anthropic says what the prompt costs in its first event, before anything is shown."""
    async with faulty() as bench:
        route = bench.route("anthropic", model="ok+cut@480+if-streamed", **AGAIN)
        result = await bench.call(route)
        assert [attempt.streamed for attempt in result.attempts] == [True, True, False]
        assert result.attempts[0].usage.input_tokens
        assert result.usage == sum((attempt.usage for attempt in result.attempts), Usage())


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_provider_that_the_config_says_does_not_stream_is_always_asked_whole(dialect: Dialect) -> None:
    async with faulty("status-500") as bench:
        route = msgspec.structs.replace(bench.route(dialect, **AGAIN), streams=False)
        result = await bench.call(route, told=(told := Told()))
        assert (result.completion.text, told.text) == (OK, "")
        assert streamed(bench) == [False, False]


# ── the memory ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_streams_that_failed_are_tried_again_soon_and_then_less_often() -> None:
    clock = 0.0
    async with faulty() as bench:
        bench.refusals = NonStreamingRoutes(clock=lambda: clock)
        route = bench.route(model="ok+status-500+if-streamed", **AGAIN)
        await bench.call(route)
        assert streamed(bench) == [True, True, False]
        for wait_s in (60.0, 120.0, 240.0):
            clock += wait_s - 1
            await bench.call(route)
            assert streamed(bench)[-1:] == [False]
            clock += 1
            bench.server.requests.clear()
            await bench.call(route)
            assert streamed(bench) == [True, False]  # one stream to find out, and no second
        clock += 480.0
        bench.server.extend("ok")
        assert (await bench.call(route, told=(told := Told()))).attempts[0].streamed
        assert told.text == OK
        assert not bench.refusals.holds("faulty", route.model)


async def test_a_provider_that_gives_no_whole_answers_is_asked_for_streams_again() -> None:
    async with faulty() as bench:
        bench.refusals.remember("faulty", "ok")
        bench.server.extend("status-422")
        with pytest.raises(Rejected):
            await bench.call(bench.route())
        assert (await bench.call(bench.route())).attempts[0].streamed


def test_the_memory_is_bounded() -> None:
    memory = NonStreamingRoutes()
    for number in range(MAX_ROUTES * 2):
        memory.suspect("p", f"m{number}")
        memory.remember("p", f"n{number}", refused=False)
    assert len(memory.routes) == MAX_ROUTES
    assert memory.holds("p", f"n{MAX_ROUTES * 2 - 1}")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Unavailable("x", status=500), True),
        (Unavailable("x", status=503), False),
        (Unavailable("x", status=529), False),
        (Unavailable("x", status=429), False),
        (Unavailable("x", status=408), False),
        (Unavailable("the connection was closed before an answer came"), True),
        (Unavailable("cannot connect", code=CANNOT_CONNECT), False),
        (TimedOut("x", deadline="connect"), False),
        (TimedOut("x", deadline="total"), False),
        (StreamCut("x"), True),
        (PeerError("x"), True),
        (Rejected("x", status=400), True),
        (Rejected("x", status=400, code="context_length_exceeded"), False),
        (Rejected("Invalid request: messages is malformed", status=400), False),
        (Rejected("Unsupported parameter: 'top_p'", status=400), False),
        (Rejected("Image input is not supported by this model", status=400), False),
        (Rejected("bogus_field: Extra inputs are not permitted", status=400), False),
        (Rejected("stream: Extra inputs are not permitted", status=400), True),
        (Rejected("Item with id 'rs_1' not found. Items are not persisted.", status=400), False),
        (Rejected("No tool call found for call_id call_7.", status=400), False),
        (Rejected("top_k: Input should be greater than 0", status=400), False),
        (Rejected("system: text content blocks must be non-empty", status=400), False),
        (Rejected("Invalid value: 'x'. (input[0].role)", status=400), False),
        (Rejected("Unsupported value: 'loud' (verbosity)", status=400), False),
        (Rejected("Unsupported value (stream)", status=400), True),
        (Rejected("invalid_request_error: Bad Request (request id: req_7)", status=400), True),
        (Rejected("x", status=404), False),
        (Rejected("x", status=301), False),
        (Permanent("x"), False),
    ],
)
def test_what_may_be_the_fault_of_the_stream(error: ProviderError, expected: bool) -> None:
    assert may_be_the_stream(error) is expected


# ── fields of ours that are refused ──────────────────────────────────────────────────────────────────────────

FIELDS: list[tuple[Dialect, str, str]] = [
    ("chat", "stream_options", ""),
    ("chat", "reasoning_effort", "reasoning_effort"),
    ("chat", "parallel_tool_calls", "parallel_tool_calls"),
    ("responses", "reasoning.effort", "reasoning_effort"),
    ("responses", "reasoning", "reasoning_effort"),
    ("responses", "parallel_tool_calls", "parallel_tool_calls"),
    ("responses", "store", ""),
    ("responses", "include", ""),
    ("anthropic", "output_config.effort", "reasoning_effort"),
    ("anthropic", "tool_choice.disable_parallel_tool_use", "parallel_tool_calls"),
]
TUNED = msgspec.structs.replace(ASK, reasoning_effort="low", parallel_tool_calls=False)


@pytest.mark.parametrize(("dialect", "field", "source"), FIELDS)
async def test_a_field_of_ours_that_is_refused_is_left_out_and_remembered(
    dialect: Dialect, field: str, source: str
) -> None:
    async with faulty() as bench:
        route = bench.route(dialect, model=f"ok+refuses@{field}")
        result = await bench.call(route, request=TUNED, told=(told := Told()))
        assert (result.completion.text, told.text, len(result.attempts)) == (OK, OK, 1)  # still streamed
        await bench.call(route, request=TUNED)
        name = field.partition(".")[0]
        inner = field.rpartition(".")[2]
        sent = [request.json() for request in bench.server.requests]
        assert [inner in body or inner in str(body.get(name)) for body in sent] == [True, False, False]


async def test_several_refused_fields_are_left_out_one_after_the_other() -> None:
    async with faulty() as bench:
        names = ("stream_options", "reasoning_effort", "parallel_tool_calls")
        route = bench.route(model="ok+" + "+".join(f"refuses@{name}" for name in names))
        result = await bench.call(route, request=TUNED)
        assert (result.completion.text, result.attempts[0].streamed) == (OK, True)
        assert len(bench.server.requests) == 4
        assert not {*names} & bench.server.requests[-1].json().keys()


@pytest.mark.parametrize(("dialect", "field", "source"), [field for field in FIELDS if field[2]])
async def test_a_field_that_the_client_wrote_is_refused_by_name(dialect: Dialect, field: str, source: str) -> None:
    """In the dialect's own words, or as a field that the request requires."""
    name, _, inner = field.partition(".")
    value: Any = {inner: "low"} if inner else "low"
    if name == "tool_choice":
        value = {"type": "auto", inner: True}
    if field == "reasoning":
        value = {"effort": "low"}
    written = msgspec.structs.replace(ASK, extra={name: value})
    required = msgspec.structs.replace(TUNED, required=(source,))
    async with faulty() as bench:
        for request in (written, required):
            bench.server.requests.clear()
            with pytest.raises(Rejected, match=field):
                await bench.call(bench.route(dialect, model=f"ok+refuses@{field}"), request=request)
            assert [name in sent.json() for sent in bench.server.requests] == [True]


async def test_a_field_of_the_config_is_refused_by_name() -> None:
    async with faulty() as bench:
        provider = bench.provider(extra_body={"stream_options": {"include_usage": True}})
        route = msgspec.structs.replace(bench.route(model="ok+refuses@stream_options"), provider=provider)
        with pytest.raises(Rejected, match="stream_options"):
            await bench.call(route)


async def test_a_refusal_that_leaving_out_does_not_mend_is_not_remembered() -> None:
    async with faulty("refuses@stream_options", "status-401", "ok") as bench:
        provider = bench.provider()
        route = msgspec.structs.replace(bench.route(), provider=provider)
        with pytest.raises(Rejected):
            await bench.call(route)
        await bench.call(route)
        assert ["stream_options" in sent.json() for sent in bench.server.requests] == [True, False, True]
