"""DBOS: a workflow that writes the model's tokens to a durable stream, read by offset."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import ClassVar

from proof.streams.http import Broken, fetch, free_port, stream
from proof.streams.product import PROGRAMS, Accepted, Ended, Kept, Place, Product, Refused, Server, Sight, Text
from proof.streams.services import Postgres

HOW = {"SUCCESS": "complete", "ERROR": "failed", "CANCELLED": "stopped", "MAX_RECOVERY_ATTEMPTS_EXCEEDED": "failed"}


class Dbos(Product):
    name = "dbos"
    page = "https://docs.dbos.dev/ai/streaming"
    setup = "PostgreSQL, the page's workflow and step with a tool, OpenAI client with timeout=3"
    packages: ClassVar[Sequence[str]] = ("dbos==3.4.0", "openai==3.51.0", "fastapi==0.163.0", "uvicorn==0.54.0")
    program = "dbos_server.py"
    lacks: ClassVar = {
        "mends": "a durable engine: the program decides what an empty answer means",
        "servers": "without its hosted control plane, a dead executor's workflows wait for its restart",
    }

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._postgres = Postgres(place.directory)
        self._url = ""

    async def start(self) -> None:
        await self._postgres.start()
        port = free_port()
        self._url = f"http://127.0.0.1:{port}"
        env = {"PORT": str(port), "PROVIDER": self.place.provider_url, "DATABASE": self._postgres.url}
        argv = [self.python(), str(PROGRAMS / self.program)]
        self.servers.append(Server(self.name, argv, f"{self._url}/health", self.place, env=env))
        await self.servers[0].start()

    async def ask(self, run: str, prompt: str, *, slow: bool = False) -> AsyncGenerator[Sight, None]:
        answer = await fetch("POST", f"{self._url}/chat/{run}", body={"prompt": prompt})
        if answer.status != 200:
            raise Refused(answer.body.decode())
        yield Accepted()
        async for sight in self.attach(run, "", slow=slow):
            yield sight

    async def attach(self, run: str, cursor: str, *, slow: bool = False) -> AsyncGenerator[Sight, None]:
        async with stream("GET", f"{self._url}/chat/{run}/stream?offset={cursor or 0}", slow=slow) as response:
            if response.status != 200:
                raise Broken(f"{response.status}")
            async for event in response.events():
                told = event.json()
                if event.event == "end":
                    yield Ended(HOW.get(str(told["status"]), "closed"))
                    return
                yield Text(str(told["token"]), event.id)

    async def halt(self, run: str) -> None:
        answer = await fetch("POST", f"{self._url}/chat/{run}/stop")
        if answer.status != 200:
            raise Refused(answer.body.decode())

    async def kept(self, run: str) -> Kept:
        answer = await fetch("GET", f"{self._url}/chat/{run}")
        if answer.status != 200:
            return Kept("unknown", "")
        state = answer.json()
        status = str(state["status"])
        return Kept("unknown" if status == "unknown" else HOW.get(status, "running"), str(state.get("output") or ""))

    async def stop(self) -> None:
        await super().stop()
        self._postgres.end()
