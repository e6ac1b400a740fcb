"""What is counted, and how each is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bench.counts.peer import BEGIN, END, REFUSAL, Client, Provider, clients, said, token

ROOT = Path(__file__).parents[2]
ROUNDS = 3  # the least counts: a timer that fires in between adds to the others
REQUESTS, TOKENS, VIEWER_TOKENS, VIEWERS, IDLE = 20, 50, 20, 10, 30
CHAT_PATH, RESPONSES_PATH = "/v1/chat/completions", "/v1/responses"
CHAT = {"model": "up/bench", "stream": True, "messages": [{"role": "user", "content": "Go."}]}
KEYED = CHAT | {"model": "keyed/bench"}
KEY = "sk-counted-0123456789abcdef"  # its answers are searched for it
STORED = {"model": "up/bench", "stream": True, "store": True, "input": "Go."}
AGENT = CHAT | {"model": "tailrace"}
LAST_CHUNK = b"\r\n0\r\n\r\n"


class Count(msgspec.Struct):
    """Of one case, per unit: function calls with where they go, or another quantity without."""

    name: str
    unit: str
    value: float
    profile: dict[str, float] = {}


class _Window(msgspec.Struct):
    calls: dict[str, int]
    cycles: int


class Counted:
    """A counted server and its peers."""

    def __init__(self, process: subprocess.Popen[str], provider: Provider, port: int) -> None:
        self._process = process
        self.provider = provider
        self.port = port

    def _order(self, line: str) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().encode()

    def counted(self, act: Callable[[], None]) -> _Window:
        self._order("start")
        act()
        return msgspec.json.decode(self._order("stop"), type=_Window)

    def blocks(self) -> int:
        return int(self._order("blocks"))

    def answer_at_once(self, client: Client, path: str, body: dict[str, Any]) -> None:
        """A request of one token."""
        client.ask("POST", path, body)
        asked = self.provider.request()
        asked.sendall(BEGIN + said(0) + END)
        client.read_until(LAST_CHUNK)
        self.provider.done(asked)


@contextmanager
def counted_server(module: str = "bench.counts.served", *arguments: str) -> Iterator[Counted]:
    """`module` is what is run: `bench.counts.served`, or one that adds to it."""
    provider = Provider()
    with tempfile.TemporaryDirectory(prefix="tailrace-counts-") as home:
        config = {
            "model": {"provider": "up", "name": "bench"},
            "providers": {
                "up": {"dialect": "chat", "base_url": provider.url},
                "keyed": {"dialect": "chat", "base_url": provider.url, "key_env": "COUNTED_KEY"},
            },
            "server": {"drain_s": 0.1},
        }
        (Path(home) / "config.yaml").write_bytes(msgspec.json.encode(config))
        with (Path(home) / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", module, home, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env={**os.environ, "COUNTED_KEY": KEY},
            )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            address = process.stdout.readline()
            if not address:
                raise RuntimeError((Path(home) / "log").read_text(encoding="utf-8"))
            yield Counted(process, provider, int(address.rpartition(":")[2]))
        finally:
            process.stdin.close()  # ends it
            process.wait(20)
            process.stdout.close()
            provider.close()


def _least(name: str, unit: str, units: int, windows: list[_Window]) -> Count:
    least = min(windows, key=lambda window: sum(window.calls.values()))
    profile = {function: count / units for function, count in least.calls.items()}
    return Count(name, unit, sum(least.calls.values()) / units, profile)


def requests(server: Counted, name: str, path: str, body: dict[str, Any]) -> list[Count]:
    """Requests of one token, one after the other on one connection."""
    with clients(server.port, 1) as [client]:

        def ask(times: int) -> None:
            for _ in range(times):
                server.answer_at_once(client, path, body)

        ask(REQUESTS)  # what is done once is done
        windows, kept = [], []
        for _ in range(ROUNDS):
            before = server.blocks()
            windows.append(server.counted(lambda: ask(REQUESTS)))
            kept.append((server.blocks() - before) / REQUESTS)
    return [
        _least(name, "calls per request of one token", REQUESTS, windows),
        Count(f"{name} cycles", "objects in cycles per request", min(w.cycles for w in windows) / REQUESTS),
        Count(f"{name} kept", "blocks kept per request that has ended", max(0.0, min(kept))),
    ]


def connections(server: Counted) -> list[Count]:
    """A request of one token on a connection of its own, as most streams come."""

    def ask() -> None:
        for _ in range(REQUESTS):
            with clients(server.port, 1) as [client]:
                server.answer_at_once(client, CHAT_PATH, CHAT)

    def leave() -> None:
        for _ in range(REQUESTS):
            with clients(server.port, 1) as [client]:
                client.ask("POST", CHAT_PATH, CHAT)
                asked = server.provider.request()
                asked.sendall(BEGIN + said(0))
                client.read_until(token(0).encode())
            asked.recv(1)  # the server closes it, for its client is gone

    windows = [server.counted(ask) for _ in range(ROUNDS)]
    left = [server.counted(leave) for _ in range(ROUNDS)]
    return [
        _least("connection", "calls per connection with a request of one token", REQUESTS, windows),
        Count("connection cycles", "objects in cycles per connection", min(w.cycles for w in windows) / REQUESTS),
        Count(
            "left cycles", "objects in cycles per stream that its client leaves", min(w.cycles for w in left) / REQUESTS
        ),
    ]


def refusals(server: Counted, name: str, path: str, body: dict[str, Any]) -> Count:
    """Requests that the provider refuses."""
    with clients(server.port, 1) as [client]:

        def ask() -> None:
            for _ in range(REQUESTS):
                client.ask("POST", path, body)
                asked = server.provider.request()
                asked.sendall(REFUSAL)
                client.read_whole()
                server.provider.done(asked)

        ask()
        windows = [server.counted(ask) for _ in range(ROUNDS)]
    return Count(f"{name} cycles", "objects in cycles per refused request", min(w.cycles for w in windows) / REQUESTS)


def tokens(server: Counted, name: str, unit: str, path: str, body: dict[str, Any]) -> Count:
    windows = []
    for _ in range(ROUNDS):
        with clients(server.port, 1) as [client]:
            client.ask("POST", path, body)
            asked = server.provider.request()
            asked.sendall(BEGIN + said(0))
            client.read_until(token(0).encode())

            def stream(first: int, last: int, to: Client = client) -> None:
                for number in range(first, last):
                    asked.sendall(said(number))  # noqa: B023 - called within this round
                    to.read_until(token(number).encode())

            stream(1, 10)
            windows.append(server.counted(lambda: stream(10, 10 + TOKENS)))
            asked.sendall(END)
            client.read_until(LAST_CHUNK)
            server.provider.done(asked)
    return _least(name, unit, TOKENS, windows)


def _watched(server: Counted, viewers: int) -> _Window:
    """One agent turn of some tokens, committed, with so many who tail it."""
    with clients(server.port, viewers + 1) as [starter, *watching]:
        starter.ask("POST", "/runs", {"model": "up/bench", "input": "Go."})
        run = msgspec.json.decode(starter.read_whole())["id"]
        asked = server.provider.request()
        asked.sendall(BEGIN + said(0))
        for viewer in watching:
            viewer.ask("GET", f"/runs/{run}/stream")
            viewer.read_until(token(0).encode())

        def stream(first: int, last: int) -> None:
            for number in range(first, last):
                asked.sendall(said(number))
                for viewer in watching:
                    viewer.read_until(token(number).encode())

        stream(1, 10)
        window = server.counted(lambda: stream(10, 10 + VIEWER_TOKENS))
        asked.sendall(END)
        for viewer in watching:
            viewer.read_until(LAST_CHUNK)
        server.provider.done(asked)
    return window


def viewers(server: Counted) -> list[Count]:
    """The difference of two counts, which are taken in turns: what else the machine does is in both of them."""
    rounds = [(_watched(server, 1), _watched(server, 1 + VIEWERS)) for _ in range(ROUNDS)]
    unit = "calls per token of an agent turn with a viewer"
    one = _least("agent token", unit, VIEWER_TOKENS, [alone for alone, _ in rounds])
    many = _least("", "", VIEWER_TOKENS, [crowd for _, crowd in rounds])
    added = Counter(many.profile)
    added.subtract(one.profile)
    profile = {function: count / VIEWERS for function, count in added.items() if count > 0}
    return [one, Count("viewer", "calls per further viewer and token", (many.value - one.value) / VIEWERS, profile)]


def idle(server: Counted) -> Count:
    with clients(server.port, 5 + IDLE) as opened:
        held = []
        for count, client in enumerate(opened):
            if count == 5:
                before = server.blocks()
            client.ask("POST", CHAT_PATH, CHAT)
            held.append(server.provider.request())
            held[-1].sendall(BEGIN + said(0))
            client.read_until(token(0).encode())
        blocks = (server.blocks() - before) / IDLE
        for client, asked in zip(opened, held, strict=True):
            asked.sendall(END)
            client.read_until(LAST_CHUNK)
            server.provider.done(asked)
    return Count("idle", "blocks held per open stream", blocks)


def count_all(server: Counted) -> list[Count]:
    return [
        *requests(server, "request", CHAT_PATH, CHAT),
        *requests(server, "stored request", RESPONSES_PATH, STORED),
        *requests(server, "agent request", CHAT_PATH, AGENT),
        *connections(server),
        refusals(server, "refused request", CHAT_PATH, CHAT),
        refusals(server, "refused stored request", RESPONSES_PATH, STORED),
        refusals(server, "refused agent request", CHAT_PATH, AGENT),
        tokens(server, "token", "calls per token of a raw chat stream", CHAT_PATH, CHAT),
        tokens(server, "keyed token", "calls per token of a provider with a key", CHAT_PATH, KEYED),
        tokens(server, "committed", "calls per token of a stored response, committed", RESPONSES_PATH, STORED),
        *viewers(server),
        idle(server),
    ]
