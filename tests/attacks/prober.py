"""A process that asks /healthz over and over: `prober.py PORT`. For each line that it reads it prints the worst answer
so far, in milliseconds, and the number of answers, and begins anew. Imports the standard library alone.

A process of its own: what keeps the attacker busy must not look like a busy server.
"""

from __future__ import annotations

import http.client
import select
import sys
import time

PAUSE_S = 0.005
TIMEOUT_S = 120.0


def main() -> None:
    port = int(sys.argv[1])
    worst = 0.0
    answers = 0
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    while True:
        begun = time.perf_counter()
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        worst = max(worst, time.perf_counter() - begun)
        answers += 1
        if select.select([sys.stdin], [], [], PAUSE_S)[0]:
            if not sys.stdin.readline():
                return
            sys.stdout.write(f"{worst * 1000:.1f} {answers}\n")
            sys.stdout.flush()
            worst, answers = 0.0, 0


if __name__ == "__main__":
    main()
