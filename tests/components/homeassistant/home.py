"""A real Home Assistant on loopback with the integration in it, and a person who uses it through its API.

It lives in an environment of its own: `$TAILRACE_HOMEASSISTANT_PYTHON`, or `.venv-homeassistant/bin/python` of the
project.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp

ROOT = Path(__file__).parents[3]
INTEGRATION = ROOT / "components/homeassistant/custom_components/tailrace"
PATIENCE_S = 120.0
_CLIENT_ID = "http://127.0.0.1/"


def homeassistant_python() -> Path | None:
    """The interpreter that has Home Assistant; None where there is none."""
    if named := os.environ.get("TAILRACE_HOMEASSISTANT_PYTHON"):
        return Path(named) if Path(named).exists() else None
    environment = ROOT / ".venv-homeassistant"
    return environment / "bin/python" if (environment / ".installed").exists() else None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Heard:
    """What Assist told about one utterance."""

    deltas: list[dict[str, Any]] = field(default_factory=list)
    output: dict[str, Any] = field(default_factory=dict)

    @property
    def streamed(self) -> str:
        """What a listener heard while it was written, since the answer last began."""
        text = ""
        for delta in self.deltas:
            text = (delta.get("content") or "") if "role" in delta else text + (delta.get("content") or "")
        return text

    @property
    def speech(self) -> str:
        return str(self.output["response"]["speech"]["plain"]["speech"])

    @property
    def kind(self) -> str:
        return str(self.output["response"]["response_type"])

    @property
    def continues(self) -> bool:
        return bool(self.output["continue_conversation"])

    @property
    def conversation_id(self) -> str:
        return str(self.output["conversation_id"])


class Home:
    """Use `started_home`. A restart keeps the address, the people and what is set up."""

    def __init__(self, python: Path, directory: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._python, self._directory = python, directory
        self._process: asyncio.subprocess.Process | None = None
        self._token: dict[str, str] = {}
        self._stack = AsyncExitStack()
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._session: aiohttp.ClientSession | None = None
        self._answers: dict[int, asyncio.Queue[dict[str, Any]]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._number = 0

    @property
    def log(self) -> str:
        return (self._directory / "output").read_text(encoding="utf-8")

    def configure(self) -> None:
        shutil.copytree(INTEGRATION, self._directory / "custom_components/tailrace")
        wanted = ("api", "websocket_api", "config", "onboarding", "conversation", "assist_pipeline", "diagnostics")
        settings = {
            "homeassistant": {"name": "Home", "country": "NO", "language": "en", "internal_url": self.url},
            "http": {"server_host": "127.0.0.1", "server_port": self.port},
            **dict.fromkeys(wanted),
        }
        (self._directory / "configuration.yaml").write_text(json.dumps(settings), encoding="utf-8")  # JSON is YAML

    async def start(self) -> None:
        program = Path(__file__).with_name("start_home.py")
        with (self._directory / "output").open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                self._python, program, self._directory, stdout=asyncio.subprocess.PIPE, stderr=output
            )
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            line = await self._process.stdout.readline()
        assert line == b"started\n", self.log
        self._session = await self._stack.enter_async_context(aiohttp.ClientSession())
        if not self._token:
            await self._onboard()
        await self._log_in()

    async def kill(self) -> None:
        """As `kill -9` does."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        await self._stack.aclose()
        self._answers.clear()

    # ── its API ──

    async def _onboard(self) -> None:
        ada = {"client_id": _CLIENT_ID, "name": "Ada", "username": "ada", "password": "ada", "language": "en"}
        given = await self.http("POST", "/api/onboarding/users", ada)
        await self._authorise({"grant_type": "authorization_code", "code": given["auth_code"]})

    async def _authorise(self, grant: dict[str, str]) -> None:
        assert self._session is not None
        async with self._session.post(f"{self.url}/auth/token", data={"client_id": _CLIENT_ID, **grant}) as response:
            assert response.status == 200, await response.text()
            self._token |= await response.json()

    async def _log_in(self) -> None:
        assert self._session is not None
        await self._authorise({"grant_type": "refresh_token", "refresh_token": self._token["refresh_token"]})
        socket_ = self._socket = await self._stack.enter_async_context(
            self._session.ws_connect(f"{self.url}/api/websocket")
        )
        assert (await socket_.receive_json())["type"] == "auth_required"
        await socket_.send_json({"type": "auth", "access_token": self._token["access_token"]})
        assert (await socket_.receive_json())["type"] == "auth_ok"
        self._reading = asyncio.create_task(self._read(socket_))

    async def _read(self, socket_: aiohttp.ClientWebSocketResponse) -> None:
        async for message in socket_:
            told = json.loads(message.data)
            if (queue := self._answers.get(told["id"])) is not None:
                queue.put_nowait(told)

    async def http(self, method: str, path: str, body: Any = None) -> Any:
        assert self._session is not None
        headers = {"Authorization": f"Bearer {token}"} if (token := self._token.get("access_token")) else {}
        async with self._session.request(method, self.url + path, json=body, headers=headers) as response:
            assert response.status < 300, (path, await response.text())
            return await response.json()

    async def send(self, kind: str, **fields: Any) -> int:
        """Sends a command over the web socket; `told` has what comes of it."""
        assert self._socket is not None
        self._number += 1
        self._answers[self._number] = asyncio.Queue()
        await self._socket.send_json({"id": self._number, "type": kind, **fields})
        return self._number

    async def told(self, number: int) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE_S):
            return await self._answers[number].get()

    async def ask(self, kind: str, **fields: Any) -> Any:
        """The result of a command."""
        told = await self.told(await self.send(kind, **fields))
        assert told["success"], told
        return told["result"]

    async def until(self, entity_id: str, holds: Callable[[str], bool]) -> str:
        """The state of an entity, as soon as the condition holds for it."""
        subscription = await self.send("subscribe_entities", entity_ids=[entity_id])
        while True:
            event = (await self.told(subscription)).get("event", {})
            state = event.get("a", {}).get(entity_id, {}).get("s")
            state = state or event.get("c", {}).get(entity_id, {}).get("+", {}).get("s")
            if state is not None and holds(state):
                await self.ask("unsubscribe_events", subscription=subscription)
                return str(state)

    async def notification(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first persistent notification for which the condition holds."""
        subscription = await self.send("persistent_notification/subscribe")
        while True:
            shown = (await self.told(subscription)).get("event", {}).get("notifications", {})
            for notification in shown.values():
                if holds(notification):
                    await self.ask("unsubscribe_events", subscription=subscription)
                    return dict(notification)

    def peers(self) -> set[str]:
        """The addresses that its sockets are bound or connected to, as the kernel writes them."""
        assert self._process is not None
        process = Path(f"/proc/{self._process.pid}")
        sockets = {str(link.readlink()) for link in (process / "fd").iterdir() if link.is_symlink()}
        found = set()
        for table in ("tcp", "tcp6", "udp", "udp6"):
            for line in (process / "net" / table).read_text().splitlines()[1:]:
                _, local, remote, *rest = line.split()
                if f"socket:[{rest[6]}]" in sockets:
                    found |= {local.partition(":")[0], remote.partition(":")[0]}
        return found

    @asynccontextmanager
    async def reloading(self, entry: str) -> AsyncIterator[None]:
        """Leaves when the entry was set up anew since it was entered."""
        subscription = await self.send("config_entries/subscribe")
        yield
        states = list[str]()
        while set(states) <= {"loaded"} or states[-1] != "loaded":
            for change in (await self.told(subscription)).get("event", []):
                if change["entry"]["entry_id"] == entry:
                    states.append(change["entry"]["state"])
        await self.ask("unsubscribe_events", subscription=subscription)

    async def flow_in_progress(self, handler: str) -> dict[str, Any]:
        """A form that waits for a person, as soon as there is one."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for flow in await self.ask("config_entries/flow/progress"):
                    if flow["handler"] == handler:
                        return dict(flow)

    # ── Assist ──

    async def say(self, pipeline: str, text: str, **fields: Any) -> Utterance:
        """Speaks to Assist; the answer comes through the utterance."""
        number = await self.send(
            "assist_pipeline/run",
            start_stage="intent",
            end_stage="intent",
            input={"text": text},
            pipeline=pipeline,
            **fields,
        )
        return Utterance(self, number)


class Utterance:
    """An utterance under way."""

    def __init__(self, home: Home, number: int) -> None:
        self._home, self._number = home, number
        self.heard = Heard()

    async def until(self, holds: Callable[[Heard], bool]) -> Heard:
        """What was heard, as soon as the condition holds for it; it must before the answer ends."""
        while not holds(self.heard):
            assert await self._step(), self.heard
        return self.heard

    async def answer(self) -> Heard:
        while await self._step():
            pass
        assert self.heard.output, self._home.log
        return self.heard

    async def cancel(self) -> None:
        await self._home.ask("unsubscribe_events", subscription=self._number)

    async def _step(self) -> bool:
        told = await self._home.told(self._number)
        match told:
            case {"type": "result", "success": False}:
                raise AssertionError(told)
            case {"type": "event", "event": {"type": "intent-progress", "data": {"chat_log_delta": delta}}}:
                self.heard.deltas.append(delta)
            case {"type": "event", "event": {"type": "intent-end", "data": {"intent_output": output}}}:
                self.heard.output = output
            case {"type": "event", "event": {"type": "error"}}:
                raise AssertionError(told)
            case {"type": "event", "event": {"type": "run-end"}}:
                return False
            case _:
                pass
        return True


@asynccontextmanager
async def started_home(python: Path, directory: Path) -> AsyncIterator[Home]:
    home = Home(python, directory)
    home.configure()
    try:
        await home.start()
        yield home
    finally:
        await home.kill()


class Tailrace:
    """`tailrace serve` as a process that can be killed and started again at the same address."""

    def __init__(self, directory: Path, settings: dict[str, Any], key: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.key = key
        self._directory, self._settings = directory, settings
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def start(self) -> None:
        self._directory.mkdir(exist_ok=True)
        (self._directory / "config.yaml").write_text(json.dumps(self._settings), encoding="utf-8")
        variables = {"TAILRACE_HOME": str(self._directory), "TAILRACE_API_KEY": self.key}
        with (self._directory / "serve.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tailrace", "serve", "--port", str(self.port)),
                cwd=self._directory,
                env=os.environ | variables,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            line = await self._process.stdout.readline()
        assert b"listens" in line, (self._directory / "serve.log").read_text(encoding="utf-8")

    async def kill(self) -> None:
        """As `kill -9` does."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def runs(self) -> list[dict[str, Any]]:
        return list((await self.get("/runs?limit=200"))["data"])

    async def get(self, path: str) -> dict[str, Any]:
        return await self.request("GET", path)

    async def request(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.key}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.request(method, self.url + path, json=body) as response,
        ):
            assert response.status == 200, await response.text()
            told: dict[str, Any] = await response.json()
            return told

    async def text_of(self, run_id: str) -> str:
        """All texts of the run, as its log folds."""
        return "\n\n".join(message["text"] for message in (await self.get(f"/runs/{run_id}"))["messages"])

    async def ended(self, run_id: str) -> None:
        """Returns when the run has ended."""
        headers = {"Authorization": f"Bearer {self.key}"}
        url = f"{self.url}/runs/{run_id}/stream"
        async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as response:
            await response.read()
