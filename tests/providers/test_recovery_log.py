"""What a call says in the log while it recovers: one line for each turn that it takes, and never a key."""

from __future__ import annotations

import logging
import re

import msgspec
import pytest

from providers.faulty_calls import Told, faulty
from tailrace.errors import PeerError, Permanent, ProviderError, Rejected, StreamCut, TimedOut, Unavailable
from tailrace.providers.recovery_log import CURRENT_RUN, reason_kind
from tailrace.providers.transport.port import CANNOT_CONNECT
from tailrace.testing.clock import driven


@pytest.fixture(autouse=True)
def listening(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "tailrace.providers")


def lines(caplog: pytest.LogCaptureFixture, level: int = logging.INFO) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.levelno == level]
    return [re.sub(r"[\d.]+ s$", "… s", line) for line in found]


@driven
async def test_a_stall_a_retry_and_a_failover_are_one_line_each(caplog: pytest.LogCaptureFixture) -> None:
    CURRENT_RUN.set("run_7")
    async with faulty("ok+stall@0", "status-503", "ok") as bench:
        first, second = bench.route(name="a", model="x"), bench.route(name="b", model="y")
        await bench.call(first, second, purpose="step")
    assert lines(caplog) == [
        "run run_7: attempt 1 at a/x stalled (idle_timeout): nothing of an answer for … s",
        "run run_7: attempt 1 at a/x failed (idle_timeout): attempt 2 follows in … s",
        "run run_7: attempt 2 at a/x failed (http_503): fails over to b/y, attempt 3",
    ]
    reasons = [line for line in lines(caplog, logging.DEBUG) if line.startswith("run run_7: ")]
    assert reasons[1] == "run run_7: attempt 2: The engine is overloaded"


async def test_an_answer_that_stays_incomplete_and_a_call_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    async with faulty() as bench:
        await bench.call(bench.route(model="text-and-tools+cut@75%", max_attempts=1))
        with pytest.raises(Rejected):
            await bench.call(bench.route(model="status-401"))
        await bench.call(bench.route(model="ok+no-streaming"))
        await bench.call(msgspec.structs.replace(bench.route(), streams=False))  # as it was asked: nothing to say
    incomplete = "the answer stays incomplete after 1 attempt, not executed: get_weather, get_time"
    assert lines(caplog) == [
        f"attempt 1 at faulty/text-and-tools+cut@75% failed (stream_cut): {incomplete}",
        "attempt 1 at faulty/status-401 failed (http_401): the call is given up after 1 attempt",
        "attempt 1 at faulty/ok+no-streaming was answered whole, without streaming",
    ]


async def test_a_call_without_a_turn_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with faulty("ok") as bench:
        await bench.call(bench.route(), told=Told())
    assert lines(caplog) == []


async def test_a_refused_field_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async with faulty("refuses@stream_options", "ok") as bench:
        await bench.call(bench.route())
    assert lines(caplog) == ["faulty/ok refuses the field stream_options and is asked without it"]


async def test_J114_no_line_has_the_key(caplog: pytest.LogCaptureFixture) -> None:
    async with faulty("status-500", "html", "status-401") as bench:
        provider = bench.provider(key="sk-verysecretkey123456")
        route = msgspec.structs.replace(bench.route(backoff_s=0.001), provider=provider)
        with pytest.raises(ProviderError):
            await bench.call(route)
    assert len(lines(caplog)) == 3
    assert "verysecret" not in caplog.text


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (None, "interrupted"),
        (TimedOut("x", deadline="first_token"), "first_token_timeout"),
        (StreamCut("x"), "stream_cut"),
        (PeerError("x", status=200), "not_an_answer"),
        (Unavailable("x", status=500), "http_500"),
        (Unavailable("x", code=CANNOT_CONNECT), "cannot_connect"),
        (Unavailable("x"), "unavailable"),
        (Rejected("x", code="certificate"), "certificate"),
        (Permanent("x"), "rejected"),
    ],
)
def test_the_kind_of_a_reason(error: ProviderError | None, kind: str) -> None:
    assert reason_kind(error) == kind
