"""Whoever reads a long log holds up no one else: no callback of the loop takes long (L140)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from server.http_server import RunningServer, running_server
from tailrace.events import AnyEvent, AttemptStarted, MessageChunk, MessageRecorded, RunFinished
from tailrace.messages import Message, Text, Usage, user
from tailrace.ports import NewRun
from tailrace.testing.provider import reply

ENTRIES = 150_000
BOUND_S = 0.1  # of CPU, which no other load makes longer; it was 0.23 and 0.54


async def long_run(server: RunningServer, new: NewRun, begins: Sequence[AnyEvent]) -> str:
    journal, text = server.app.journal, "word " * ENTRIES
    run, lease = await journal.start(new, "me")
    assert lease is not None
    journal.append(lease, begins)
    for _ in range(ENTRIES // 1000):
        journal.append(lease, [MessageChunk("word ")] * 1000)
        await journal.commit(lease)
    journal.append(lease, [MessageRecorded(Message("assistant", (Text(text),)), "end")])
    await journal.seal(lease, RunFinished("completed", text, Usage(), None, 0.0))
    return run.id.removeprefix("run_")


async def test_L140_a_long_log_is_read_while_the_loop_serves_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[float] = []
    run_handle = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run_handle(handle)
        taken.append(time.thread_time() - began)

    async with running_server(tmp_path, reply("Hi."), reply("Hi."), store="sqlite:///runs.db") as server:
        turn = await server.start()
        await server.app.agents.finished(turn)
        _, response = await server.json("POST", "/v1/responses", {"model": "faulty/ok", "input": "Go."})
        key = await long_run(server, (await server.app.journal.get(turn)).new, [MessageRecorded(user("Go."))])
        stored = (await server.app.journal.get(response["id"].replace("resp_", "run_"))).new
        answer = await long_run(server, stored, [AttemptStarted("faulty", "ok", dialect="chat")])
        watch = {"name": "watch_run", "arguments": {"run_id": f"run_{key}", "wait_s": 0}}
        headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": watch}
        listing = {**call, "method": "tools/list", "params": {}}
        async with server.client.post(server.url + "/mcp", json=listing, headers=headers) as listed:
            assert listed.status == 200  # the library is imported
        longest: dict[str, float] = {}
        monkeypatch.setattr(asyncio.Handle, "_run", timed)
        for method, path, body in (("GET", f"/v1/responses/resp_{answer}", None), ("POST", "/mcp", call)):
            taken.clear()
            async with server.client.request(method, server.url + path, json=body, headers=headers) as read:
                assert read.status == 200
                while await read.content.read(1 << 16):
                    pass
            longest[path] = max(taken)
    assert {path: taken_s for path, taken_s in longest.items() if taken_s > BOUND_S} == {}
