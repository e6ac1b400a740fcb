"""An editor in the same event loop as the agent, without pipes: for what depends on order, or on a clock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from acp.connection import Connection

from integrations.acp.acp_editor import write_config
from tailrace.app import App, open_app
from tailrace.config.load import load
from tailrace.integrations.acp.agent import AcpAgent
from tailrace.integrations.acp.editor import Editor, EditorTransport
from tailrace.testing.provider import FaultyProvider


class RefusedRequest(Exception):
    """The agent answered with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.code = int(error["code"])


class EditorChannel:
    """Satisfies `Channel`: what the agent reads from and writes to. Keeps all that was told."""

    def __init__(self) -> None:
        self._to_agent: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._answers: dict[Any, asyncio.Future[Any]] = {}
        self._came = asyncio.Condition()
        self._notifying: set[asyncio.Task[None]] = set()
        self.told: list[dict[str, Any]] = []

    # ── for the agent ──

    async def receive(self) -> dict[str, Any] | None:
        return await self._to_agent.get()

    async def send(self, message: dict[str, Any]) -> None:
        self._take(message)

    async def write(self, lines: bytes) -> None:
        self.post(lines)

    def post(self, lines: bytes) -> None:
        for line in lines.splitlines():
            self._take(json.loads(line))

    async def close(self) -> None:
        pass

    def _take(self, message: dict[str, Any]) -> None:
        self.told.append(message)
        if "method" not in message and not (answer := self._answers.pop(message["id"])).done():
            answer.set_result(message)
        task = asyncio.create_task(self._notify())
        self._notifying.add(task)
        task.add_done_callback(self._notifying.discard)

    async def _notify(self) -> None:
        async with self._came:
            self._came.notify_all()

    # ── for the test ──

    def say(self, message: dict[str, Any] | None) -> None:
        """None is the end of the connection."""
        self._to_agent.put_nowait(message)

    def ask(self, number: Any, method: str, **params: Any) -> asyncio.Future[Any]:
        self._answers[number] = asyncio.get_running_loop().create_future()
        self.say({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return self._answers[number]

    async def request(self, method: str, **params: Any) -> Any:
        """Raises `RefusedRequest`."""
        return result_of(await self.ask(f"{method} {len(self.told)}", method, **params))

    def notify(self, method: str, **params: Any) -> None:
        self.say({"jsonrpc": "2.0", "method": method, "params": params})

    async def until(self, method: str, text: str = "") -> dict[str, Any]:
        """The first message of this method with this text in it, once it is told."""

        def found() -> dict[str, Any] | None:
            return next((one for one in self.told if one.get("method") == method and text in json.dumps(one)), None)

        async with self._came:
            await self._came.wait_for(found)
        message = found()
        assert message is not None
        return message

    def text(self, kind: str = "agent_message_chunk") -> str:
        updates = [one["params"]["update"] for one in self.told if one.get("method") == "session/update"]
        return "".join(update["content"]["text"] for update in updates if update["sessionUpdate"] == kind)


def result_of(answer: dict[str, Any]) -> Any:
    if "error" in answer:
        raise RefusedRequest(answer["error"])
    return answer["result"]


class InProcess:
    """The agent on a journal in memory, and the editor before it."""

    def __init__(self, channel: EditorChannel, app: App, directory: Path) -> None:
        self.channel = channel
        self.app = app
        self.directory = directory

    async def session(self, model: str) -> str:
        made = await self.channel.request("session/new", cwd=str(self.directory), mcpServers=[])
        option = {"sessionId": made["sessionId"], "configId": "model", "value": f"test/{model}"}
        await self.channel.request("session/set_config_option", **option)
        return str(made["sessionId"])

    def prompt(self, number: int, session: str, text: str = "Go on.") -> asyncio.Future[Any]:
        return self.channel.ask(number, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])

    async def load(self, session: str) -> Any:
        return await self.channel.request("session/load", sessionId=session, cwd=str(self.directory), mcpServers=[])


@asynccontextmanager
async def agent_in_process(
    directory: Path,
    provider: FaultyProvider,
    *,
    afterwards: Callable[[App], Awaitable[None]] | None = None,
    **sections: Any,
) -> AsyncIterator[InProcess]:
    """`afterwards` runs when the editor has left, before the journal in memory is closed."""
    home = directory / "home"
    write_config(home, provider.openai_url, store={"url": "memory://"}, **sections)
    config = load({"TAILRACE_HOME": str(home)})
    channel = EditorChannel()
    editor = Editor(channel)
    agent = AcpAgent(editor, config)
    connection = Connection(agent.handle, EditorTransport(channel), listening=False)
    editor.connect(connection)
    async with open_app(config) as app:
        agent.opened(app)
        talking = asyncio.create_task(connection.main_loop())
        try:
            yield InProcess(channel, app, directory)
        finally:
            await connection.close()
            await agent.close()
            talking.cancel()
            await asyncio.wait({talking})
        if afterwards is not None:
            await afterwards(app)
