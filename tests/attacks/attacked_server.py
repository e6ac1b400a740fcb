"""A real `tailrace serve` under attack: the process, the scripted model behind it, and the prober that watches it."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from attacks.hostile_provider import hostile_provider
from tailrace.messages import JsonObject
from tailrace.testing.provider import FaultyProvider, Reply, Scenario

TIMED_SERVER = Path(__file__).with_name("timed_server.py")
PROBER = Path(__file__).with_name("prober.py")
CONFIG = """
model: {{provider: scripted, name: ok}}
providers:
  scripted: {{dialect: chat, base_url: '{url}', backoff_s: 0.001, max_attempts: 3}}
  hostile: {{dialect: chat, base_url: '{hostile}', backoff_s: 0.001, max_attempts: 2}}
approvals: {{mode: ask, timeout_s: 2}}
server: {{drain_s: 0.2}}
"""


KEY = "the-key-of-the-attacked"
HEADERS = {"Authorization": f"Bearer {KEY}"}


class Waited(NamedTuple):
    """How long /healthz took at worst, and how often it answered."""

    worst_ms: float
    answers: int


class AttackedServer:
    """What an attack is given."""

    def __init__(
        self,
        url: str,
        pid: int,
        client: aiohttp.ClientSession,
        provider: FaultyProvider,
        prober: asyncio.subprocess.Process,
        server: asyncio.subprocess.Process,
    ) -> None:
        self._server = server
        self.url = url
        self.pid = pid
        self.client = client
        self.provider = provider
        self._prober = prober

    async def post(self, path: str, body: Any, content_type: str = "application/json") -> tuple[int, Any]:
        """The status and the JSON body. `body`: bytes as they are, anything else as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": content_type}
        async with self.client.post(self.url + path, data=io.BytesIO(data), headers=headers) as response:
            return response.status, await response.json()

    def unread(self, path: str) -> socket.socket:
        """A connection that asks for this and never reads the answer."""
        connection = self.connection()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nx-api-key: {KEY}\r\n\r\n".encode())
        return connection

    def connection(self) -> socket.socket:
        host, port = self.url.removeprefix("http://").split(":")
        return socket.create_connection((host, int(port)))

    async def run_sequence(self, definition: JsonObject, given: JsonObject | None = None) -> tuple[int, Any]:
        """Creates a sequence and runs it to its end; the first refusal, or how the instance ended."""
        status, told = await self.post("/sequences", {"name": "attack", **definition})
        if status == 201:
            status, told = await self.post("/instances", {"sequence_id": told["id"], "input": given or {}})
        if status == 201:
            async with self.client.get(f"{self.url}/instances/{told['id']}/stream") as response:
                await response.read()
            async with self.client.get(f"{self.url}/instances/{told['id']}") as response:
                return response.status, await response.json()
        return status, told

    async def ask_agent(self, *script: str | Scenario | Reply) -> JsonObject:
        """One run of the agent with these answers of the model; its state at the end."""
        self.provider.extend(*script)
        _, told = await self.post("/runs", {"input": "Go."})
        async with self.client.get(f"{self.url}/runs/{told['id']}/stream") as response:
            await response.read()
        async with self.client.get(f"{self.url}/runs/{told['id']}") as response:
            state: JsonObject = await response.json()
            return state

    async def waited(self) -> Waited:
        """Since it was last asked."""
        assert self._prober.stdin is not None
        assert self._prober.stdout is not None
        self._prober.stdin.write(b"\n")
        worst, answers = (await self._prober.stdout.readline()).split()
        return Waited(float(worst), int(answers))

    async def longest_callback_ms(self) -> float:
        """Of a `TIMED_SERVER`, since it was last asked: CPU time."""
        os.kill(self._server.pid, signal.SIGUSR1)
        assert self._server.stdout is not None
        return float(await self._server.stdout.readline())

    def forget_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5", encoding="ascii")

    def peak_mb(self) -> float:
        """The most memory that the process has had since `forget_peak`."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) / 1000


def _configure(home: Path, url: str, hostile: str) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(CONFIG.format(url=url, hostile=hostile), encoding="utf-8")


@asynccontextmanager
async def attacked_server(home: Path, *program: str) -> AsyncGenerator[AttackedServer, None]:
    """`program`: Python's arguments for the command `tailrace`."""
    async with FaultyProvider() as provider, hostile_provider() as hostile:
        _configure(home, provider.openai_url, hostile)
        async with (
            _process(*(program or ("-m", "tailrace")), "serve", "--port", "0", home=home) as server,
            aiohttp.ClientSession(headers=HEADERS, timeout=aiohttp.ClientTimeout(total=300)) as client,
        ):
            assert server.stdout is not None
            url = (await server.stdout.readline()).decode().split()[-1]
            async with _process(str(PROBER), url.rpartition(":")[2], home=home) as prober:
                yield AttackedServer(url, server.pid, client, provider, prober, server)


@asynccontextmanager
async def _process(*args: str, home: Path) -> AsyncGenerator[asyncio.subprocess.Process, None]:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, *args),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "TAILRACE_HOME": str(home), "TAILRACE_API_KEY": KEY},
        cwd=home,
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
