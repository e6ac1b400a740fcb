"""`tailrace serve --workers N`: one server that is several processes, any of which may be asked."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from proof.platforms.discord import FakeDiscord

from cli.commands.serve_process import command
from cli.commands.worker_server import WorkerServer, metrics_of, process_gone, worker_server
from gateway.gateways import config_for as gateway_config
from integrations.discord.test_gateway import settings_for
from redis_server import redis_server
from server.http_server import config_for, sse
from tailrace.cli.setup.doctor import findings
from tailrace.cli.setup.finding import Finding
from tailrace.integrations.postgres.store import PostgresJournal
from tailrace.testing.provider import Break, FaultyProvider, Offset, Scenario, call, reply

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
TEXT = "One two three four five six seven eight nine ten"
SLOW = Scenario(reply=reply(TEXT), pace_s=0.05)
STALLED = Scenario(reply=reply(TEXT), broken=Break("stall", Offset(60, per_cent=True)))
SQLITE = "sqlite:///runs.db"
QUESTION = {"model": "faulty/ok", "messages": [{"role": "user", "content": "Hi"}]}


async def start(client: aiohttp.ClientSession, **body: object) -> str:
    async with client.post("/runs", json={"input": "Count.", **body}) as response:
        assert response.status in (200, 201), await response.text()
        run_id: str = (await response.json())["id"]
        return run_id


async def events(
    client: aiohttp.ClientSession, run: str, begun: asyncio.Semaphore | None = None
) -> list[dict[str, Any]]:
    """All of a run's stream; releases `begun` when it is open."""
    async with client.get(f"/runs/{run}/stream") as response:
        assert response.status == 200, await response.text()
        if begun is not None:
            begun.release()
        return [event async for event in sse(response)]


# ── one server ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_run_is_watched_through_every_worker_and_by_many(tmp_path: Path) -> None:
    async with FaultyProvider(script=[SLOW]) as provider:
        config_for(provider, tmp_path, store=SQLITE)
        async with worker_server(tmp_path, 2) as server:
            async with server.via(1) as one, server.via(2) as two:
                run = await start(one)
                [first, second] = await asyncio.gather(events(one, run), events(two, run))
            async with aiohttp.ClientSession(server.url, connector=aiohttp.TCPConnector(limit=0)) as many:
                all_of_them = await asyncio.gather(*(events(many, run) for _ in range(60)))
            assert await server.stop() == 0
            served_by = {line.split("worker=")[1][0] for line in server.lines if "/stream" in line}
    assert [event["seq"] for event in first] == list(range(1, len(first) + 1))
    assert first[-1]["output"] == TEXT
    assert first == second
    assert all(seen == first for seen in all_of_them)
    assert served_by == {"1", "2"}


async def test_a_run_is_stopped_through_another_worker(tmp_path: Path) -> None:
    async with FaultyProvider(script=["silence"]) as provider:
        config_for(provider, tmp_path, store=SQLITE)
        async with worker_server(tmp_path, 2) as server, server.via(1) as one, server.via(2) as two:
            run = await start(one)
            await provider.request()
            async with two.post(f"/runs/{run}/stop") as response:
                assert response.status in (200, 202), await response.text()
            assert (await events(two, run))[-1]["status"] == "stopped"
            async with one.get(f"/runs/{run}") as response:
                assert (await response.json())["status"] == "stopped"


async def test_an_approval_is_answered_through_another_worker_and_holds_for_both(tmp_path: Path) -> None:
    asks = reply(call("terminal", {"command": "rm -rf build"}))
    async with FaultyProvider(script=[asks, reply("Done."), asks, reply("Done again.")]) as provider:
        config_for(provider, tmp_path, store=SQLITE)
        async with (
            worker_server(tmp_path, 2) as server,
            server.via(1) as one,
            server.via(2) as two,
            server.via(2) as by,
        ):
            run = await start(one)
            async with two.get(f"/runs/{run}/stream") as response:
                async for event in sse(response):
                    if event["type"] == "approval_asked":
                        answer = {"approval_id": event["approval_id"], "decision": "always"}
                        async with by.post(f"/runs/{run}/approval", json=answer) as answered:
                            assert answered.status == 200, await answered.text()
                assert event["output"] == "Done."
            again = await events(two, await start(two))
    assert "approval_asked" not in [event["type"] for event in again]
    assert again[-1]["output"] == "Done again."


async def test_a_stored_response_is_taken_up_through_any_worker(tmp_path: Path) -> None:
    async with FaultyProvider(script=[SLOW]) as provider:
        config_for(provider, tmp_path, store=SQLITE)
        async with worker_server(tmp_path, 2) as server, server.via(1) as one, server.via(2) as two:
            body = {"model": "faulty/ok", "input": "Count.", "background": True, "stream": True}
            seen: list[dict[str, Any]] = []
            async with one.post("/v1/responses", json=body) as response:
                async for event in sse(response):
                    seen.append(event)
                    if event["type"] == "response.output_text.delta":
                        break
            response_id, after = seen[0]["response"]["id"], seen[-1]["sequence_number"]
            path = f"/v1/responses/{response_id}"
            async with two.get(f"{path}?stream=true&starting_after={after}") as response:
                seen += [event async for event in sse(response)]
            async with one.get(path) as response:
                assert (await response.json())["status"] == "completed"
    assert [event["sequence_number"] for event in seen] == list(range(len(seen)))
    assert "".join(e["delta"] for e in seen if e["type"] == "response.output_text.delta") == TEXT


async def test_one_idempotency_key_is_one_run_in_all_workers(tmp_path: Path) -> None:
    async with FaultyProvider(script=[reply(TEXT)]) as provider:
        config_for(provider, tmp_path, store=SQLITE)
        async with worker_server(tmp_path, 2) as server, server.via(1) as one, server.via(2) as two:
            found = [await start(client, idempotency_key="once") for client in (one, two, one)]
    assert len(set(found)) == 1


async def test_workers_over_postgresql_and_redis_name_the_bus_that_is_away(tmp_path: Path, postgres_url: str) -> None:
    async with FaultyProvider(script=[SLOW, reply(TEXT)]) as provider:
        with redis_server(tmp_path) as redis:
            config_for(provider, tmp_path, store=postgres_url, config=f"bus: {{url: '{redis.url}'}}\n")
            await (await PostgresJournal.open(postgres_url)).close()
            said = [finding.what for finding in await doctor(tmp_path) if finding.what.startswith(("bus", "store"))]
            assert said[0] == f"bus {redis.url}: it answers"
            assert said[1].endswith(": can be read and written"), said
            assert f", format {PostgresJournal.schema_version}:" in said[1]
            async with worker_server(tmp_path, 2) as server, server.via(1) as one, server.via(2) as two:
                run = await start(one)
                [first, second] = await asyncio.gather(events(one, run), events(two, run))
                assert first == second
                redis.kill()
                status, body = 200, {"degraded": dict[str, str]()}
                async with asyncio.timeout(30):
                    while "bus" not in body["degraded"]:
                        async with two.get("/readyz") as response:
                            status, body = response.status, await response.json()
                assert status == 200
                assert "Redis" in body["degraded"]["bus"]
                again = await start(one)
                assert (await events(two, again))[-1]["output"] == TEXT
                [bus] = [finding for finding in await doctor(tmp_path) if finding.what.startswith("bus")]
                assert bus.state == "broken"


async def doctor(home: Path) -> list[Finding]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TAILRACE_HOME", str(home))
        return [finding async for finding in findings(offline=True)]


# ── what workers have in common ──────────────────────────────────────────────────────────────────────────────


async def test_a_scrape_of_any_worker_counts_all_and_never_backwards(tmp_path: Path) -> None:
    done, asked = 'tailrace_runs_total{kind="agent",status="completed"}', "tailrace_requests_in_flight"
    async with FaultyProvider(script=[reply(TEXT), reply(TEXT), "silence"]) as provider:
        config_for(provider, tmp_path, store=SQLITE)
        async with worker_server(tmp_path, 2) as server, server.via(1) as one:
            async with server.via(2) as two, server.via(2) as watching:
                for client in (one, two):
                    await events(client, await start(client))
                while (await metrics_of(one)).get(done) != 2:
                    pass  # a run is counted after its viewers have seen its end
                assert (await metrics_of(two))[done] == 2
                run = await start(two)
                async with watching.get(f"/runs/{run}/stream"):
                    seen = await metrics_of(one)
                    assert (seen["tailrace_viewers"], seen["tailrace_runs_running"], seen[asked]) == (1, 1, 2)
                    os.kill(server.pids[2], signal.SIGKILL)
                    await server.logged("worker 2 serves", 2)
            after = await metrics_of(one)
            async with server.via(2) as replaced:
                theirs = await metrics_of(replaced)
    assert 2 <= after[done] <= theirs[done] <= 3  # the third is the one that another worker has gone on with
    assert (theirs["tailrace_viewers"], theirs[asked]) == (0, 1)
    assert after['tailrace_requests_total{route="/runs",status="201"}'] == 3


async def test_the_limit_of_requests_holds_for_all_workers_together(tmp_path: Path) -> None:
    async with FaultyProvider(script=["silence"]) as provider:
        config_for(provider, tmp_path, store=SQLITE, config="server: {drain_s: 0.05, max_requests: 1}\n")
        async with (
            worker_server(tmp_path, 2) as server,
            server.via(1) as one,
            server.via(1) as two,
            server.via(2) as late,
        ):
            run = await start(one)
            async with two.get(f"/runs/{run}/stream"), late.get("/runs") as response:
                assert (response.status, (await response.json())["error"]["kind"]) == (503, "overloaded")


# ── deaths ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_run_of_a_worker_that_was_killed_goes_on_and_its_viewers_miss_nothing(tmp_path: Path) -> None:
    async with FaultyProvider(script=[STALLED, reply("six seven eight nine ten")]) as provider:
        config_for(provider, tmp_path, store="sqlite:///runs.db', lease_s: 2, durability: 'committed")
        async with worker_server(tmp_path, 2) as server, server.via(2) as two, server.via(1) as one:
            run = await start(one)
            seen: list[dict[str, Any]] = []
            async with two.get(f"/runs/{run}/stream") as response:
                async for event in sse(response):
                    if event["type"] == "message_chunk" and not any(e["type"] == "message_chunk" for e in seen):
                        os.kill(server.pids[1], signal.SIGKILL)
                    seen.append(event)
    assert [event["seq"] for event in seen] == list(range(1, len(seen) + 1))
    assert seen[-1]["status"] == "completed"


async def test_L171_a_worker_that_is_stopped_alone_hands_its_run_over_and_is_replaced(tmp_path: Path) -> None:
    async with FaultyProvider(script=[STALLED, reply("six seven eight nine ten")]) as provider:
        config_for(provider, tmp_path, store=SQLITE, config="server: {drain_s: 600}\n")
        async with worker_server(tmp_path, 2) as server, server.via(2) as two:
            async with server.via(1) as one:
                run = await start(one)
            async with two.get(f"/runs/{run}/stream") as response:
                async for event in sse(response):
                    if event["type"] == "message_chunk":
                        break
            os.kill(server.pids[1], signal.SIGTERM)
            async with server.via(2) as again:
                seen = await events(again, run)
            await server.logged("worker 1 serves", 2)
            async with server.via(1) as one:
                assert await events(one, run) == seen
    assert seen[-1]["status"] == "completed"


async def test_a_worker_that_is_stopped_alone_leaves_new_connections_to_the_others(tmp_path: Path) -> None:
    async with FaultyProvider(script=["silence"]) as provider:
        config_for(provider, tmp_path, store=SQLITE, config="server: {drain_s: 600}\n")
        async with worker_server(tmp_path, 2) as server, server.via(1) as one:
            asking = asyncio.create_task(one.post("/v1/chat/completions", json=QUESTION))
            await provider.request()  # what worker 1 is waiting for when it is told to stop
            os.kill(server.pids[1], signal.SIGTERM)
            await server.logged("worker=1.*stopping; requests in flight|stopping; requests in flight.*worker=1")
            async with aiohttp.ClientSession(server.url, connector=aiohttp.TCPConnector(force_close=True)) as client:
                for _ in range(30):
                    async with client.get("/runs") as response:
                        assert response.status == 200, await response.text()
            asking.cancel()


async def test_one_worker_polls_a_chat_platform_and_another_goes_on_when_it_is_killed(tmp_path: Path) -> None:
    stalled = Scenario(reply=reply(f"{TEXT}. {TEXT}."), broken=Break("stall", Offset(80, per_cent=True)))
    rest = reply(" And that is the end of it.")
    async with FakeDiscord() as discord, FaultyProvider([stalled, rest]) as provider:
        ada = discord.direct(70, 7)
        store = 'sqlite:///runs.db", lease_s: 2, durability: "committed'
        gateway_config(tmp_path, provider, settings_for(discord), {}, store=store)
        async with worker_server(tmp_path, 2, DISCORD_BOT_TOKEN=discord.token) as server:
            await server.logged("discord is connected")
            await server.logged("discord is polled by another process")
            [polling] = [line[-1] for line in server.lines if "discord is connected" in line]
            await discord.write(ada, "hello")
            await discord.until(lambda: bool(ada.answers))
            os.kill(server.pids[int(polling)], signal.SIGKILL)
            await discord.until(lambda: bool(ada.texts) and ada.texts[-1].endswith("the end of it."), timeout_s=60)
        assert len(ada.answers) == 1
    # A worker that a busy machine holds up for two seconds loses its lease, and one of them connects once more.
    assert sum("discord is connected" in line for line in server.lines) >= 2


async def test_a_killed_parent_takes_its_workers_along_after_their_drain(tmp_path: Path) -> None:
    async with FaultyProvider(script=[SLOW]) as provider:
        config_for(provider, tmp_path, store=SQLITE, config="server: {drain_s: 20}\n")
        async with worker_server(tmp_path, 2) as server, server.via(1) as one:
            run = await start(one)
            async with one.get(f"/runs/{run}/stream") as response:
                stream = sse(response)
                seen = [await anext(stream)]
                server.child.kill()
                seen += [event async for event in stream]
            for pid in server.pids.values():
                await process_gone(pid)
    assert seen[-1]["output"] == TEXT


# ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────


async def draining(server: WorkerServer, provider: FaultyProvider) -> None:
    async with server.via(1) as one:
        await start(one)
        await provider.request()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_streams_end_within_the_drain_whoever_serves_them(tmp_path: Path, number: signal.Signals) -> None:
    async with FaultyProvider(script=[SLOW, SLOW]) as provider:
        config_for(provider, tmp_path, store=SQLITE, config="server: {drain_s: 20}\n")
        async with worker_server(tmp_path, 2) as server, server.via(1) as one, server.via(2) as two:
            runs = [await start(one), await start(two)]
            begun = asyncio.Semaphore(0)
            watching = [asyncio.create_task(events(c, run, begun)) for c, run in zip((two, one), runs, strict=True)]
            for _ in watching:
                await begun.acquire()
            server.child.send_signal(number)
            seen = await asyncio.gather(*watching)
            assert await server.child.wait() == 0
    assert len(provider.requests) == 2, "neither worker hands its run over to the other, which ends too"
    assert [log[-1]["output"] for log in seen] == [TEXT, TEXT]


async def test_the_second_signal_ends_all_of_them_at_once(tmp_path: Path) -> None:
    async with FaultyProvider(script=["silence"]) as provider:
        config_for(provider, tmp_path, store=SQLITE, config="server: {drain_s: 600}\n")
        async with worker_server(tmp_path, 2) as server:
            await draining(server, provider)
            server.child.send_signal(signal.SIGINT)
            await server.logged("stopping", 2)
            server.child.send_signal(signal.SIGINT)
            async with asyncio.timeout(20):
                assert await server.child.wait() == 130


async def test_a_signal_to_every_process_of_the_group_is_the_first_one(tmp_path: Path) -> None:
    """Ctrl-C in a terminal, and a service manager that signals the whole group."""
    async with FaultyProvider(script=[SLOW]) as provider:
        config_for(provider, tmp_path, store=SQLITE, config="server: {drain_s: 20}\n")
        async with worker_server(tmp_path, 2) as server, server.via(1) as one:
            run = await start(one)
            begun = asyncio.Semaphore(0)
            watching = asyncio.create_task(events(one, run, begun))
            await begun.acquire()
            for pid in (server.child.pid, *server.pids.values()):
                os.kill(pid, signal.SIGINT)
            seen = await watching
            assert await server.child.wait() == 0
    assert seen[-1]["output"] == TEXT


# ── mistakes ─────────────────────────────────────────────────────────────────────────────────────────────────


async def failed(home: Path, *args: str) -> tuple[int | None, bytes, list[str]]:
    async with asyncio.timeout(60), command(home, "--workers", "3", *args) as child:
        out, err = await child.communicate()
    return child.returncode, out, [line for line in err.decode().splitlines() if line.startswith("error: ")]


@pytest.mark.parametrize(
    ("store", "said"),
    [
        ("memory://", "store.url: each worker would have a store of its own"),
        ("sqlite:///runs.db', durability: 'memory", "store.durability: a run in memory is known to its own"),
    ],
)
async def test_a_store_that_workers_cannot_share_is_refused(tmp_path: Path, store: str, said: str) -> None:
    async with FaultyProvider() as provider:
        config_for(provider, tmp_path, store=store)
        code, out, [line] = await failed(tmp_path)
    assert (code, out) == (1, b"")
    assert line.startswith(f"error: {tmp_path}/config.yaml:")
    assert f": {said}" in line


async def test_a_mistake_in_the_config_is_said_once(tmp_path: Path) -> None:
    async with FaultyProvider() as provider:
        config_for(provider, tmp_path, store=SQLITE, config="agent: {tools: [no_such_tool]}\n")
        code, out, [line] = await failed(tmp_path)
    assert (code, out) == (1, b"")
    assert "no_such_tool" in line


async def test_J117_a_public_address_without_a_key_is_refused_before_it_is_bound(tmp_path: Path) -> None:
    async with FaultyProvider() as provider:
        config_for(provider, tmp_path, store=SQLITE)
        code, out, [line] = await failed(tmp_path, "--host", "0.0.0.0")
    assert (code, out) == (1, b"")
    assert line.startswith("error: server.host: ")


async def test_an_address_in_use_is_said_once(tmp_path: Path) -> None:
    async with FaultyProvider() as provider:
        config_for(provider, tmp_path, store=SQLITE)
        port = provider.url.rpartition(":")[2]
        code, out, [line] = await failed(tmp_path, "--port", port)
    assert (code, out) == (1, b"")
    assert f"cannot listen on 127.0.0.1:{port}: another program uses it" in line


async def test_a_damaged_database_is_said_once(tmp_path: Path) -> None:
    async with FaultyProvider() as provider:
        config_for(provider, tmp_path, store=SQLITE)
        (tmp_path / "runs.db").write_bytes(b"not a database at all" * 500)
        code, out, lines = await failed(tmp_path)
    assert (code, out, len(lines)) == (1, b"", 1)


async def test_the_config_says_how_many_and_the_log_what_was_started(tmp_path: Path) -> None:
    async with FaultyProvider() as provider:
        config_for(provider, tmp_path, store=SQLITE, config="server: {workers: 2, drain_s: 0.05}\n")
        async with asyncio.timeout(60), command(tmp_path) as child:
            assert child.stdout is not None
            assert child.stderr is not None
            await child.stdout.readline()
            err = await child.stderr.readuntil(b" config ")  # the first worker logs it when it is ready itself
            child.send_signal(signal.SIGTERM)
            err += (await child.communicate())[1]
    assert child.returncode == 0
    started = next(line for line in err.decode().splitlines() if " config " in line)
    assert f"config {tmp_path}/config.yaml; store {tmp_path}/runs.db; bus none; model faulty/ok" in started
    assert "platforms: none; no key is required" in started
    assert "2 workers share the address" in err.decode()
