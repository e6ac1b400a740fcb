"""`tailrace serve` that is stopped while a run waits for a person: it does not wait, and the question stays open."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cli.commands.serve_process import Process, served
from server.http_server import config_for, sse
from tailrace.testing.provider import FaultyProvider, call, reply

DRAIN_S, PATIENCE_S = 120.0, 60.0
LEAST_VIEWERS = 4
CONFIG = f"server: {{drain_s: {DRAIN_S}}}\napprovals: {{timeout_s: 600}}\n"
COMMAND = "rm -rf build; echo ran >> ran.txt"
needs_proc = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="nothing says which worker has a viewer")


async def until(process: Process, run: str, kind: str, *, after: int = 0) -> list[dict[str, Any]]:
    """What a viewer is sent, to the first event of this kind."""
    seen: list[dict[str, Any]] = []
    async with process.client.get(f"{process.url}/runs/{run}/stream?after={after}") as response:
        async for event in sse(response):
            seen.append(event)
            if event["type"] == kind:
                return seen
    raise AssertionError(seen)


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_question_to_a_person_is_not_waited_for_and_is_answered_after_the_restart(
    tmp_path: Path, workers: str
) -> None:
    script = [reply(call("terminal", {"command": COMMAND})), reply("Done.")]
    async with FaultyProvider(script=script) as provider, asyncio.timeout(PATIENCE_S):
        config_for(provider, tmp_path, store="sqlite:///runs.db", config=CONFIG)
        async with served(tmp_path, "--workers", workers) as process:
            run = await process.start()
            async with process.client.get(f"{process.url}/runs/{run}/stream") as response:
                stream = sse(response)
                seen = [await anext(stream)]
                while seen[-1]["type"] != "approval_asked":
                    seen.append(await anext(stream))
                process.child.send_signal(signal.SIGTERM)
                cut = [event async for event in stream]
            code, log = await process.ended()
        assert (code, [event["error"]["kind"] for event in cut]) == (0, ["server_stopping"])
        assert f"run {run} waits for a person, and is handed over to the next process" in log
        assert not (tmp_path / "ran.txt").exists()
        async with served(tmp_path, "--workers", workers) as process:
            async with process.client.get(f"{process.url}/approvals") as response:
                [waiting] = (await response.json())["data"]
            assert (waiting["run_id"], waiting["approval_id"]) == (run, seen[-1]["approval_id"])
            answer = {"approval_id": waiting["approval_id"], "decision": "once"}
            async with process.client.post(f"{process.url}/runs/{run}/approval", json=answer) as response:
                assert response.status == 200, await response.text()
            rest = await until(process, run, "run_finished", after=seen[-1]["seq"])
            await process.stop()
    assert (rest[-1]["status"], rest[-1]["output"]) == ("completed", "Done.")
    assert [event["type"] for event in rest].count("approval_asked") == 0, "it was put once"
    assert (tmp_path / "ran.txt").read_text() == "ran\n"


async def both_workers_serve(process: Process) -> None:
    assert process.child.stderr is not None
    async for line in process.child.stderr:
        if b"worker 2 serves" in line:
            return
    raise AssertionError("the second worker has not started")


def worker_of(process: Process, client_port: int) -> int:
    """The process that has the server's end of the connection from this port."""
    ends = f":{int(process.url.rpartition(':')[2]):04X}", f":{client_port:04X}"
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines())
    [inode] = [row[9] for row in rows if row[1].endswith(ends[0]) and row[2].endswith(ends[1])]
    parent = process.child.pid
    for worker in map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split()):
        for file in Path(f"/proc/{worker}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed since
                if str(file.readlink()) == f"socket:[{inode}]":
                    return worker
    raise AssertionError(f"no worker has the connection from {client_port}")


@asynccontextmanager
async def viewers(
    process: Process, path: str, kind: str
) -> AsyncGenerator[list[asyncio.Task[list[dict[str, Any]]]], None]:
    """So many, each with a connection of its own, that both workers have some; each has seen an event of this kind.
    Their tasks return what they are sent after it."""

    async def view(has_seen: asyncio.Future[int]) -> list[dict[str, Any]]:
        rest: list[dict[str, Any]] = []
        async with aiohttp.ClientSession() as client, client.get(process.url + path) as response:
            assert response.connection is not None
            assert response.connection.transport is not None
            port: int = response.connection.transport.get_extra_info("sockname")[1]
            async for event in sse(response):
                if has_seen.done():
                    rest.append(event)
                elif event.get("type") == kind:
                    has_seen.set_result(port)
        return rest

    async with asyncio.TaskGroup() as group:
        tasks: list[asyncio.Task[list[dict[str, Any]]]] = []
        workers: set[int] = set()
        while len(workers) < 2 or len(tasks) < LEAST_VIEWERS:
            has_seen: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            tasks.append(group.create_task(view(has_seen)))
            workers.add(worker_of(process, await has_seen))
        yield tasks


@needs_proc
@pytest.mark.parametrize("path", ["/runs/{run}/stream", "/sessions/mill/stream"])
async def test_viewers_at_a_worker_that_does_not_execute_the_run_are_not_waited_for_either(
    tmp_path: Path, path: str
) -> None:
    script = [reply(call("terminal", {"command": COMMAND}))]
    async with FaultyProvider(script=script) as provider, asyncio.timeout(PATIENCE_S):
        config_for(provider, tmp_path, store="sqlite:///runs.db", config=CONFIG)
        async with served(tmp_path, "--workers", "2") as process:
            await both_workers_serve(process)
            run = await process.start(session="mill")
            async with viewers(process, path.format(run=run), "approval_asked") as tasks:
                process.child.send_signal(signal.SIGTERM)
            code, _ = await process.ended()
    assert code == 0
    assert [[event["error"]["kind"] for event in task.result()] for task in tasks] == [["server_stopping"]] * len(tasks)


@needs_proc
async def test_a_run_that_ends_in_time_is_shown_to_its_end_by_both_workers(tmp_path: Path) -> None:
    command = "until test -e go.txt; do sleep 0.02; done"
    script = [reply(call("terminal", {"command": command})), reply("Done.")]
    async with FaultyProvider(script=script) as provider, asyncio.timeout(PATIENCE_S):
        config_for(provider, tmp_path, store="sqlite:///runs.db", config=CONFIG)
        async with served(tmp_path, "--workers", "2") as process:
            await both_workers_serve(process)
            run = await process.start()
            async with viewers(process, f"/runs/{run}/stream", "tool_call_chunk") as tasks:
                process.child.send_signal(signal.SIGTERM)
                await until_stopping(process, workers=2)
                (tmp_path / "go.txt").touch()
            code, _ = await process.ended()
    assert code == 0
    assert [task.result()[-1]["type"] for task in tasks] == ["run_finished"] * len(tasks)


async def until_stopping(process: Process, *, workers: int = 1) -> None:
    assert process.child.stderr is not None
    async for line in process.child.stderr:
        workers -= b"stopping" in line
        if not workers:
            return


async def test_a_question_that_comes_while_it_ends_is_left_too(tmp_path: Path) -> None:
    """Something is under way when the signal comes: that ends first."""
    first = f"until test -e go.txt; do sleep 0.02; done; echo {'x' * 10} > first.txt"
    script = [reply(call("terminal", {"command": first})), reply(call("terminal", {"command": COMMAND}))]
    async with FaultyProvider(script=script) as provider, asyncio.timeout(PATIENCE_S):
        config_for(provider, tmp_path, store="sqlite:///runs.db", config=CONFIG)
        async with served(tmp_path) as process:
            run = await process.start()
            await until(process, run, "tool_call_chunk")
            process.child.send_signal(signal.SIGTERM)
            await until_stopping(process)
            (tmp_path / "go.txt").touch()
            code, log = await process.ended()
    assert code == 0
    assert f"run {run} waits for a person, and is handed over to the next process" in log
    assert ((tmp_path / "first.txt").exists(), (tmp_path / "ran.txt").exists()) == (True, False)
