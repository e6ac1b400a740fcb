"""A message that one surface has accepted is committed once where `kill -9` ends the surface's process (N164): from
every surface, as real processes. Another process goes on with the run."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import aiohttp
import pytest
from proof.platforms.telegram import FakeTelegram

from cli.chat.screen_home import ready
from cli.screen.vt import VirtualTerminal
from integrations.acp.acp_editor import next_model_call, tailrace_acp
from integrations.mcp_server.mcp_host import call, host_of, write_config
from tailrace.app import open_app
from tailrace.config.load import load
from tailrace.events import MessageChunk, SteerAccepted, SteerCommitted
from tailrace.testing.provider import Break, FaultyProvider, Offset, Reply, Scenario, reply

pytest.importorskip("mcp", reason="the extra is not installed")

QUESTION: Final = "Count."
MESSAGE: Final = "And backwards."
STALLED: Final = Scenario(
    reply=reply(" ".join(f"word{number}" for number in range(40))), broken=Break("stall", Offset(60, per_cent=True))
)
LONGEST_S: Final = 60
LIBRARY: Final = """
import asyncio, sys
from tailrace import Agent

async def main():
    agent = Agent(model="up/turn")
    async with agent, agent.stream(sys.argv[1]) as run:
        await asyncio.to_thread(sys.stdin.readline)
        await run.steer(sys.argv[2])
        await run.result()

asyncio.run(main())
"""
# What begins a turn with `QUESTION`; what it yields gives the turn the message. `home` has the config.
Surface: TypeAlias = Callable[[Path], AbstractAsyncContextManager[Callable[[], Awaitable[object]]]]


@asynccontextmanager
async def program(home: Path, *command: str, env: Mapping[str, str] | None = None) -> AsyncGenerator[Any, None]:
    variables = {**os.environ, "TAILRACE_HOME": str(home), **(env or {})}
    errors = (home / "program.log").open("wb")
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=home, env=variables, stdin=PIPE, stdout=PIPE, stderr=errors
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
        errors.close()


@asynccontextmanager
async def library(home: Path) -> AsyncGenerator[Callable[[], Awaitable[object]], None]:
    async with program(home, "-c", LIBRARY, QUESTION, MESSAGE) as process:

        async def steer() -> None:
            process.stdin.write(b"\n")
            await process.stdin.drain()

        yield steer


@asynccontextmanager
async def served(home: Path) -> AsyncGenerator[tuple[aiohttp.ClientSession, str], None]:
    async with program(home, "-m", "tailrace", "serve", "--port", "0") as process, aiohttp.ClientSession() as client:
        line = (await process.stdout.readline()).decode()
        yield client, next(word for word in line.split() if word.startswith("http")).rstrip("/")


@asynccontextmanager
async def http(home: Path) -> AsyncGenerator[Callable[[], Awaitable[object]], None]:
    async with served(home) as (client, url):
        async with client.post(f"{url}/runs", json={"input": QUESTION}) as response:
            run = (await response.json())["id"]
        yield lambda: client.post(f"{url}/runs/{run}/steer", json={"input": MESSAGE})


@asynccontextmanager
async def web_socket(home: Path) -> AsyncGenerator[Callable[[], Awaitable[object]], None]:
    async with served(home) as (client, url), client.ws_connect(f"{url}/v1/responses") as socket:
        await socket.send_json({"type": "response.create", "model": "tailrace", "input": QUESTION})
        while (event := await socket.receive_json())["type"] != "response.created":
            pass
        first = event["response"]["id"]
        steer = {"type": "response.steer", "previous_response_id": first, "input": MESSAGE}
        yield lambda: socket.send_json(steer)


@asynccontextmanager
async def mcp(home: Path) -> AsyncGenerator[Callable[[], Awaitable[object]], None]:
    async with host_of(home) as host:
        started = await call(host, "start_run", question=QUESTION, wait_s=0)
        yield lambda: call(host, "steer_run", run_id=started["run_id"], message=MESSAGE)


@asynccontextmanager
async def editor(home: Path) -> AsyncGenerator[Callable[[], Awaitable[object]], None]:
    (home / "project").mkdir()
    async with tailrace_acp(home, home / "project") as agent, asyncio.TaskGroup() as group:
        session = await agent.session()
        prompts = [group.create_task(outcome(agent.prompt(session, QUESTION)))]

        async def steer() -> None:
            prompts.append(group.create_task(outcome(agent.prompt(session, MESSAGE))))

        yield steer
        for prompt in prompts:
            prompt.cancel()


async def outcome(work: Awaitable[Any]) -> None:
    """Its process is killed in the middle of it."""
    await asyncio.wait([asyncio.ensure_future(work)])


@asynccontextmanager
async def terminal(home: Path) -> AsyncGenerator[Callable[[], Awaitable[object]], None]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TAILRACE_")}
    command = [sys.executable, "-m", "tailrace", "chat"]
    async with VirtualTerminal(command, {**kept, "TAILRACE_HOME": str(home)}, columns=80, rows=24) as screen:
        await ready(screen)
        screen.enter(QUESTION)

        async def steer() -> None:
            screen.enter(MESSAGE)

        yield steer


@asynccontextmanager
async def chat(home: Path) -> AsyncGenerator[Callable[[], Awaitable[object]], None]:
    pytest.importorskip("telegram", reason="the extra is not installed")
    async with FakeTelegram() as telegram:
        config = json.loads((home / "config.yaml").read_text(encoding="utf-8"))
        settings = {"enabled": True, "token_env": "TOKEN", "base_url": telegram.url, "allow": ["*"], "busy": "steer"}
        config["platforms"] = {"telegram": settings}
        (home / "config.yaml").write_text(json.dumps(config), encoding="utf-8")
        async with program(home, "-m", "tailrace", "gateway", env={"TOKEN": telegram.token}):
            person = telegram.private(1001)
            telegram.write(person, QUESTION)

            async def steer() -> None:
                telegram.write(person, MESSAGE)

            yield steer


SURFACES: Final[dict[str, Surface]] = {
    "http": http,
    "library": library,
    "mcp": mcp,
    "terminal": terminal,
    "editor": editor,
    "chat": chat,
    "web-socket": web_socket,
}


@pytest.mark.parametrize("surface", SURFACES)
async def test_N164_a_message_from_this_surface_is_committed_once_after_kill_9(tmp_path: Path, surface: str) -> None:
    script: list[Scenario | Reply] = [STALLED, reply(" and so on."), reply("Backwards.")]
    async with FaultyProvider(script=script) as provider, asyncio.timeout(LONGEST_S):
        write_config(tmp_path, provider)
        async with SURFACES[surface](tmp_path) as steer, open_app(load({}, tmp_path)) as app:
            await next_model_call(provider, 0)
            (run,) = await app.journal.runs(kind="agent")
            await seen(app, run.id, MessageChunk)
            await steer()
            await seen(app, run.id, SteerAccepted)
            owner = (await app.journal.get(run.id)).owner
            os.kill(int(owner.split(":")[1]), signal.SIGKILL)
            await app.agents.see_to_end(run.id)
            facts = [entry.event for entry in await app.journal.facts(run.id)]
        asked = [message["content"] for message in provider.requests[-1].json()["messages"]]
    steers = [event for event in facts if isinstance(event, SteerAccepted | SteerCommitted)]
    assert [type(event) for event in steers] == [SteerAccepted, SteerCommitted]
    assert len({event.steer_id for event in steers}) == 1
    assert [text for text in asked if text in (QUESTION, MESSAGE)] == [QUESTION, MESSAGE]


async def seen(app: Any, run_id: str, kind: type) -> None:
    async for batch in app.journal.tail(run_id):
        if any(isinstance(entry.event, kind) for entry in batch):
            return
