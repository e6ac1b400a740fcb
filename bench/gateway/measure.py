"""What is measured of each program, and in which order.

All programs run at once and take turns, so that a noisy neighbour hits all of them. Rates are per second of the
program's own CPU time: that is what a core of it carries, also when the load generator or a neighbour leaves it idle
for a moment. Paced streams go in step with the program and are timed by its CPU too, see lockstep.h: on a machine that
is shared, a latency by the wall clock is mostly a neighbour's.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import msgspec

from bench.gateway.native import Provider, Seen, Slices, cores_for, provider
from bench.gateway.programs import NotServing, Program, Running, cpu_s_of, started

PACE_MS = 50  # 20 tokens a second
FIRST_PACE_MS = 20  # of the streams whose first token is timed: each has ended when the next begins, 50 ms later
LATE_MS = 50.0  # p99 from provider to client that a paced stream may have
PAUSE_STREAMS = 1000
TRIES_OF_A_NUMBER = 2  # a virtual machine stops now and then without counting it as taken away
MINUTE_OF = "raw"  # whose longest pause is promised; the others have a sixth of the time
FULL_CORE = 0.9  # from here on the load generator's core may be what ends a figure


class Effort(msgspec.Struct, frozen=True):
    """How long each part takes."""

    rounds: int
    seconds: float  # of a burst of requests or tokens
    tokens: int  # of a paced stream
    tries: int  # to find the most paced streams
    pause_tokens: int
    idle: int
    limit_s: float = float("inf")  # of all programs together; what comes later is left out


QUICK = Effort(rounds=1, seconds=0.7, tokens=23, tries=3, pause_tokens=120, idle=200, limit_s=105.0)
WHOLE = Effort(rounds=3, seconds=2.0, tokens=63, tries=7, pause_tokens=1203, idle=400)


class Figures(msgspec.Struct):
    """Of one program. `limited` names the figures that the load generator's core ended: the program can do more."""

    name: str
    label: str
    version: str = ""
    requests: float = 0.0  # of one token, per second and core
    requests_wall: float = 0.0  # the same per second of the clock on the wall, with provider and load on another core
    request_cpu_ms: float = 0.0
    flat: float = 0.0  # tokens per second and core
    flat_wall: float = 0.0
    paced: float = 0.0  # tokens per second
    paced_wall_p99_ms: float = 0.0  # from provider to client by the wall, at the most streams
    paced_cpu_us: float = 0.0  # per token, at the most streams
    first_ms: float = 0.0
    idle_kb: float = 0.0
    pause_ms: float = 0.0
    pause_p99_ms: float = 0.0
    pause_streams: int = 0
    limited: list[str] = []
    failure: str = ""


def most(fits: Callable[[int], bool], start: int, tries: int, known: int = 0, until: float = float("inf")) -> int:
    """The largest number found to fit, by growing or shrinking from `start` and then halving the gap; 0 for none.
    `known` fits, and is less than `start`. After `until`, on the monotonic clock, one that fits is enough."""
    low, high, number = known, 0, start
    for _ in range(tries):
        if low and time.monotonic() > until:
            break
        if fits(number):
            low = number
        else:
            high = number
        if high and high - low <= high // 20:
            break
        number = (low + high) // 2 if low and high else low * 7 // 5 if low else high // 2
        if number in (0, low, high):
            break
    return low


def streams_of_pause(carried: int) -> int:
    """The load of the longest pause: what is promised of it where the program carries so many streams, else half of
    what it carries."""
    return PAUSE_STREAMS if carried >= PAUSE_STREAMS else carried // 2


class Measuring:
    """One program and its figures."""

    def __init__(self, running: Running, upstream: Provider, effort: Effort) -> None:
        self.figures = Figures(running.program.name, running.program.label, running.program.version())
        self._running, self._upstream, self._effort = running, upstream, effort
        self._cpu_s = 0.0  # of the program, in the last run
        self._requests: list[float] = []
        self._flat: list[float] = []

    def _seen(self, column: str, run: Callable[[], Seen]) -> Seen:
        cpu_s, provider_s = self._running.cpu_s(), cpu_s_of(self._upstream.pid)
        seen = run()
        self._cpu_s = max(self._running.cpu_s() - cpu_s, 0.005)
        load_s = seen.load_cpu_s + cpu_s_of(self._upstream.pid) - provider_s
        if load_s > FULL_CORE * seen.seconds and not seen.stepped_s and column not in self.figures.limited:
            self.figures.limited.append(column)
        if seen.failed:
            self.figures.failure = self.figures.failure or f"{column}: {seen.failed} failed, the first: {seen.failure}"
        return seen

    def idle(self) -> None:
        """First of all: memory that was freed before would hide what is taken."""
        load = self._running.load
        with load.idle(20):  # what is allocated once is not a stream's
            before = self._running.memory_kb()
            with load.idle(self._effort.idle) as seen:
                held = self._running.memory_kb() - before
        self.figures.idle_kb = held / max(seen.tokens, 1)

    def warm_up(self) -> None:
        self._running.load.requests(16, self._effort.seconds / 2)
        self._running.load.flat_out(4, 500, self._effort.seconds / 4)

    def requests(self) -> None:
        seen = self._seen("requests", lambda: self._running.load.requests(16, self._effort.seconds))
        self._requests.append(seen.whole / self._cpu_s)
        self.figures.requests = statistics.median(self._requests)
        self.figures.requests_wall = max(self.figures.requests_wall, seen.whole / seen.seconds)
        self.figures.request_cpu_ms = 1000 / max(self.figures.requests, 0.001)

    def first_token(self) -> None:
        """Of 20 streams a second, each on a connection of its own; the quietest round counts. At their usual pace the
        last token of each would come with the first of the next, and its end would be timed too."""
        seconds = max(1.0, self._effort.seconds)
        seen = self._running.load.paced(int(20 * seconds), 2, FIRST_PACE_MS, seconds)
        self.figures.first_ms = min(self.figures.first_ms or seen.first_ms.p50, seen.first_ms.p50)

    def flat_out(self) -> None:
        seen = self._seen("flat", lambda: self._running.load.flat_out(8, 2000, self._effort.seconds))
        self._flat.append(seen.tokens / self._cpu_s)
        self.figures.flat = statistics.median(self._flat)
        self.figures.flat_wall = max(self.figures.flat_wall, seen.tokens / seen.seconds)

    def _in_step(self, column: str, streams: int, tokens: int) -> Seen:
        running, slices = self._running, Slices(PACE_MS, self._running.program.slice_us)
        return self._seen(
            column, lambda: running.load.in_step(streams, tokens, slices, running.processes(), self._upstream)
        )

    def paced(self, until: float = float("inf")) -> None:
        """Called again, it looks whether the program carries more than it did: on a shared machine the same token costs
        45 µs of CPU and some minutes later 80, and the minutes of one program are not those of another."""
        effort, best, known = self._effort, self.figures.paced_cpu_us, int(self.figures.paced * PACE_MS / 1000)
        if known:
            start = known + max(1, known // 10)
        else:
            trial = self._in_step("paced", 60, effort.tokens)
            start = max(20, int(60 * 0.9 / max(trial.program_cpu_s / max(trial.stepped_s, 1e-3), 1e-3)))

        def fits(streams: int) -> bool:
            nonlocal best
            for _ in range(TRIES_OF_A_NUMBER):
                seen = self._in_step("paced", streams, effort.tokens)
                if seen.whole == streams and seen.token_ms.p99 < LATE_MS:
                    best = seen.program_cpu_s / (streams * seen.stepped_s * 1000 / PACE_MS) * 1e6
                    return True
            return False

        self.figures.failure = ""
        self.figures.paced = most(fits, start, effort.tries, known, until) * 1000 / PACE_MS
        self.figures.paced_cpu_us = best
        self.figures.failure = ""  # streams over what it carries may fail

    def paced_by_the_wall(self) -> None:
        """The same streams as they come in life, with nobody who waits for the program; they begin within a second."""
        if streams := int(self.figures.paced * PACE_MS / 1000):
            seen = self._running.load.paced(streams, self._effort.tokens, PACE_MS, 1.0)
            self.figures.paced_wall_p99_ms = seen.token_ms.p99

    def pause(self) -> None:
        """The quietest of three runs counts."""
        streams = streams_of_pause(int(self.figures.paced * PACE_MS / 1000))
        if streams < 10:
            return
        tokens = self._effort.pause_tokens // (1 if self.figures.name == MINUTE_OF else 6)
        runs = [self._in_step("pause", streams, tokens) for _ in range(self._effort.rounds)]
        seen = min(runs, key=lambda run: run.pause_ms)
        self.figures.pause_ms, self.figures.pause_p99_ms = seen.pause_ms, seen.token_ms.p99
        self.figures.pause_streams = streams


def measure(programs: Sequence[Program], effort: Effort) -> list[Figures]:
    """In the order of `programs`; those that are missing or do not serve are left out, and said on stderr."""
    deadline = time.monotonic() + effort.limit_s
    with ExitStack() as stack:
        upstream = stack.enter_context(provider(cores_for(1).load))
        measuring = [Measuring(running, upstream, effort) for running in _all_started(programs, upstream, stack)]
        for one in measuring:
            one.idle()
        for one in measuring:
            one.warm_up()
        for turn in range(effort.rounds):
            say(f"  requests and tokens, round {turn + 1} of {effort.rounds}")
            for one in measuring:
                one.first_token()
                one.requests()
                one.flat_out()
        for turn in range(effort.rounds):
            for place, one in enumerate(measuring):
                say(f"  most paced streams of {one.figures.name}, round {turn + 1} of {effort.rounds}")
                now, left = time.monotonic(), len(measuring) - place
                one.paced(now + (deadline - now) / (left + len(measuring)))  # the last part takes about as long
        for one in sorted(measuring, key=lambda one: one.figures.name != MINUTE_OF):
            if time.monotonic() > deadline:
                say(f"  without the longest pause of {one.figures.name}: the time is up")
                continue
            say(f"  the clock on the wall, and the longest pause, of {one.figures.name}")
            one.paced_by_the_wall()
            one.pause()
    return [one.figures for one in measuring]


def _all_started(programs: Sequence[Program], upstream: Provider, stack: ExitStack) -> list[Running]:
    """All at once: some take half a minute, most of it waiting."""
    there = []
    for program in programs:
        if program.missing:
            say(f"  without {program.name}: {program.missing}")
        else:
            there.append((program, started(program, upstream.port)))
    say(f"  starting {', '.join(program.name for program, _ in there)}")
    running = []
    with ThreadPoolExecutor(max(1, len(there))) as pool:
        for (program, context), begun in [(each, pool.submit(each[1].__enter__)) for each in there]:
            try:
                running.append(begun.result())
            except NotServing as error:
                say(f"  without {program.name}: {error}")
            else:
                stack.push(context)
    return running


def busy_elsewhere(seconds: float = 0.5) -> float:
    """The share of all cores' time that other work takes, before anything is measured."""

    def times() -> tuple[int, int]:
        line = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
        fields = [int(field) for field in line.split()[1:9]]
        return sum(fields), fields[3] + fields[4]  # idle, and idle while a disk works

    total, idle = times()
    time.sleep(seconds)
    total_after, idle_after = times()
    return 1 - (idle_after - idle) / max(total_after - total, 1)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
