"""Tailrace: agent turns as runs, watched over server-sent events with the log's own numbers as cursors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, ClassVar

from proof.streams.http import Broken, SseEvent, fetch, free_port, stream
from proof.streams.product import Accepted, Cleared, Ended, Kept, Place, Product, Refused, Server, Sight, Text
from proof.streams.services import Postgres

CHECKOUT = Path(__file__).parents[3]
HOW = {"completed": "complete", "incomplete": "failed", "failed": "failed", "stopped": "stopped"}


class Tailrace(Product):
    name = "tailrace"
    page = "docs/http.md"
    setup = "tailrace serve, SQLite; call.idle_timeout_s 3, call.backoff_s 1, call.max_attempts 6, approvals.mode yolo"
    lacks: ClassVar = {"servers": "the other three setups of Tailrace have several"}
    nodes = 1
    arguments: tuple[str, ...] = ()
    lease_s = 2

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._ids: dict[str, str] = {}
        self._urls: list[str] = []
        self._away = False

    @classmethod
    def versions(cls) -> str:
        said = subprocess.run(
            [sys.executable, "-m", "tailrace", "--version"], check=True, capture_output=True, text=True
        )
        return f"{said.stdout.strip()}{_source()}"

    async def store(self) -> str:
        return f"sqlite:///{self.place.directory}/tailrace.db"

    async def start(self) -> None:
        store = await self.store()
        for number in range(self.nodes):
            home = self.place.directory / f"node{number}"
            home.mkdir()
            port = free_port()
            (home / "config.yaml").write_text(json.dumps(self._config(store, port)))
            url = f"http://127.0.0.1:{port}"
            argv = [sys.executable, "-m", "tailrace", "serve", *self.arguments]
            self.servers.append(
                Server(f"tailrace{number}", argv, f"{url}/readyz", self.place, env={"TAILRACE_HOME": str(home)})
            )
            self._urls.append(url)
            await self.servers[-1].start()

    def _config(self, store: str, port: int) -> dict[str, Any]:
        return {
            "model": {"provider": "fault", "name": "numbers"},
            "providers": {"fault": {"dialect": "chat", "base_url": self.place.provider_url}},
            "call": {"idle_timeout_s": 3, "first_token_timeout_s": 3, "backoff_s": 1, "max_attempts": 6},
            "agent": {"tools": ["terminal"]},
            "approvals": {"mode": "yolo"},
            "store": {"url": store, "lease_s": self.lease_s},
            "server": {"port": port},
        }

    def tool(self, url: str) -> tuple[str, dict[str, object]]:
        return "terminal", {"command": f"curl -s {url}"}

    def _url(self, run: str) -> str:
        """A run is begun at the first node; after that node's death the viewers are at the second."""
        return self._urls[1 if self._away else 0] + (f"/runs/{self._ids[run]}" if run in self._ids else "/runs")

    async def ask(self, run: str, prompt: str, *, slow: bool = False) -> AsyncGenerator[Sight, None]:
        answer = await fetch("POST", self._url(run), body={"input": prompt, "idempotency_key": run})
        if answer.status != 201:
            raise Refused(answer.body.decode())
        self._ids[run] = str(answer.json()["id"])
        yield Accepted()
        async for sight in self.attach(run, "", slow=slow):
            yield sight

    async def attach(self, run: str, cursor: str, *, slow: bool = False) -> AsyncGenerator[Sight, None]:
        texts: list[tuple[object, str]] = []
        async with stream("GET", f"{self._url(run)}/stream?after={cursor or 0}", slow=slow) as response:
            if response.status == 204:  # the viewer has the last entry
                kept = await self.kept(run)
                yield Ended(kept.status)
                return
            if response.status != 200:
                raise Broken(f"{response.status}: {(await response.body())[:200]!r}")
            async for event in response.events():
                for sight in _sights(event, texts):
                    yield sight

    async def halt(self, run: str) -> None:
        answer = await fetch("POST", f"{self._url(run)}/stop")
        if answer.status >= 300:
            raise Refused(answer.body.decode())

    async def kept(self, run: str) -> Kept:
        if run not in self._ids:
            return Kept("unknown", "")
        answer = await fetch("GET", self._url(run))
        if answer.status != 200:
            return Kept("unknown", "")
        state = answer.json()
        output = state.get("output") or {}
        text = output.get("text", "") if isinstance(output, dict) else str(output)
        return Kept(HOW.get(str(state["status"]), "running"), str(text))


def _sights(event: SseEvent, texts: list[tuple[object, str]]) -> list[Sight]:
    """`texts` is what this connection has, by attempt: a withdrawn attempt's words are taken from it."""
    if event.event == "error":
        raise Broken(event.data)
    entry = event.json()
    match entry["type"]:
        case "message_chunk":
            texts.append((entry["attempt"], str(entry["text"])))
            return [Text(str(entry["text"]), event.id)]
        case "attempt_discarded":
            texts[:] = [(attempt, text) for attempt, text in texts if attempt != entry["attempt"]]
            return [Cleared(), *(Text(text, event.id) for _, text in texts)]
        case "run_finished":
            return [Ended(HOW[str(entry["status"])])]
        case _:
            return [Text("", event.id)]


def _source() -> str:
    """By which name git knows the source of a checkout: a version number stands for many."""
    tree = _git("rev-parse", "--short=12", "HEAD:src/tailrace")
    changed = "-changed" if _git("status", "--porcelain", "--", "src/tailrace") else ""
    return f" (src/tailrace {tree}{changed})" if tree else ""


def _git(*arguments: str) -> str:
    argv = ["git", "-C", str(CHECKOUT), *arguments]
    try:
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


class TailraceWorkers(Tailrace):
    """Four processes on one port and one file."""

    name = "tailrace-workers"
    page = "docs/scaling.md"
    setup = "tailrace serve --workers 4, SQLite; the same keys, and store.lease_s 2"
    lacks: ClassVar = {}
    arguments = ("--workers", "4")

    def _one(self, number: signal.Signals) -> int:
        """The worker with the most connections: it has runs."""
        chosen = max(self.servers[0].workers(), key=lambda pid: len(list(Path(f"/proc/{pid}/fd").iterdir())))
        os.kill(chosen, number)
        return chosen

    def kill_one(self) -> None:
        self._one(signal.SIGKILL)

    def hang_one(self) -> int:
        return self._one(signal.SIGSTOP)


class TailracePostgres(Tailrace):
    """Three nodes on PostgreSQL."""

    name = "tailrace-postgres"
    page = "docs/integrations/postgres.md"
    setup = "three tailrace serve, store postgresql://; the same keys, and store.lease_s 2"
    lacks: ClassVar = {}
    nodes = 3

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._postgres = Postgres(place.directory)

    async def store(self) -> str:
        await self._postgres.start()
        return self._postgres.url

    def kill_one(self) -> None:
        super().kill_one()
        self._away = True

    def hang_one(self) -> int:
        self._away = True
        return super().hang_one()

    async def restart(self) -> None:
        await super().restart()
        self._away = False

    async def stop(self) -> None:
        await super().stop()
        self._postgres.end()
