"""The pure parts of a call, each by itself: the seam, the itinerary, back-off, deadlines, who does not stream."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import nullcontext as does_not_raise
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.config.sections import CallPolicy
from tailrace.errors import ProviderError, Rejected, TimedOut, Unavailable
from tailrace.providers.deadlines import (
    STOOD_STILL_S,
    AttemptDeadlines,
    DeadlineWatch,
    Purpose,
    deadlines_of,
    idle_timeout_s,
    usual_deadlines,
)
from tailrace.providers.no_streaming import says_no_streaming
from tailrace.providers.retry.backoff import delay_s, retry_after_s
from tailrace.providers.retry.overlap import Overlap
from tailrace.providers.retry.route_order import RouteOrder
from tailrace.testing.clock import driven

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
TEXT = "The mill wheel turns, and the tailrace carries the water on.\n\n- Nothing is lost.\n- Nothing is doubled.\n"


# ── the seam ─────────────────────────────────────────────────────────────────────────────────────────────────


def pieces(text: str, cuts: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[a:b] for a, b in pairwise(edges)]


def through(shown: str, continuation: str, cuts: list[int] | None = None, *, cut: bool = False) -> str:
    seam = Overlap(shown)
    parts = [seam.feed(piece) for piece in pieces(continuation, cuts or [])]
    said = "".join(parts) + seam.close(cut=cut)
    assert said == continuation[seam.removed :]
    return said


CUTS = st.lists(st.integers(0, 200), max_size=12)


@given(at=st.integers(1, len(TEXT) - 1), cuts=CUTS)
def test_an_exact_continuation_is_let_through_whole(at: int, cuts: list[int]) -> None:
    """The model goes on from the shown text without its trailing white space, as it is asked to."""
    shown = TEXT[:at]
    assert shown + through(shown, TEXT[len(shown.rstrip()) :], cuts) == TEXT


@given(at=st.integers(1, len(TEXT) - 1), cuts=CUTS)
def test_an_answer_that_begins_anew_is_let_through_from_where_it_was(at: int, cuts: list[int]) -> None:
    shown = TEXT[:at]
    assert shown + through(shown, TEXT, cuts) == TEXT


@given(at=st.integers(30, len(TEXT) - 1), back=st.integers(20, 29), cuts=CUTS)
def test_a_continuation_that_repeats_the_last_words(at: int, back: int, cuts: list[int]) -> None:
    shown = TEXT[:at]
    assert shown + through(shown, TEXT[len(shown.rstrip()) - back :], cuts) == TEXT


@given(at=st.integers(1, len(TEXT) - 1), second=st.integers(0, len(TEXT)), cuts=CUTS)
def test_an_answer_that_begins_anew_and_is_cut_again_adds_only_what_is_new(
    at: int, second: int, cuts: list[int]
) -> None:
    shown = TEXT[:at]
    assert shown + through(shown, TEXT[:second], cuts, cut=True) == TEXT[: max(at, second)]


FEEDS = "Brook 5 feeds mill 41. Brook 6 feeds mill 42."


@given(second=st.integers(0, len(FEEDS)), cuts=CUTS)
def test_E63_text_that_is_undecided_when_the_next_cut_comes_is_dropped(second: int, cuts: list[int]) -> None:
    """Had more of it come, it might have been a repetition from the middle of what is shown."""
    again = " Brook 6 feeds mill 42. Brook 7"[:second]
    joined = FEEDS + through(FEEDS, again, cuts, cut=True)
    assert joined in (FEEDS, f"{FEEDS} Brook 7"[: len(joined)])


def test_E63_text_that_is_undecided_at_the_end_of_the_answer_is_shown() -> None:
    assert through(FEEDS, " Brook 6") == " Brook 6"
    assert through(FEEDS, "Brook 6 feeds mill 42.") == ""


@pytest.mark.parametrize(
    ("shown", "continuation", "joined"),
    [
        ("It was very", " very good.", "It was very very good."),  # meant: nothing proves otherwise
        ("ha ha", " ha ha!", "ha ha ha ha!"),
        ("quick bro", "brown fox", "quick brown fox"),  # the broken word, from its beginning
        ("x = 10", "100", "x = 10100"),  # digits are no word
        ("----------------", "--------", "------------------------"),
        ("00000000000000000000 1", "0000000000000000", "00000000000000000000 10000000000000000"),
        ("def f():\n", "\n    return 1", "def f():\n    return 1"),  # the white space that is shown already
        ("def f():\n", "    return 1", "def f():\n    return 1"),
        ("One.\n\n", "\n\nTwo.", "One.\n\nTwo."),
        ("Hello", "", "Hello"),
        ("你好世界", "你好世界，再见", "你好世界，再见"),
    ],
)
def test_what_counts_as_said_twice(shown: str, continuation: str, joined: str) -> None:
    for size in (1, 2, 3, 100):
        cuts = list(range(0, len(continuation), size))
        assert shown + through(shown, continuation, cuts) == joined


def test_text_is_held_back_only_while_it_may_be_a_repetition() -> None:
    seam = Overlap("The mill wheel turns, and the")
    assert seam.feed(" tail") == " tail"
    assert seam.feed("race") == "race"


@pytest.mark.parametrize(
    ("shown", "again"),
    [
        pytest.param("abcdefghij" * 100 + ".", "z", id="one long word"),
        pytest.param("a" * 1000 + "bcdefghijklmnop", "a" * 1000, id="every place agrees"),
        pytest.param("ab" * 500 + "cdefghijklmnop", "ab" * 500 + "x", id="every other place agrees"),
    ],
)
def test_L140_time_is_linear_in_both_texts(shown: str, again: str) -> None:
    def seconds(times: int) -> float:
        start = time.thread_time()
        seam = Overlap(shown[:1000] * times + shown[1000:])
        for character in again[:1000] * times + again[1000:]:
            seam.feed(character)
        seam.close(cut=True)
        return time.thread_time() - start

    small = min(seconds(1) for _ in range(3))
    assert min(seconds(20) for _ in range(3)) < 100 * small  # twenty times the text; a quadratic search takes 400 times


# ── the itinerary ────────────────────────────────────────────────────────────────────────────────────────────


class NoJitter(random.Random):
    def random(self) -> float:
        return 0.0


LATER = Unavailable("not now", status=429, retry_after_s=20.0)
BROKEN = Unavailable("broken", status=500)
NEVER = Rejected("no", status=401)


@pytest.mark.parametrize(
    ("failures", "order"),
    [
        ([BROKEN] * 6, [0, 0, 1, 1, 2, 2]),
        ([NEVER] * 3, [0, 1, 2]),
        ([LATER] * 6, [0, 1, 2, 0, 1, 2]),
        ([LATER, BROKEN, LATER, BROKEN, LATER, BROKEN], [0, 1, 1, 2, 2, 0]),
        ([BROKEN, LATER, NEVER, LATER, LATER], [0, 0, 1, 2, 2]),
    ],
)
def test_who_is_asked_next(failures: list[ProviderError], order: list[int]) -> None:
    itinerary = RouteOrder([CallPolicy(max_attempts=2)] * 3, NoJitter())
    now, asked = 0.0, []
    for failure in failures:
        leg = itinerary.next(now)
        assert leg is not None
        asked.append(leg[0])
        now += leg[1]
        itinerary.failed(failure, now)
    assert asked == order
    assert itinerary.next(now) is None


def test_nobody_waits_while_somebody_is_free() -> None:
    itinerary = RouteOrder([CallPolicy()] * 2, random.Random(1))
    assert itinerary.next(0.0) == (0, 0.0)
    itinerary.failed(LATER, 0.0)
    assert itinerary.next(0.0) == (1, 0.0)
    itinerary.failed(LATER, 0.0)
    leg = itinerary.next(5.0)
    assert leg is not None
    assert 15.0 <= leg[1] <= 17.0


def test_whether_a_stand_in_is_left() -> None:
    assert not RouteOrder([CallPolicy()], NoJitter()).has_other_route
    order = RouteOrder([CallPolicy(max_attempts=2)] * 2, NoJitter())
    left = []
    for failure in (BROKEN, BROKEN, NEVER):
        order.next(0.0)
        left.append(order.has_other_route)
        order.failed(failure, 0.0)
    assert left == [True, True, False]


def test_the_order_prints_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    def ask() -> None:
        order = RouteOrder([CallPolicy(max_attempts=2)] * 2, NoJitter())
        for failure in (LATER, NEVER, BROKEN):
            order.next(0.0)
            order.failed(failure, 0.0)
        assert order.next(0.0) is None

    with caplog.at_level("INFO", "tailrace.providers"):
        ask()
    assert not caplog.messages
    with caplog.at_level("DEBUG", "tailrace.providers"):
        ask()
    assert caplog.messages == [
        "begin -> route 0 in 0 s",
        "route 0: Unavailable 429 -> route 1 in 0 s",
        "route 1: Rejected 401, closed -> route 0 in 20 s",
        "route 0: Unavailable 500, closed -> no route left",
    ]


# ── back-off ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": format_datetime(NOW + timedelta(seconds=40), usegmt=True)}, 40.0),
        ({"retry-after": format_datetime(NOW - timedelta(hours=1), usegmt=True)}, 0.0),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Sun, 99 Nov 2026 12:00:00 GMT"}, None),
        ({"retry-after": "Sun, 15 Nov 2026 12:00:30 GMT", "date": "Sun, 15 Nov 2026 12:00:10 GMT"}, 20.0),
    ],
)
def test_E66_what_the_headers_ask_for(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers, now=NOW) == seconds


@given(seed=st.integers(), failures=st.integers(1, 5000), asked=st.none() | st.floats(0, 1e12))
def test_E66_a_wait_is_never_negative_nor_past_the_cap(seed: int, failures: int, asked: float | None) -> None:
    policy = CallPolicy(backoff_s=0.5, backoff_max_s=30.0)
    wait = delay_s(policy, failures=failures, asked_s=asked, rng=random.Random(seed))
    assert 0 <= wait <= 33.0
    if asked is not None:
        assert wait >= min(asked, 30.0)


# ── deadlines ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("seconds", "how"),
    [
        (180.0, {}),
        (180.0, {"context_tokens": 50_000}),
        (240.0, {"context_tokens": 50_001}),
        (300.0, {"context_tokens": 100_001}),
        (900.0, {"local": True}),
        (900.0, {"local": True, "context_tokens": 200_000}),
        (30.0, {"purpose": "step"}),
        (30.0, {"purpose": "step", "local": True, "context_tokens": 200_000}),
    ],
)
def test_how_long_a_stream_may_be_silent(seconds: float, how: dict[str, Any]) -> None:
    assert idle_timeout_s(None, **how) == seconds
    assert idle_timeout_s(7.0, **how) == 7.0


def test_a_local_endpoints_other_deadlines_grow_unless_they_were_set() -> None:
    policy = CallPolicy()
    assert deadlines_of(policy, purpose="turn", context_tokens=0, local=False) == AttemptDeadlines(
        120.0, 180.0, 300.0, 1800.0
    )
    assert deadlines_of(policy, purpose="turn", context_tokens=0, local=True) == AttemptDeadlines(
        900.0, 900.0, 900.0, 1800.0, idle_from_opening=False
    )
    assert deadlines_of(policy, purpose="step", context_tokens=0, local=True) == AttemptDeadlines(
        120.0, 30.0, 300.0, 1800.0, idle_from_opening=False
    )
    same_as_default = CallPolicy(first_token_timeout_s=120.0, progress_timeout_s=300.0)
    assert deadlines_of(same_as_default, purpose="turn", context_tokens=200_000, local=True) == AttemptDeadlines(
        120.0, 900.0, 300.0, 1800.0, idle_from_opening=False
    )
    chosen = CallPolicy(first_token_timeout_s=5.0, progress_timeout_s=None, total_timeout_s=None)
    assert deadlines_of(chosen, purpose="turn", context_tokens=0, local=True) == AttemptDeadlines(
        5.0, 900.0, None, None, idle_from_opening=False
    )


def test_the_usual_deadlines_are_worked_out_once_for_each_policy() -> None:
    policies = [CallPolicy(idle_timeout_s=float(seconds)) for seconds in range(1, 400)]
    for policy in policies:
        known = usual_deadlines(policy, "turn", local=False)
        assert known == deadlines_of(policy, purpose="turn", context_tokens=0, local=False)
        assert usual_deadlines(policy, "turn", local=False) is known
        assert usual_deadlines(policy, "step", local=True) == deadlines_of(
            policy, purpose="step", context_tokens=0, local=True
        )


@pytest.mark.parametrize(("tokens", "seconds"), [(50_000, 120.0), (50_001, 240.0), (100_001, 300.0)])
@pytest.mark.parametrize("purpose", ["turn", "step"])
def test_E61_the_first_token_of_a_large_context_is_given_more_time(
    purpose: Purpose, tokens: int, seconds: float
) -> None:
    def first_token_s(policy: CallPolicy) -> float | None:
        return deadlines_of(policy, purpose=purpose, context_tokens=tokens, local=False).first_token_s

    assert first_token_s(CallPolicy()) == seconds
    assert first_token_s(CallPolicy(first_token_timeout_s=120.0)) == 120.0
    assert first_token_s(CallPolicy(first_token_timeout_s=None)) is None


@pytest.mark.parametrize(
    ("limits", "opened", "deadline", "after_s"),
    [
        (AttemptDeadlines(10, 5, 20, 100), True, "idle", 8),  # three seconds to the head of the response
        (AttemptDeadlines(10, 5, 20, 100), False, "first_token", 10),
        (AttemptDeadlines(7, 5, 20, 100), True, "first_token", 7),
    ],
)
@driven
async def test_E61_idle_counts_from_the_moment_the_stream_is_open(
    limits: AttemptDeadlines, opened: bool, deadline: str, after_s: float
) -> None:
    began = asyncio.get_running_loop().time()

    async def open_and_fall_silent() -> None:
        with DeadlineWatch(limits) as watch:
            await asyncio.sleep(3)
            if opened:
                watch.note_open()
            await asyncio.sleep(1000)

    with pytest.raises(TimedOut) as caught:
        await open_and_fall_silent()
    assert caught.value.deadline == deadline
    assert asyncio.get_running_loop().time() - began == pytest.approx(after_s)


async def beat(watch: DeadlineWatch, *, every_s: float, times: int, advanced: bool) -> None:
    for _ in range(times):
        await asyncio.sleep(every_s)
        watch.note_bytes(advanced=advanced)


@pytest.mark.parametrize(
    ("limits", "advanced", "deadline", "after_s"),
    [
        (AttemptDeadlines(10, 5, 20, 100), False, "first_token", 10),
        (AttemptDeadlines(10, 5, 20, 100), True, "total", 100),
        (AttemptDeadlines(None, 5, 20, 100), False, "progress", 20),
        (AttemptDeadlines(None, 1, 20, 100), False, "idle", 1),
        (AttemptDeadlines(None, None, None, 50), False, "total", 50),
    ],
)
@driven
async def test_each_deadline_by_itself(limits: AttemptDeadlines, advanced: bool, deadline: str, after_s: float) -> None:
    began = asyncio.get_running_loop().time()
    with pytest.raises(TimedOut) as caught, DeadlineWatch(limits, provider="p") as watch:
        await beat(watch, every_s=2, times=1000, advanced=advanced)
    assert (caught.value.deadline, caught.value.provider) == (deadline, "p")
    assert asyncio.get_running_loop().time() - began == pytest.approx(after_s)


class SuspendedLoop(asyncio.SelectorEventLoop):
    """Its clock goes on while its process does not."""

    suspended_s = 0.0

    def time(self) -> float:
        return super().time() + self.suspended_s


@pytest.mark.parametrize("arrived", [True, False])
def test_L146_a_process_that_comes_back_right_at_a_deadline_reads_before_it_judges(arrived: bool) -> None:
    async def back_a_moment_after_the_deadline() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SuspendedLoop)
        with DeadlineWatch(AttemptDeadlines(first_token_s=5, idle_s=5, progress_s=5)) as watch:
            loop.suspended_s += 5.01
            for _ in range(5):  # the socket is read, its reader wakes, what it has read is decoded
                await asyncio.sleep(0)
            if arrived:
                watch.note_bytes(advanced=True)
            for _ in range(20):
                await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=SuspendedLoop) as runner, does_not_raise() if arrived else pytest.raises(TimedOut):
        runner.run(back_a_moment_after_the_deadline())


@pytest.mark.parametrize("arrived", [True, False])
def test_L146_a_process_that_was_suspended_reads_before_it_judges(arrived: bool) -> None:
    async def suspended_in_mid_answer() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SuspendedLoop)
        with DeadlineWatch(AttemptDeadlines(first_token_s=5, idle_s=5, progress_s=5)) as watch:
            watch.note_bytes(advanced=True)
            loop.suspended_s += 3600
            await asyncio.sleep(0)  # the timer is due before anything is read, as on uvloop
            await asyncio.sleep(0)
            if arrived:
                watch.note_bytes(advanced=True)
            else:
                loop.suspended_s += STOOD_STILL_S * 1.5
            for _ in range(20):
                await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=SuspendedLoop) as runner, does_not_raise() if arrived else pytest.raises(TimedOut):
        runner.run(suspended_in_mid_answer())


@driven
async def test_idle_counts_from_the_first_token_on_even_if_it_is_nearer() -> None:
    began = asyncio.get_running_loop().time()

    async def fall_silent() -> None:
        with DeadlineWatch(AttemptDeadlines(first_token_s=100, idle_s=5)) as watch:
            await beat(watch, every_s=50, times=1, advanced=True)
            await asyncio.sleep(1000)

    with pytest.raises(TimedOut) as caught:
        await fall_silent()
    assert caught.value.deadline == "idle"
    assert asyncio.get_running_loop().time() - began == pytest.approx(55)


@driven
async def test_a_watch_without_deadlines_never_interrupts() -> None:
    with DeadlineWatch(AttemptDeadlines()) as watch:
        await beat(watch, every_s=1e6, times=3, advanced=False)


@driven
async def test_what_lengthens_a_deadline_is_asked_once_when_it_is_about_to_pass() -> None:
    began, asked = asyncio.get_running_loop().time(), list[float]()

    class LargeContext:
        def is_thinking(self) -> bool:
            return False

        def lengthened(self, deadlines: AttemptDeadlines) -> AttemptDeadlines:
            asked.append(asyncio.get_running_loop().time() - began)
            return AttemptDeadlines(first_token_s=300, total_s=deadlines.total_s)

    async def wait_for_a_token() -> None:
        with DeadlineWatch(AttemptDeadlines(first_token_s=120, total_s=1800), leniency=LargeContext()):
            await asyncio.sleep(1000)

    with pytest.raises(TimedOut, match="no first token within 300 s"):
        await wait_for_a_token()
    assert asyncio.get_running_loop().time() - began == pytest.approx(300)
    assert asked == [pytest.approx(120)]


@pytest.mark.parametrize("thinks", [False, True])
@driven
async def test_whether_the_model_thinks_is_asked_once_for_a_verdict(thinks: bool) -> None:
    """The answer so far is rebuilt for it, however often the loop looks for bytes before the verdict."""
    began, asked = asyncio.get_running_loop().time(), list[float]()

    class Thinker:
        def is_thinking(self) -> bool:
            asked.append(asyncio.get_running_loop().time() - began)
            return thinks and len(asked) == 1

        def lengthened(self, deadlines: AttemptDeadlines) -> AttemptDeadlines:
            return deadlines

    with pytest.raises(TimedOut) as caught, DeadlineWatch(AttemptDeadlines(progress_s=20), leniency=Thinker()) as watch:
        await beat(watch, every_s=3, times=1000, advanced=False)
    assert caught.value.deadline == "progress"
    assert asked == [pytest.approx(at) for at in ((20, 38) if thinks else (20,))]


@driven
async def test_a_stream_that_goes_on_sets_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, timers = asyncio.get_running_loop(), list[float]()
    call_at = loop.call_at

    def counted(when: float, *arguments: Any, **more: Any) -> asyncio.TimerHandle:
        timers.append(when)
        return call_at(when, *arguments, **more)

    with DeadlineWatch(deadlines_of(CallPolicy(), purpose="turn", context_tokens=0, local=False)) as watch:
        monkeypatch.setattr(loop, "call_at", counted)
        watch.note_open()
        for _ in range(100):
            watch.note_bytes(advanced=True)
        assert timers == []


@driven
async def test_nested_cancels_are_counted_right() -> None:
    """An outer time-out that passes while ours is passing is not swallowed, nor is its count left behind."""

    async def both() -> None:
        async with asyncio.timeout(5):
            with DeadlineWatch(AttemptDeadlines(total_s=5.0)):
                try:
                    await asyncio.sleep(100)
                finally:
                    await asyncio.sleep(0)

    with pytest.raises(TimeoutError):
        await both()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


# ── who does not stream ──────────────────────────────────────────────────────────────────────────────────────


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
