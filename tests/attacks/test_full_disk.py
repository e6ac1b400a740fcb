"""L144: the disk becomes full while a run is under way, and has space again. SQLite itself says that it is full."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from server.http_server import RunningServer, running_server, sse
from tailrace.app import App
from tailrace.journal.memory_first import MemoryFirst
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.testing.provider import Scenario, reply

KEYS = """
server:
  drain_s: 0.05
  keys:
    - {name: poor, key_env: POOR_KEY, tokens_per_day: 100000}
"""
TEXT = " ".join(f"word{number}" for number in range(400))
STORE = "sqlite:///runs.db', lease_s: 1, durability: 'committed"  # stands between quotes in the config
SLOW = Scenario(reply=reply(TEXT), pace_s=0.005)


def storage_of(app: App) -> SqliteJournal:
    assert isinstance(app.journal, MemoryFirst)
    assert isinstance(app.journal._storage, SqliteJournal)
    return app.journal._storage


@contextmanager
def full_disk(app: App) -> Iterator[None]:
    """The file can take no further page."""
    connection = storage_of(app)._connection
    (most,) = connection.execute("PRAGMA max_page_count").fetchone()
    connection.execute("PRAGMA max_page_count = 1")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA max_page_count = {most}")


@contextmanager
def awaited_line(text: str) -> Iterator[asyncio.Event]:
    """Set once the journal has logged a line with this text."""
    seen, handler = asyncio.Event(), logging.Handler()
    handler.emit = lambda record: seen.set() if text in record.getMessage() else None  # type: ignore[method-assign]
    journal_log = logging.getLogger("tailrace.journal")
    journal_log.addHandler(handler)
    try:
        yield seen
    finally:
        journal_log.removeHandler(handler)


async def watch(server: RunningServer, run_id: str, seen: list[dict[str, Any]]) -> dict[str, Any]:
    """Adds what follows to what was seen; returns the error event that ended the stream, empty where none did."""
    headers = {"Last-Event-ID": seen[-1]["sse_id"]} if seen else {}
    async with server.client.get(f"{server.url}/runs/{run_id}/stream", headers=headers) as response:
        async for event in sse(response):
            if event["sse_event"] == "error":
                return event
            seen.append(event)
    return {}


async def test_L144_a_run_waits_for_space_its_viewers_hear_it_and_it_goes_on(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(120),
        running_server(tmp_path, SLOW, reply(TEXT), reply(TEXT), store=STORE) as server,
        asyncio.TaskGroup() as group,
    ):
        recovering = group.create_task(server.app.keep_recovering())
        assert (await server.json("GET", "/readyz"))[0] == 200
        run_id = await server.start()
        seen: list[dict[str, Any]] = []
        with full_disk(server.app):
            error = await watch(server, run_id, seen)
            assert "no space left to write the journal" in error["error"]["message"], error
            status, body = await server.json("GET", "/readyz")
            assert (status, body["error"]["kind"]) == (503, "journal_unavailable")
            assert "no space left to write the journal" in body["error"]["message"]
            status, body = await server.json("POST", "/runs", {"input": "x" * 10_000})
            assert status == 503
            assert "no space left to write the journal" in body["error"]["message"]
            status, body = await server.json("GET", f"/runs/{run_id}")
            assert (status, body["error"]) == (200, None)
            assert body["status"] in ("running", "pending")
        while await watch(server, run_id, seen):
            pass
        assert (await server.json("GET", "/readyz"))[0] == 200
        recovering.cancel()
    assert [int(event["sse_id"]) for event in seen] == sorted({int(event["sse_id"]) for event in seen})
    assert seen[-1]["type"] == "run_finished"
    assert seen[-1]["status"] == "completed"
    assert "".join(event["text"] for event in seen if event["type"] == "message_chunk") == seen[-1]["output"]
    assert (seen[-1]["output"].startswith("word0 word1 "), seen[-1]["output"].endswith(" word399")) == (True, True)


async def test_L144_a_disk_that_is_nearly_full_is_said_before_a_write_fails(tmp_path: Path, monkeypatch: Any) -> None:
    async with running_server(tmp_path, store=STORE) as server:
        monkeypatch.setattr("tailrace.journal.sqlite.store.MIN_FREE_BYTES", 1 << 60)
        status, body = await server.json("GET", "/readyz")
        assert (status, body["error"]["kind"]) == (503, "journal_unavailable")
        assert "no space left to write the journal" in body["error"]["message"]


async def test_L144_a_run_is_taken_exactly_when_the_server_is_ready(tmp_path: Path, monkeypatch: Any) -> None:
    async with running_server(tmp_path, store=STORE) as server:
        with monkeypatch.context() as patched:
            patched.setattr("tailrace.journal.sqlite.store.MIN_FREE_BYTES", 1 << 60)
            assert (await server.json("GET", "/readyz"))[0] == 503
            for path, body in (("/runs", {"input": "Go."}), ("/v1/responses", {"model": "tailrace", "input": "Go."})):
                status, told = await server.json("POST", path, body)
                assert (status, "no space left" in told["error"]["message"]) == (503, True), path
        assert (await server.json("POST", "/runs", {"input": "Go."}))[0] == 201
        assert (await server.json("GET", "/readyz"))[0] == 200


async def test_L144_plain_calls_of_the_time_without_space_are_answered_and_counted_and_the_log_says_it(
    tmp_path: Path,
) -> None:
    headers = {"Authorization": "Bearer poor-secret"}
    env, store = {"POOR_KEY": "poor-secret"}, "sqlite:///runs.db"
    body = {"model": "faulty/ok", "messages": [{"role": "user", "content": "Go." * 10_000}]}

    async def ask(server: RunningServer) -> tuple[str, int]:
        status, answer = await server.json("POST", "/v1/chat/completions", body)
        assert status == 200, answer
        return "run_" + answer["id"].removeprefix("chatcmpl-"), answer["usage"]["total_tokens"]

    async with (
        asyncio.timeout(60),
        running_server(tmp_path, config=KEYS, env=env, store=store, headers=headers) as server,
    ):
        asked = [await ask(server)]
        assert [run.id for run in await server.app.journal.runs()] == [asked[0][0]]
        # there is room to count the request, and none for the run
        with full_disk(server.app), awaited_line("answered and not recorded, because storage fails") as seen:
            asked.append(await ask(server))
            await seen.wait()
        with awaited_line("calls are recorded again; 1 that ended meanwhile are on no record") as seen:
            asked.append(await ask(server))
            await seen.wait()
        recorded, rows = await storage_of(server.app).runs(), await server.app.usage.rows(key="poor")
    assert [run.id for run in recorded] == [asked[-1][0], asked[0][0]]
    assert [(row.calls, row.tokens) for row in rows] == [(len(asked), sum(used for _, used in asked))]
