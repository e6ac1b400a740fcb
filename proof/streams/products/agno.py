"""agno: background runs of an AgentOS with its durable queue, resumed by the index of the last event."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import ClassVar

from proof.streams.http import Broken, Response, fetch, free_port, stream
from proof.streams.product import PROGRAMS, Accepted, Ended, Kept, Place, Product, Refused, Server, Sight, Text
from proof.streams.services import Postgres, Redis

END_EVENTS = {"RunCompleted": "complete", "RunError": "failed", "RunCancelled": "stopped", "error": "failed"}
HOW = {"COMPLETED": "complete", "ERROR": "failed", "CANCELLED": "stopped"}


class Agno(Product):
    name = "agno"
    page = "https://docs.agno.com/agent-os/background-execution/overview"
    setup = (
        "AgentOS on PostgreSQL and Redis, QueueConfig(durable=True, lock_grace_seconds=5), model: retries=3, timeout=3"
    )
    packages = (
        "agno==3.1.10",
        "openai==3.51.0",
        "fastapi==0.163.0",
        "uvicorn==0.54.0",
        "sqlalchemy[asyncio]==2.1.8",
        "psycopg[binary]==3.3.9",
        "redis==8.1.0",
        "python-multipart==0.0.33",
    )

    lacks: ClassVar = {"mends": "it passes on what the model says"}

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._postgres = Postgres(place.directory)
        self._redis = Redis(place.directory)
        self._ids: dict[str, str] = {}
        self._urls: list[str] = []
        self._entrance = 0

    async def start(self) -> None:
        await self._postgres.start()
        await self._redis.start()
        for number in range(2):
            port = free_port()
            url = f"http://127.0.0.1:{port}"
            env = {
                "PORT": str(port),
                "PROVIDER": self.place.provider_url,
                "DATABASE": self._postgres.url,
                "REDIS": self._redis.url,
                "AGNO_TELEMETRY": "false",
            }
            argv = [self.python(), str(PROGRAMS / "agno_server.py")]
            self.servers.append(Server(f"agno{number}", argv, f"{url}/health", self.place, env=env))
            self._urls.append(f"{url}/agents/numbers/runs")
            await self.servers[-1].start()

    async def ask(self, run: str, prompt: str, *, slow: bool = False) -> AsyncGenerator[Sight, None]:
        form = {"message": prompt, "stream": "true", "background": "true", "session_id": run}
        async with stream("POST", self._urls[0], form=form, slow=slow) as response:
            if response.status != 200:
                raise Refused((await response.body()).decode(errors="replace"))
            async for sight in self._sights(run, response):
                yield sight

    async def attach(self, run: str, cursor: str, *, slow: bool = False) -> AsyncGenerator[Sight, None]:
        form = {"session_id": run, **({"last_event_index": cursor} if cursor else {})}
        url = f"{self._urls[self._entrance]}/{self._ids[run]}/resume"
        async with stream("POST", url, form=form, slow=slow) as response:
            if response.status != 200:
                raise Broken(f"{response.status}: {(await response.body())[:200]!r}")
            async for sight in self._sights(run, response):
                yield sight

    async def _sights(self, run: str, response: Response) -> AsyncGenerator[Sight, None]:
        async for event in response.events():
            told = event.json()
            if "run_id" in told and run not in self._ids:
                self._ids[run] = str(told["run_id"])
                yield Accepted()
            cursor = str(told.get("event_index", ""))
            if event.event == "RunContent":
                yield Text(str(told.get("content") or ""), cursor)
            elif event.event == "replay" and not told.get("total_events"):
                # The viewer has all events that there are: the state of the run is told in their place.
                yield Ended(HOW.get(str(told.get("status", "")).upper(), "failed"))
                return
            elif event.event in END_EVENTS:
                yield Ended(END_EVENTS[event.event])
                return
            else:
                yield Text("", cursor)

    async def halt(self, run: str) -> None:
        answer = await fetch("POST", f"{self._urls[self._entrance]}/{self._ids[run]}/cancel")
        if answer.status >= 300:
            raise Refused(answer.body.decode())

    async def kept(self, run: str) -> Kept:
        if run not in self._ids:
            return Kept("unknown", "")
        answer = await fetch("GET", f"{self._urls[self._entrance]}/{self._ids[run]}?session_id={run}")
        if answer.status != 200:
            return Kept("unknown", "")
        state = answer.json()
        status = str(state.get("status", "")).upper()
        content = state.get("content")
        return Kept(HOW.get(status, "running"), content if isinstance(content, str) else "")

    def kill_one(self) -> None:
        super().kill_one()
        self._entrance = 1

    def hang_one(self) -> int:
        self._entrance = 1
        return super().hang_one()

    async def restart(self) -> None:
        await super().restart()
        self._entrance = 0

    async def stop(self) -> None:
        await super().stop()
        self._postgres.end()
        self._redis.end()
