"""Viewers of one run, and streams that are open at once on one node."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import msgspec

from bench import fanout
from bench.gateway.native import cores_for, provider
from bench.gateway.programs import OWN, Running, started, tailrace
from bench.table import Table

VIEWERS = (1, 10, 100, 1_000)
STREAMS = 10_000
TOKENS, EVERY_MS, ARRIVAL_S = 8, 2_000, 10.0
LIMIT_S = 300.0
LENGTHS = (100, 1_000, 10_000, 100_000, 1_000_000)
[RAW] = [program for program in OWN if program.name == "raw"]


def viewers(quick: bool) -> list[Table]:
    table = Table("viewers of one run at 20 tokens/s: CPU µs per viewer and token", "viewers", "bare write", "Tailrace")
    for number in VIEWERS[::3] if quick else VIEWERS:
        bare, ours = fanout.measured(number)
        table.row(number, bare * 1e6, ours * 1e6)
    return [table]


def lengths(quick: bool) -> list[Table]:
    """What a token of a raw stream costs in long answers, without what the request itself costs."""
    sizes = LENGTHS[:3] if quick else LENGTHS
    table = Table("one raw stream", "tokens", "answers", "CPU µs per token", "of the first")
    with provider(cores_for(1).load) as upstream, started(RAW, upstream.port) as server:
        request_s, _ = _cpu_per_answer(server, 1, 2.0)
        found = [(tokens, *_cpu_per_answer(server, tokens, 2.0 if tokens <= 10_000 else 60.0)) for tokens in sizes]
    costs = [(cpu_s - request_s) / tokens * 1e6 for tokens, cpu_s, _ in found]
    for (tokens, _, answers), cost in zip(found, costs, strict=True):
        table.row(tokens, answers, cost, f"{cost / costs[0]:.2f}")
    return [table]


def _cpu_per_answer(server: Running, tokens: int, seconds: float) -> tuple[float, int]:
    """CPU seconds of the server per whole answer. A long answer is asked for once: it takes what it takes."""
    before, load = server.cpu_s(), server.load
    seen = load.one_answer(tokens, seconds) if seconds > 10 else load.flat_out(1, tokens, seconds)
    if not seen.whole:
        raise RuntimeError(f"no answer of {tokens} tokens came whole: {seen.failure}")
    return (server.cpu_s() - before) / (seen.tokens / tokens), seen.whole


def streams(quick: bool) -> list[Table]:
    number = _fitting(STREAMS // 10 if quick else STREAMS)
    program = msgspec.structs.replace(RAW, command=tailrace(max_requests=2 * number))
    table = Table(
        f"{number:,} raw streams on one node",
        *("what", "wall s", "its CPU s", "kB a stream", "whole", "first token p50 ms", "p99", "a later token p99 ms"),
    )
    with provider(cores_for(1).load) as upstream, started(program, upstream.port) as server:
        _open_and_close(server, number, table)
        cpu_s, began = server.cpu_s(), time.perf_counter()
        seen = server.load.paced(number, TOKENS, EVERY_MS, ARRIVAL_S)
        spent = (time.perf_counter() - began, server.cpu_s() - cpu_s, "")
        spread = (seen.first_ms.p50, seen.first_ms.p99, seen.token_ms.p99)
        table.row(f"opened in {ARRIVAL_S:g} s, a token every {EVERY_MS / 1000:g} s", *spent, seen.whole, *spread)
    return [table]


def _open_and_close(server: Running, number: int, table: Table) -> None:
    """As fast as it takes them, all at once; the wall clock until the last has its first token, and until the last
    connection is closed."""
    with server.load.idle(20):  # what is allocated once is not a stream's
        before, files = server.memory_kb(), _files(server)
        cpu_s = server.cpu_s()
        with server.load.idle(number, LIMIT_S) as seen:
            spent = server.cpu_s() - cpu_s
            held = (server.memory_kb() - before) / max(seen.tokens, 1)
            table.row("opened", seen.seconds, spent, held, seen.tokens, seen.first_ms.p50, seen.first_ms.p99, "")
            cpu_s, began = server.cpu_s(), time.perf_counter()
        while _files(server) > files + 20 and time.perf_counter() - began < LIMIT_S:
            time.sleep(0.02)
        table.row("closed by their clients", time.perf_counter() - began, server.cpu_s() - cpu_s, *[""] * 5)


def _files(server: Running) -> int:
    return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in server.processes())


def _fitting(number: int) -> int:
    """As many of so many streams as may be open here: each has two files in the server."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return number if hard == resource.RLIM_INFINITY else min(number, (hard - 200) // 2)
