"""The stage: a provider that misbehaves on command, a real `tailrace serve`, and one viewer that watches it.

Everything is on loopback and in a temporary home. Leaving the block ends the server and removes the home, whatever
happened inside.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.errors import TailraceError
from tailrace.events import Entry, from_json
from tailrace.wire.sse import SseDecoder

if TYPE_CHECKING:
    import aiohttp

    from tailrace.testing.provider import FaultyProvider

START_TIMEOUT_S = 60.0
REQUEST_TIMEOUT_S = 30.0
RECONNECT_S = 0.2
CONFIG = Path(__file__).with_name("demo_config.txt")  # braces as in `str.format`


class Seen:
    """What a viewer has seen of one run: the text on its screen, and the numbers of the events."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.seqs: list[int] = []
        self.text = ""
        self.attempts = 0  # of the model call that is under way
        self.ended = False
        self.status = ""  # as it is stored, and the output too, once the run has ended
        self.output = ""

    @property
    def is_whole(self) -> bool:
        """Every event came once, in order, and what was shown ends with what is stored."""
        complete = self.seqs == list(range(1, len(self.seqs) + 1))
        return complete and self.status == "completed" and bool(self.output) and self.text.endswith(self.output)


class Stage:
    """The server can be killed and started again; the viewer reconnects by itself."""

    def __init__(self, home: Path, provider: FaultyProvider, client: aiohttp.ClientSession) -> None:
        self.home = home
        self.provider = provider
        self._client = client
        self._server: Process | None = None
        self._port = 0
        self.url = ""

    async def start(self) -> None:
        """Starts the server, at the same address as before. Raises `TailraceError` where it does not start."""
        secret = {name for name in os.environ if name.startswith(("TAILRACE_", "HERMES_"))}
        environment = {name: value for name, value in os.environ.items() if name not in secret}
        server = self._server = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tailrace", "serve", "--port", str(self._port)),
            env={**environment, "TAILRACE_HOME": str(self.home)},
            cwd=self.home,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=DEVNULL,
            start_new_session=True,  # Ctrl-C is for the demo, which ends the server itself
        )
        line = ""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_TIMEOUT_S):
                line = (await server.stdout.readline()).decode() if server.stdout else ""
        if "http://" not in line:
            raise TailraceError("the server of the demo did not start; tailrace doctor says what is missing")
        self.url = line.split()[-1]
        self._port = int(self.url.rpartition(":")[2])

    async def kill(self) -> int:
        """`kill -9`; returns the process's id."""
        if self._server is None:
            raise TailraceError("the server is not started")
        await self.close()
        return self._server.pid

    async def close(self) -> None:
        if self._server is not None and self._server.returncode is None:
            self._server.send_signal(signal.SIGKILL)
            await self._server.wait()

    # ── the viewer ───────────────────────────────────────────────────────────────────────────────────────────

    async def ask(self, question: str, session: str) -> Seen:
        """Starts a run. Raises `TailraceError`."""
        body = {"input": question, "session": session}
        async with self._client.post(f"{self.url}/runs", json=body) as response:
            answer = await response.json()
            if response.status != 201:
                raise TailraceError(f"the demo's server refused the question: {answer}")
            return Seen(str(answer["id"]))

    async def entries(self, seen: Seen) -> AsyncIterator[Entry]:
        """The run's log until its end; reconnects after the last that was seen, as every viewer does."""
        import aiohttp

        while not seen.ended:
            headers = {"Last-Event-ID": str(seen.seqs[-1])} if seen.seqs else {}
            try:
                address = f"{self.url}/runs/{seen.run_id}/stream"
                async with self._client.get(address, headers=headers) as response:
                    decoder = SseDecoder()
                    async for data, _ in response.content.iter_chunks():
                        for sent in decoder.feed(data):
                            if sent.id:
                                seen.seqs.append(int(sent.id))
                                yield Entry(seen.seqs[-1], from_json(sent.data))
            except (aiohttp.ClientError, TimeoutError, OSError):
                await asyncio.sleep(RECONNECT_S)  # no server listens there yet

    async def stored(self, seen: Seen) -> tuple[str, str]:
        """The status and the output that another reader gets now."""
        async with self._client.get(f"{self.url}/runs/{seen.run_id}") as response:
            state = await response.json()
            return str(state["status"]), str(state["output"])


@asynccontextmanager
async def opened_stage(*, fast: bool) -> AsyncGenerator[Stage, None]:
    import aiohttp

    from tailrace.testing.provider import FaultyProvider

    home = Path(tempfile.mkdtemp(prefix="tailrace-demo-"))
    try:
        async with (
            FaultyProvider() as provider,
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_TIMEOUT_S)) as client,
        ):
            config = CONFIG.read_text(encoding="utf-8").format(url=provider.url, idle_s=2 if fast else 3)
            (home / "config.yaml").write_text(config, encoding="utf-8")
            stage = Stage(home, provider, client)
            try:
                await stage.start()
                yield stage
            finally:
                provider.flowing.set()
                await asyncio.shield(stage.close())
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(home)
