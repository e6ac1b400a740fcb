"""An editor for tests: the SDK's own client side, over real pipes to a real `tailrace acp` process."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from acp.client.connection import ClientSideConnection
from acp.exceptions import RequestError
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    FileSystemCapabilities,
    InitializeResponse,
    ReadTextFileResponse,
    RequestPermissionResponse,
    TextContentBlock,
    WriteTextFileResponse,
)

from tailrace.testing.provider import FaultyProvider, RecordedRequest

PROVIDER = "test"
LONGEST_S = 90.0


def write_config(home: Path, base_url: str, **sections: Any) -> None:
    """The model `test/<name>` is what the test provider plays under that name."""
    home.mkdir(parents=True, exist_ok=True)
    settings: dict[str, Any] = {
        "model": {"provider": PROVIDER, "name": "ok"},
        "providers": {PROVIDER: {"dialect": "chat", "base_url": base_url}},
        "call": {"max_attempts": 1},
        **sections,
    }
    (home / "config.yaml").write_text(json.dumps(settings), encoding="utf-8")


def model_calls(provider: FaultyProvider) -> list[RecordedRequest]:
    """What the model was asked. The list of models may be asked for at any time beside it."""
    return [request for request in provider.requests if request.method == "POST"]


async def next_model_call(provider: FaultyProvider, after: int) -> RecordedRequest:
    """The first call of the model after as many requests of any kind, as soon as it has come."""
    while (request := await provider.request(after)).method != "POST":
        after += 1
    return request


class Editor:
    """Satisfies the SDK's `Client`. Keeps what it was told; answers what it is asked."""

    def __init__(self) -> None:
        self.updates: list[dict[str, Any]] = []
        self.permissions: list[Any] = []
        self.decide: Callable[[Any], str | None] = lambda _: "once"  # the option, or None for `cancelled`
        self.silent = False  # asked for a permission, it says nothing
        self.buffers: dict[str, str] = {}  # unsaved, by path
        self.written: dict[str, str] = {}
        self._came = asyncio.Condition()

    def on_connect(self, conn: Any) -> None:
        self.conn = conn

    # ── what it was told ──

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        told = update.model_dump(mode="json", by_alias=True, exclude_none=True)
        async with self._came:
            self.updates.append({"sessionId": session_id, **told})
            self._came.notify_all()

    async def until(self, said: Callable[[list[dict[str, Any]]], object]) -> None:
        """Waits until the updates say so."""
        async with asyncio.timeout(LONGEST_S), self._came:
            await self._came.wait_for(lambda: said(self.updates))

    def of(self, kind: str, session_id: str = "") -> list[dict[str, Any]]:
        return [
            update
            for update in self.updates
            if update["sessionUpdate"] == kind and session_id in ("", update["sessionId"])
        ]

    def text(self, session_id: str = "", kind: str = "agent_message_chunk") -> str:
        return "".join(update["content"].get("text", "") for update in self.of(kind, session_id))

    def calls(self, session_id: str = "") -> list[dict[str, Any]]:
        """Each tool call as the editor shows it in the end."""
        shown: dict[str, dict[str, Any]] = {}
        for update in self.updates:
            if update["sessionUpdate"] in ("tool_call", "tool_call_update") and session_id in ("", update["sessionId"]):
                assert update["sessionUpdate"] == "tool_call" or update["toolCallId"] in shown
                shown.setdefault(update["toolCallId"], {}).update(update)
        return [*shown.values()]

    # ── what it is asked ──

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_: Any) -> Any:
        async with self._came:
            self.permissions.append((tool_call, options))
            self._came.notify_all()
        if self.silent:
            await asyncio.get_running_loop().create_future()
        option = self.decide(tool_call)
        if option is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=option))

    async def read_text_file(
        self, session_id: str, path: str, line: int | None = None, limit: int | None = None, **_: Any
    ) -> ReadTextFileResponse:
        if path not in self.buffers:
            raise RequestError.resource_not_found(path)
        return ReadTextFileResponse(content=self.buffers[path])

    async def write_text_file(self, session_id: str, path: str, content: str, **_: Any) -> WriteTextFileResponse:
        self.written[path] = self.buffers[path] = content
        return WriteTextFileResponse()

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise RequestError.method_not_found(method)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        pass

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
        raise RequestError.method_not_found("elicitation/create")

    async def complete_elicitation(self, elicitation_id: str, **_: Any) -> None:
        pass


class AgentProcess:
    """A running `tailrace acp` with an editor before it."""

    def __init__(self, process: asyncio.subprocess.Process, editor: Editor, agent: Any, directory: Path) -> None:
        self.process = process
        self.editor = editor
        self.agent = agent  # the SDK's connection, which is typed by decorators
        self.directory = directory
        self.initialized: InitializeResponse | None = None

    async def session(self, model: str = "", mode: str = "", **wanted: Any) -> str:
        made = await self.agent.new_session(cwd=str(self.directory), mcp_servers=wanted.pop("mcp_servers", []))
        session_id = str(made.session_id)
        if model:
            await self.agent.set_config_option(config_id="model", session_id=session_id, value=f"{PROVIDER}/{model}")
        if mode:
            await self.agent.set_session_mode(session_id=session_id, mode_id=mode)
        return session_id

    async def prompt(self, session_id: str, text: str = "Go on.") -> Any:
        async with asyncio.timeout(LONGEST_S):
            block = TextContentBlock(type="text", text=text)
            return await self.agent.prompt(session_id=session_id, prompt=[block])

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def tailrace_acp(
    home: Path,
    directory: Path,
    *,
    editor: Editor | None = None,
    files: bool = False,
    variables: Mapping[str, str] | None = None,
) -> AsyncIterator[AgentProcess]:
    """Starts it and says hello; it ends with the block, and its stderr must be empty of tracebacks."""
    editor = editor or Editor()
    log = home / "acp.log"
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tailrace",
            "acp",
            cwd=directory,
            env={**os.environ, "TAILRACE_HOME": str(home), **(variables or {})},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            limit=64 * 2**20,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    client: Any = editor
    connection: Any = ClientSideConnection(lambda _: client, process.stdin, process.stdout, use_unstable_protocol=True)
    running = AgentProcess(process, editor, connection, directory)
    try:
        async with asyncio.timeout(LONGEST_S):
            running.initialized = await connection.initialize(
                protocol_version=1,
                client_capabilities=ClientCapabilities(
                    fs=FileSystemCapabilities(read_text_file=files, write_text_file=files)
                ),
            )
        yield running
    finally:
        await connection.close()
        process.stdin.close()
        try:
            async with asyncio.timeout(LONGEST_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise
    assert "Traceback" not in log.read_text(encoding="utf-8")
