"""One run and many who watch it; one stream and how long it gets.

    python -m bench viewers

The first table is what one further viewer costs per token, at the pace of a common model and of a quick one: CPU time
of the server over a window without arrivals or departures, with many viewers and with one. The second is what a token
costs in answers of 100 to 1,000,000 tokens, without what the request itself costs.
"""

from __future__ import annotations

import http.client
import sys
import threading
import time

import msgspec

from bench.gateway.native import Load, NoCompiler, Seen, cores_for, provider
from bench.gateway.programs import OWN, Running, started
from bench.table import Table

VIEWERS = 1000
ARRIVAL_S, SETTLE_S, WINDOW_S = 4.0, 2.0, 4.0
LENGTHS = (100, 1_000, 10_000, 100_000, 1_000_000)


def main() -> list[Table]:
    [raw] = [program for program in OWN if program.name == "raw"]
    try:
        with provider(cores_for(1).load) as upstream, started(raw, upstream.port) as server:
            return [watched(server), lengths(server)]
    except NoCompiler as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None


def watched(server: Running) -> Table:
    table = Table("one run", "tokens/s", "viewers", "whole", "server's core busy", "µs per viewer and token")
    for every_ms in (50, 5):
        alone, _ = window(server, 1, every_ms)
        busy, seen = window(server, VIEWERS, every_ms)
        each_us = (busy - alone) / (VIEWERS - 1) / (WINDOW_S * 1000 / every_ms) * 1e6
        table.row(1000 // every_ms, VIEWERS, seen.whole, f"{busy / WINDOW_S:.0%}", each_us)
    return table


def window(server: Running, viewers: int, every_ms: int) -> tuple[float, Seen]:
    """CPU seconds of the server in a window, and what the viewers saw over the whole run."""
    tokens = int((ARRIVAL_S + SETTLE_S + WINDOW_S + 1) * 1000 / every_ms)
    run = start_run(server.port, f"bench:paced-{tokens}-{every_ms}")
    load = Load(server.port, f"GET /runs/{run}/stream", None, server.cores.load)
    seen: list[Seen] = []
    watching = threading.Thread(target=lambda: seen.append(load.watch(viewers, tokens, ARRIVAL_S, limit_s=60)))
    watching.start()
    time.sleep(ARRIVAL_S + SETTLE_S)
    before = server.cpu_s()
    time.sleep(WINDOW_S)
    spent = server.cpu_s() - before
    watching.join()
    return spent, seen[0]


def start_run(port: int, text: str) -> str:
    asking = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        body = msgspec.json.encode({"model": "up/bench", "input": text})
        asking.request("POST", "/runs", body, {"Content-Type": "application/json"})
        return str(msgspec.json.decode(asking.getresponse().read())["id"])
    finally:
        asking.close()


def lengths(server: Running) -> Table:
    table = Table("one raw stream", "tokens", "answers", "µs per token", f"of that at {LENGTHS[1]:,}")
    request_s = _cpu_per_answer(server, 1, 2.0)[0]
    costs = {}
    answers = {}
    for tokens in LENGTHS:
        cpu_s, answers[tokens] = _cpu_per_answer(server, tokens, 2.0 if tokens <= 10_000 else 60.0)
        costs[tokens] = (cpu_s - request_s) / tokens * 1e6
    for tokens in LENGTHS:
        table.row(tokens, answers[tokens], costs[tokens], f"{costs[tokens] / costs[LENGTHS[1]]:.2f}")
    return table


def _cpu_per_answer(server: Running, tokens: int, seconds: float) -> tuple[float, int]:
    """CPU seconds of the server per whole answer. A long answer is asked for once: it takes what it takes."""
    before = server.cpu_s()
    load = server.load
    seen = load.one_answer(tokens, seconds) if seconds > 10 else load.flat_out(1, tokens, seconds)
    if not seen.whole:
        raise RuntimeError(f"no answer of {tokens} tokens came whole: {seen.failure}")
    return (server.cpu_s() - before) / (seen.tokens / tokens), seen.whole


if __name__ == "__main__":
    for measured in main():
        print(f"\n{measured}")
