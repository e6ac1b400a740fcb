"""Group E over real sockets: how long a call waits, and for what.

Time is driven: deadlines of minutes pass in milliseconds.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import msgspec
import pytest

from providers.faulty_calls import ASK, DIALECTS, Told, faulty
from tailrace.errors import TimedOut
from tailrace.messages import Dialect, ModelRequest, user
from tailrace.testing.clock import driven
from tailrace.testing.provider import Scenario, reply, think

OK = "The mill wheel turns, and the tailrace carries the water on. Nothing is lost on the way."
SLOW_THOUGHT = Scenario(reply=reply(think("Water runs downhill. " * 20, "c2lnbmVk"), "Downhill."), pace_s=10.0)


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("purpose", "seconds"), [("step", 30.0), ("turn", 180.0)])
@driven
async def test_E59_silence_in_mid_stream(dialect: Dialect, purpose: str, seconds: float) -> None:
    async with faulty("long+stall@50%") as bench:
        began, told = now(), Told()
        result = await bench.call(
            bench.route(dialect, "faulty", "long"), told=told, purpose="step" if purpose == "step" else "turn"
        )
        error = result.attempts[0].error
        assert isinstance(error, TimedOut)
        assert (error.deadline, error.provider) == ("idle", "faulty")
        assert ("stalled", "faulty", pytest.approx(seconds)) in told.facts
        assert seconds <= now() - began < seconds + 1
        assert result.completion.text == told.text == " ".join(f"word{number}" for number in range(2000))


@pytest.mark.parametrize(("tokens", "seconds"), [(50_001, 240.0), (100_001, 300.0)])
@driven
async def test_E59_a_large_context_is_given_more_time(tokens: int, seconds: float) -> None:
    async with faulty("ok+stall@50%") as bench:
        began = now()
        await bench.call(bench.route(), request=ModelRequest("ok", (user("x" * 4 * tokens),)))
        assert seconds <= now() - began < seconds + 1


@driven
async def test_E59_a_local_endpoint_is_given_more_time_and_explicit_config_wins() -> None:
    async with faulty("ok+stall@50%", "ok", "ok+stall@50%") as bench:
        began = now()
        await bench.call(msgspec.structs.replace(bench.route(), local=True))
        assert 900 <= now() - began < 901
        began = now()
        await bench.call(msgspec.structs.replace(bench.route(idle_timeout_s=7.0), local=True))
        assert 7 <= now() - began < 8


@pytest.mark.parametrize("dialect", DIALECTS)
@driven
async def test_E60_keep_alives_are_no_progress(dialect: Dialect) -> None:
    async with faulty("ok+pings@50%", "ok+pings@50%") as bench:
        began = now()
        result = await bench.call(bench.route(dialect))
        errors = [attempt.error for attempt in result.attempts]
        assert [error.deadline for error in errors if isinstance(error, TimedOut)] == ["progress", "progress"]
        assert 600 <= now() - began < 602
        assert result.completion.text == OK


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("scenario", ["ok+stall@0", "silence", "only-comments", "ok+slow-headers@1000"])
@driven
async def test_E61_a_first_token_that_does_not_come(dialect: Dialect, scenario: str) -> None:
    async with faulty(scenario) as bench:
        began, told = now(), Told()
        result = await bench.call(bench.route(dialect), told=told)
        error = result.attempts[0].error
        assert isinstance(error, TimedOut)
        assert error.deadline == "first_token"
        assert 120 <= now() - began < 121
        assert told.facts[:3] == [("started", 1, "faulty"), ("discarded", 1), ("stalled", "faulty", 120.0)]
        assert result.completion.text == told.text == OK


@pytest.mark.parametrize("dialect", DIALECTS)
@driven
async def test_E61_a_stream_that_opens_and_stalls_before_its_first_piece_is_idle(dialect: Dialect) -> None:
    async with faulty("ok+stall@0") as bench:
        began = now()
        result = await bench.call(bench.route(dialect), purpose="step")
        error = result.attempts[0].error
        assert isinstance(error, TimedOut)
        assert (error.deadline, "since the stream opened" in str(error)) == ("idle", True)
        assert 30 <= now() - began < 31
        assert result.completion.text == OK


@pytest.mark.parametrize(
    ("scenario", "policy", "local", "deadline", "seconds"),
    [
        ("silence", {}, False, "first_token", 120),  # no head: nothing is open
        ("only-comments", {}, False, "first_token", 120),
        ("ok+stall@0", {"idle_timeout_s": 50.0}, True, "idle", 50),
        ("ok+stall@0", {"first_token_timeout_s": 70.0}, False, "first_token", 70),  # set, so not cut short by the rule
        ("ok+stall@0", {}, True, "first_token", 120),  # a local model reads its prompt
    ],
)
@driven
async def test_E61_which_deadline_ends_a_step_before_its_first_piece(
    scenario: str, policy: dict[str, Any], local: bool, deadline: str, seconds: float
) -> None:
    async with faulty(scenario) as bench:
        began = now()
        route = msgspec.structs.replace(bench.route(**policy), local=local)
        result = await bench.call(route, purpose="step")
        error = result.attempts[0].error
        assert isinstance(error, TimedOut)
        assert error.deadline == deadline
        assert seconds <= now() - began < seconds + 1


@pytest.mark.parametrize(("tokens", "seconds"), [(50_001, 240.0), (100_001, 300.0)])
@driven
async def test_E61_the_first_token_of_a_large_context_may_take_longer(tokens: int, seconds: float) -> None:
    async with faulty("silence") as bench:
        began = now()
        await bench.call(bench.route(), request=ModelRequest("ok", (user("x" * 4 * tokens),)))
        assert seconds <= now() - began < seconds + 1


@pytest.mark.parametrize("dialect", DIALECTS)
@driven
async def test_E62_a_healthy_long_stream_outlives_every_other_deadline(dialect: Dialect) -> None:
    async with faulty("ok+pace@25") as bench:
        began = now()
        result = await bench.call(bench.route(dialect), purpose="step")
        assert (result.completion.text, len(result.attempts)) == (OK, 1)
        assert now() - began > 300


@driven
async def test_E62_the_total_budget_of_an_attempt_and_of_the_call() -> None:
    async with faulty() as bench:
        route = bench.route(model="long+pace@10", total_timeout_s=100.0, max_attempts=1)
        result = await bench.call(route)
        assert result.incomplete is not None
        assert isinstance(result.incomplete.error, TimedOut)
        assert result.incomplete.error.deadline == "total"
        began = now()
        with pytest.raises(TimedOut):
            await bench.call(bench.route(model="silence"), budget_s=150.0)
        assert 149 < now() - began <= 150


@driven
async def test_the_connect_deadline_is_its_own() -> None:
    """A listener that never accepts: its backlog is full, so the connection is never made."""
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    fillers = []
    for _ in range(4):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(full.getsockname())
        fillers.append(filler)
    try:
        async with faulty() as bench:
            provider = bench.provider(base_url=f"http://127.0.0.1:{full.getsockname()[1]}", connect_timeout_s=5.0)
            with pytest.raises(TimedOut) as caught:
                await provider.complete(ASK)
            assert (caught.value.deadline, caught.value.provider) == ("connect", "faulty")
    finally:
        for sock in (full, *fillers):
            sock.close()


@pytest.mark.parametrize("dialect", DIALECTS)
@driven
async def test_C47_thoughts_are_progress(dialect: Dialect) -> None:
    async with faulty(SLOW_THOUGHT) as bench:
        result = await bench.call(bench.route(dialect, progress_timeout_s=65.0, idle_timeout_s=65.0))
        assert (result.completion.text, len(result.attempts)) == ("Downhill.", 1)


@pytest.mark.parametrize("dialect", DIALECTS)
@driven
async def test_C47_keep_alives_during_a_hidden_thought_are_progress(dialect: Dialect) -> None:
    """Nothing but the whole budget ends it; without the thought the same keep-alives would be a stall after 300 s."""
    async with faulty("reasoning+pings@40%") as bench:
        began = now()
        result = await bench.call(bench.route(dialect))
        error = result.attempts[0].error
        assert isinstance(error, TimedOut)
        assert (error.deadline, round(now() - began)) == ("total", 1800)
