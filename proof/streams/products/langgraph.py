"""LangGraph's server: resumable runs on threads, joined after the id of the last event.

As the SDK's own `useStream` does, the screen shows the messages as their chunks arrive, and what `values` says of the
messages replaces them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncGenerator
from typing import Any, ClassVar
from uuid import NAMESPACE_URL, uuid5

from proof.streams.http import Broken, Response, fetch, free_port, stream
from proof.streams.product import (
    ENVIRONMENTS,
    PROGRAMS,
    Accepted,
    Cleared,
    Ended,
    Kept,
    Place,
    Product,
    Refused,
    Server,
    Sight,
    Text,
)

HOW = {"success": "complete", "error": "failed", "timeout": "failed", "interrupted": "stopped"}
_DEV = "the server of the package index keeps its data in memory; the durable one needs a licence"


class LangGraph(Product):
    name = "langgraph"
    page = "https://docs.langchain.com/langsmith/streaming"
    setup = (
        "langgraph dev, stream_resumable, stream_mode values and messages-tuple, RetryPolicy(max_attempts=5), timeout=3"
    )
    packages = ("langgraph==1.2.22", "langgraph-api==0.16.7", "langgraph-cli[inmem]==0.4.40", "langchain-openai==1.7.3")
    lacks: ClassVar = {
        "durable": _DEV,
        "store": _DEV,
        "servers": _DEV,
        "mends": "a library: the graph decides what an empty answer means",
    }

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._url = ""
        self._runs: dict[str, str] = {}  # the path of each run

    async def start(self) -> None:
        folder = self.place.directory
        shutil.copy(PROGRAMS / "langgraph_graph.py", folder / "graph.py")
        (folder / "langgraph.json").write_text(
            json.dumps({"dependencies": ["."], "graphs": {"agent": "./graph.py:graph"}})
        )
        port = free_port()
        self._url = f"http://127.0.0.1:{port}"
        program = ENVIRONMENTS / self.name / "bin" / "langgraph"
        argv = [str(program), "dev", "--no-browser", "--no-reload", "--port", str(port), "--allow-blocking"]
        env = {
            "PROVIDER": self.place.provider_url,
            "LANGGRAPH_CLI_NO_ANALYTICS": "1",
            "LANGSMITH_TRACING": "false",
            "PATH": f"{program.parent}:/usr/bin:/bin",
        }
        self.servers.append(
            Server("langgraph", [*argv, "--n-jobs-per-worker", "20"], f"{self._url}/ok", self.place, env=env)
        )
        await self.servers[0].start()

    async def ask(self, run: str, prompt: str, *, slow: bool = False) -> AsyncGenerator[Sight, None]:
        thread = str(uuid5(NAMESPACE_URL, run))
        await fetch("POST", f"{self._url}/threads", body={"thread_id": thread, "if_exists": "do_nothing"})
        body = {
            "assistant_id": "agent",
            "input": {"messages": [{"role": "user", "content": prompt}]},
            "stream_mode": ["values", "messages-tuple"],
            "stream_resumable": True,
            "on_disconnect": "continue",
        }
        async with stream("POST", f"{self._url}/threads/{thread}/runs/stream", body=body, slow=slow) as response:
            if response.status != 200:
                raise Refused((await response.body()).decode(errors="replace"))
            self._runs[run] = response.headers["content-location"]
            yield Accepted()
            async for sight in self._sights(run, response):
                yield sight

    async def attach(self, run: str, cursor: str, *, slow: bool = False) -> AsyncGenerator[Sight, None]:
        url = f"{self._url}{self._runs[run]}/stream?stream_mode=values&stream_mode=messages-tuple"
        async with stream("GET", url, headers={"Last-Event-ID": cursor or "-1"}, slow=slow) as response:
            if response.status != 200:
                raise Broken(f"{response.status}: {(await response.body())[:200]!r}")
            async for sight in self._sights(run, response):
                yield sight

    async def _sights(self, run: str, response: Response) -> AsyncGenerator[Sight, None]:
        async for event in response.events():
            if event.event == "messages":
                chunk, _ = json.loads(event.data)
                is_model = chunk["type"] == "AIMessageChunk"
                yield Text(str(chunk["content"] or "") if is_model else "", event.id)
            elif event.event == "values" and (text := _text_of(event.json())):
                yield Cleared()
                yield Text(text, event.id)
            elif event.event == "error":
                yield Ended("failed")
                return
        # The stream says no more of its end: the run does.
        kept = await self.kept(run)
        if kept.status != "running":
            yield Ended(kept.status)

    async def halt(self, run: str) -> None:
        answer = await fetch("POST", f"{self._url}{self._runs[run]}/cancel?wait=true&action=interrupt")
        if answer.status >= 300:
            raise Refused(answer.body.decode())

    async def kept(self, run: str) -> Kept:
        if run not in self._runs:
            return Kept("unknown", "")
        answer = await fetch("GET", f"{self._url}{self._runs[run]}")
        if answer.status != 200:
            return Kept("unknown", "")
        state = await fetch("GET", f"{self._url}{self._runs[run].partition('/runs')[0]}/state")
        values: Any = state.json().get("values") or {}
        return Kept(HOW.get(str(answer.json()["status"]), "running"), _text_of(values))


def _text_of(values: dict[str, Any]) -> str:
    return "".join(str(message["content"] or "") for message in values.get("messages", []) if message["type"] == "ai")
