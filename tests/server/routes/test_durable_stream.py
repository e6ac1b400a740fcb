"""A run as a Durable Stream: offsets, what a cache may keep, waiting for more, and the end. The protocol's own suite
and client are in `clients/test_durable_streams.py`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from multidict import CIMultiDictProxy

from server.http_server import RunningServer, running_server
from tailrace.events import AnyEvent, MessageChunk, RunFinished
from tailrace.ports import Lease, LogPage, LogViewer, NewRun
from tailrace.server.routes.streams import durable_stream
from tailrace.testing.provider import reply, think
from tailrace.wire.sse import SseDecoder

KEYS = "server: {keys: [{name: all, key_env: ALL}, {name: models, key_env: MODELS, scopes: [models]}]}"
CACHED = "max-age=60, stale-while-revalidate=300"


class Answer(NamedTuple):
    status: int
    headers: CIMultiDictProxy[str]
    body: bytes

    @property
    def items(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.body)
        return found


async def read(server: RunningServer, run_id: str, query: str = "", **kwargs: Any) -> Answer:
    async with server.client.get(f"{server.url}/streams/runs/{run_id}{query}", **kwargs) as response:
        return Answer(response.status, response.headers, await response.read())


async def begun(server: RunningServer, *texts: str) -> tuple[str, Lease]:
    """A run that a test writes: its log is `run_started` and a chunk for each text."""
    journal = server.app.journal
    run, lease = await journal.start(NewRun("agent", {"text": "hi"}), owner="test")
    assert lease is not None
    await write(server, lease, *map(MessageChunk, texts))
    return run.id, lease


async def write(server: RunningServer, lease: Lease, *events: AnyEvent) -> None:
    server.app.journal.append(lease, events)
    await server.app.journal.commit(lease)


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> asyncio.Semaphore:
    """Released by each request that begins to wait for a page: it has its offset by then."""
    begun_waits, next_page = asyncio.Semaphore(0), durable_stream.next_page

    async def counted(viewer: LogViewer[LogPage], until: float | None) -> LogPage | None:
        begun_waits.release()
        return await next_page(viewer, until)

    monkeypatch.setattr(durable_stream, "next_page", counted)
    return begun_waits


async def test_an_ended_run_is_read_in_ranges_to_its_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable_stream, "RANGE_BYTES", 1000)
    async with running_server(tmp_path) as server:
        run_id, lease = await begun(server, *("w" * 100 for _ in range(1000)))
        await server.app.journal.seal(lease, RunFinished("completed", "w" * 100_000))
        events = await server.events(f"/runs/{run_id}/stream")
        log, offset, tags = [], "-1", []
        while True:
            response = await read(server, run_id, f"?offset={offset}")
            log += response.items
            offset, before = response.headers["Stream-Next-Offset"], offset
            tags.append(response.headers["ETag"])
            assert response.headers["Cache-Control"] == f"public, {CACHED}"
            assert before == "-1" or before < offset
            if "Stream-Closed" in response.headers:
                break
            assert "Stream-Up-To-Date" not in response.headers
        at_end = await read(server, run_id, f"?offset={offset}")
        again = await read(server, run_id, f"?offset={offset}", headers={"If-None-Match": at_end.headers["ETag"]})
        waited = await read(server, run_id, f"?offset={offset}&live=long-poll")
    assert log == [{name: event[name] for name in event if not name.startswith("sse_")} for event in events]
    assert len(tags) == len(set(tags)) >= 4
    assert (at_end.items, at_end.headers["Stream-Closed"]) == ([], "true")
    assert (again.status, again.body) == (304, b"")
    assert (waited.status, waited.headers["Stream-Closed"], waited.headers["Cache-Control"]) == (
        204,
        "true",
        "no-store",
    )


async def test_a_range_of_an_open_run_is_cacheable_and_its_end_is_not(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        run_id, lease = await begun(server, "one")
        first = await read(server, run_id)
        at_end = await read(server, run_id, f"?offset={first.headers['Stream-Next-Offset']}")
        now = await read(server, run_id, "?offset=now")
        await write(server, lease, MessageChunk("two"))
        second = await read(server, run_id, f"?offset={first.headers['Stream-Next-Offset']}")
        changed = await read(server, run_id, headers={"If-None-Match": first.headers["ETag"]})
    assert [item["type"] for item in first.items] == ["run_started", "message_chunk"]
    assert (first.headers["Stream-Up-To-Date"], first.headers["Cache-Control"]) == ("true", f"public, {CACHED}")
    assert (at_end.items, at_end.headers["Cache-Control"]) == ([], "no-store")
    assert (now.items, now.headers["Cache-Control"], "ETag" in now.headers) == ([], "no-store", False)
    assert [item["text"] for item in second.items] == ["two"]
    assert (changed.status, len(changed.items)) == (200, 3)


async def test_a_long_poll_waits_for_the_next_entry_and_for_the_end(tmp_path: Path, waiting: asyncio.Semaphore) -> None:
    async with running_server(tmp_path) as server:
        run_id, lease = await begun(server, "one")
        offset = (await read(server, run_id)).headers["Stream-Next-Offset"]
        poll = asyncio.create_task(read(server, run_id, f"?offset={offset}&live=long-poll"))
        live = asyncio.create_task(read(server, run_id, "?offset=now&live=long-poll"))
        for _ in range(3):
            await waiting.acquire()
        await write(server, lease, MessageChunk("two"))
        polled, followed = await poll, await live
        cursor = polled.headers["Stream-Cursor"]
        collided = await read(server, run_id, f"?offset={offset}&live=long-poll&cursor={cursor}")
        offset = polled.headers["Stream-Next-Offset"]
        poll = asyncio.create_task(read(server, run_id, f"?offset={offset}&live=long-poll"))
        for _ in range(2):
            await waiting.acquire()
        await server.app.journal.seal(lease, RunFinished("completed", "onetwo"))
        last = await poll
    assert [item["text"] for item in polled.items] == [item["text"] for item in followed.items] == ["two"]
    assert (polled.headers["Cache-Control"], followed.headers["Cache-Control"]) == (f"public, {CACHED}", "no-store")
    assert int(collided.headers["Stream-Cursor"]) > int(cursor)
    assert [item["type"] for item in last.items] == ["run_finished"]
    assert (last.headers["Stream-Closed"], "Stream-Cursor" in last.headers) == ("true", False)


async def test_a_long_poll_of_a_silent_run_ends_with_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable_stream, "LONG_POLL_S", 0.01)
    async with running_server(tmp_path) as server:
        run_id, _ = await begun(server, "one")
        response = await read(server, run_id, "?offset=now&live=long-poll")
    assert (response.status, response.headers["Stream-Next-Offset"]) == (204, durable_stream.offset_of(2))
    assert response.headers["Stream-Up-To-Date"] == "true"
    assert response.headers["Stream-Cursor"].isdigit()
    assert "Stream-Closed" not in response.headers


async def test_events_follow_a_run_to_its_close(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        run_id, lease = await begun(server, "one")
        seen: list[tuple[str, Any]] = []
        decoder, caught_up = SseDecoder(), asyncio.Event()

        async def watch() -> None:
            async with server.client.get(f"{server.url}/streams/runs/{run_id}?offset=-1&live=sse") as response:
                assert response.headers.getall("Content-Type") == ["text/event-stream"]
                async for chunk in response.content.iter_any():
                    seen.extend((event.event, json.loads(event.data)) for event in decoder.feed(chunk))
                    caught_up.set()

        watching = asyncio.create_task(watch())
        await caught_up.wait()
        await write(server, lease, MessageChunk("two"))
        await server.app.journal.seal(lease, RunFinished("completed", "onetwo"))
        await watching
    entries = [item for name, data in seen if name == "data" for item in data]
    controls = [data for name, data in seen if name == "control"]
    assert [item["seq"] for item in entries] == [1, 2, 3, 4]
    assert all(seen[at + 1][0] == "control" for at, (name, _) in enumerate(seen) if name == "data")
    assert all(control["streamCursor"].isdigit() for control in controls[:-1])
    assert controls[-1] == {"streamNextOffset": durable_stream.offset_of(4), "upToDate": True, "streamClosed": True}


async def test_a_connection_of_events_ends_and_the_stream_stays_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable_stream, "EVENTS_S", 0.01)
    async with running_server(tmp_path) as server:
        run_id, _ = await begun(server, "one")
        response = await read(server, run_id, "?offset=-1&live=sse")
    assert b'"upToDate":true' in response.body
    assert b"streamClosed" not in response.body


async def test_thoughts_are_left_out_and_their_places_are_not(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply(think("Hm."), "Yes.")) as server:
        run_id = await server.start()
        await server.events(f"/runs/{run_id}/stream")
        without, whole = await read(server, run_id), await read(server, run_id, "?reasoning=true&unknown=1")
    assert b"Hm." not in without.body
    assert b"Hm." in whole.body
    assert without.headers["Stream-Next-Offset"] == whole.headers["Stream-Next-Offset"]


async def test_what_may_not_be_asked(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        run_id, _ = await begun(server, "one")
        url = f"{server.url}/streams/runs/{run_id}"
        asked = ["?offset=", "?offset=0,1", "?offset=-1&offset=-1", "?offset=1", "?live=sse", "?live=long-poll"]
        asked += ["?offset=-1&live=poll", "?offset=-1&cursor=x&live=sse", f"?offset={durable_stream.offset_of(3)}"]
        refused = [(await read(server, run_id, query)).status for query in asked]
        for method in ("PUT", "POST", "DELETE", "PATCH"):
            async with server.client.request(method, url, data=b"[]") as response:
                assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")
        async with server.client.head(url) as head, server.client.head(f"{server.url}/streams/runs/none") as none:
            assert (head.status, none.status) == (200, 404)
            assert head.headers["Stream-Next-Offset"] == durable_stream.offset_of(2)
            assert head.headers["Cache-Control"] == "no-store"
            assert "Stream-Closed" not in head.headers
    assert refused == [400] * 8 + [409]


async def test_a_key_needs_the_scope_and_makes_answers_private(tmp_path: Path) -> None:
    env = {"ALL": "key-of-all", "MODELS": "key-of-models"}
    async with running_server(tmp_path, config=KEYS, env=env) as server:
        run_id, _ = await begun(server, "one")
        answers = [
            await read(server, run_id, headers={"Authorization": f"Bearer {key}"})
            for key in ("wrong", "key-of-models", "key-of-all")
        ]
    assert [answer.status for answer in answers] == [401, 403, 200]
    assert answers[2].headers["Cache-Control"] == f"private, {CACHED}"
