"""Hermes Agent: runs of its gateway's API server, whose events one reader may take."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import ClassVar

from proof.streams.http import Broken, fetch, free_port, stream
from proof.streams.product import Accepted, Ended, Kept, Place, Product, Refused, Server, Sight, Text

KEY = "key-of-this-test-alone-0123456789"
AUTH = {"Authorization": f"Bearer {KEY}"}
HOW = {"completed": "complete", "failed": "failed", "cancelled": "stopped"}
_ONE_READER = "the events of a run have one reader"
_IN_MEMORY = "runs live in the gateway's memory"


class HermesAgent(Product):
    name = "hermes-agent"
    page = "https://hermes-agent.nousresearch.com/docs/user-guide/features/api-server"
    setup = (
        "hermes gateway run, API server, a custom provider with request_timeout_seconds and stale_timeout_seconds 10"
    )
    packages = ("hermes-agent==0.19.0", "aiohttp==3.14.5")
    lacks: ClassVar = {"resume": _ONE_READER, "durable": _IN_MEMORY, "servers": _IN_MEMORY, "store": _IN_MEMORY}

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._url = ""
        self._ids: dict[str, str] = {}

    async def start(self) -> None:
        port = free_port()
        self._url = f"http://127.0.0.1:{port}"
        config = {
            "model": {"provider": "custom:fault", "default": "numbers", "context_length": 200_000},
            "providers": {
                "fault": {
                    "api": self.place.provider_url,
                    "transport": "chat_completions",
                    "key_env": "FAULT_KEY",
                    "request_timeout_seconds": 30,
                    "stale_timeout_seconds": 10,
                }
            },
            "approvals": {"mode": "off"},
        }
        (self.place.directory / "config.yaml").write_text(json.dumps(config))
        env = {
            "HERMES_HOME": str(self.place.directory),
            "API_SERVER_ENABLED": "true",
            "API_SERVER_KEY": KEY,
            "API_SERVER_HOST": "127.0.0.1",
            "API_SERVER_PORT": str(port),
            "FAULT_KEY": "none",
            "HERMES_STREAM_STALE_TIMEOUT": "10",
            "HERMES_STREAM_READ_TIMEOUT": "10",
        }
        argv = [self.python(), "-m", "hermes_cli.main", "gateway", "run"]
        self.servers.append(Server(self.name, argv, f"{self._url}/health", self.place, env=env))
        await self.servers[0].start()

    def tool(self, url: str) -> tuple[str, dict[str, object]]:
        return "terminal", {"command": f"curl -s {url}"}

    async def ask(self, run: str, prompt: str, *, slow: bool = False) -> AsyncGenerator[Sight, None]:
        answer = await fetch("POST", f"{self._url}/v1/runs", body={"input": prompt}, headers=AUTH)
        if answer.status != 202:
            raise Refused(answer.body.decode())
        self._ids[run] = str(answer.json()["run_id"])
        yield Accepted()
        async with stream("GET", f"{self._url}/v1/runs/{self._ids[run]}/events", headers=AUTH, slow=slow) as response:
            if response.status != 200:
                raise Broken(f"{response.status}")
            async for event in response.events():
                told = event.json()
                if told["event"] == "message.delta":
                    yield Text(str(told["delta"]))
                elif (how := HOW.get(str(told["event"]).removeprefix("run."))) is not None:
                    yield Ended(how)
                    return

    async def halt(self, run: str) -> None:
        answer = await fetch("POST", f"{self._url}/v1/runs/{self._ids[run]}/stop", headers=AUTH)
        if answer.status >= 300:
            raise Refused(answer.body.decode())

    async def kept(self, run: str) -> Kept:
        if run not in self._ids:
            return Kept("unknown", "")
        answer = await fetch("GET", f"{self._url}/v1/runs/{self._ids[run]}", headers=AUTH)
        if answer.status != 200:
            return Kept("unknown", "")
        state = answer.json()
        return Kept(HOW.get(str(state["status"]), "running"), str(state.get("output") or ""))
