"""`tailrace serve` as a process: one line, an orderly stop, and runs that go on after it."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cli.commands.serve_process import command, served
from postgres_server import free_port
from server.http_server import config_for, sse
from tailrace.app import open_app
from tailrace.cli.commands import serve
from tailrace.cli.main import main
from tailrace.config.load import load
from tailrace.testing.provider import Break, FaultyProvider, Offset, Scenario, reply

TEXT = "One two three four five six seven eight nine ten"
STALLED = Scenario(reply=reply(TEXT), broken=Break("stall", Offset(60, per_cent=True)))
SQLITE = "sqlite:///runs.db"
AS_PROCESS_1 = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")


async def test_it_says_where_it_listens_and_stops_in_order(tmp_path: Path) -> None:
    async with FaultyProvider() as provider:
        config_for(provider, tmp_path)
        async with served(tmp_path) as process:
            async with process.client.get(process.url + "/healthz") as response:
                assert await response.json() == {"status": "ok"}
            code, err = await process.stop()
    assert code == 0
    assert "Traceback" not in err
    assert "stopping" in err


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_under_nohup_it_outlives_its_terminal(tmp_path: Path, workers: str) -> None:
    """`nohup` starts it with SIGHUP ignored, and so it stays."""
    async with FaultyProvider() as provider:
        config_for(provider, tmp_path, store=SQLITE)
        async with served(tmp_path, "--workers", workers, under=("nohup",)) as process:
            process.child.send_signal(signal.SIGHUP)
            async with process.client.get(process.url + "/healthz") as response:
                assert await response.json() == {"status": "ok"}
            code, err = await process.stop()
    assert (code, "Traceback" in err) == (0, False)


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
@pytest.mark.parametrize(("store", "has_parent"), [(SQLITE, True), ("memory://", False)])
async def test_as_process_1_a_single_worker_has_a_parent(tmp_path: Path, store: str, has_parent: bool) -> None:
    """As in a container with one core: it collects the orphans of tools. A store in memory cannot be shared with it."""
    tried = await asyncio.create_subprocess_exec(*AS_PROCESS_1, "true", stderr=asyncio.subprocess.DEVNULL)
    if await tried.wait() != 0:
        pytest.skip("this machine allows no process namespace")
    async with FaultyProvider() as provider:
        config_for(provider, tmp_path, store=store)
        async with served(tmp_path, "--workers", "1", under=AS_PROCESS_1) as process:
            [first] = _children_of(process.child.pid)
            assert len(_children_of(first)) == has_parent
            os.kill(first, signal.SIGTERM)  # `unshare` ignores it
            code, err = await process.ended()
    assert (code, "worker 1 serves" in err) == (0, has_parent)


def _children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


async def test_too_few_files_for_the_requests_are_said_at_the_start(tmp_path: Path) -> None:
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY or allowed > 2_000_000:
        pytest.skip("this machine allows as many files as anybody wants")
    async with FaultyProvider() as provider:
        config_for(provider, tmp_path, config="server: {max_requests: 1000000}\n")
        async with served(tmp_path) as process:
            _, err = await process.stop()
    assert "files open" in err
    assert "server.max_requests is 1000000" in err


def test_a_store_that_can_only_be_read_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tailrace.db").touch()
    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path))
    monkeypatch.setattr("os.access", lambda _place, _mode: False)  # root, who may run this, may write everywhere
    assert main(["serve", "--port", "0"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        f"error: store.url: {tmp_path} cannot be written to: it is another user's, or its file system is read-only\n"
    )


def test_a_store_that_may_not_be_looked_for_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    exists = Path.exists

    def refused(path: Path, **options: Any) -> bool:
        if path.name == "tailrace.db":
            raise PermissionError(13, "Permission denied", str(path))
        return exists(path, **options)

    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path))
    monkeypatch.setattr("pathlib.Path.exists", refused)  # root, who may run this, may look everywhere
    assert main(["serve", "--port", "0"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: store.url: {tmp_path} cannot be written to")


async def test_what_fails_while_it_opens_is_in_the_log_as_all_else(tmp_path: Path, postgres_url: str) -> None:
    async with FaultyProvider() as provider:
        nobody = f"bus: {{url: 'redis://127.0.0.1:{free_port()}'}}\n"
        config_for(provider, tmp_path, store=postgres_url, config=nobody)
        async with served(tmp_path, "--log", "json") as process:
            _, err = await process.stop()
    lines = [json.loads(line) for line in err.splitlines()]
    assert any("Redis" in line["message"] for line in lines)


async def test_a_stream_that_can_end_in_time_does(tmp_path: Path) -> None:
    async with FaultyProvider(script=[Scenario(reply=reply(TEXT), pace_s=0.02)]) as provider:
        config_for(provider, tmp_path, store=SQLITE, config="server: {drain_s: 20}\n")
        async with served(tmp_path) as process:
            run = await process.start()
            async with process.client.get(f"{process.url}/runs/{run}/stream") as response:
                stream = sse(response)
                seen = [await anext(stream)]
                process.child.send_signal(signal.SIGTERM)
                seen += [event async for event in stream]
            code, _ = await process.ended()
    assert code == 0
    assert seen[-1]["type"] == "run_finished"
    assert seen[-1]["output"] == TEXT


async def test_a_run_that_cannot_end_in_time_goes_on_in_the_next_process(tmp_path: Path) -> None:
    async with FaultyProvider(script=[STALLED, reply(TEXT)]) as provider:
        config_for(provider, tmp_path, store=SQLITE, config="server: {drain_s: 0.2}\n")
        seen: list[dict[str, Any]] = []
        async with served(tmp_path) as process:
            run = await process.start()
            async with process.client.get(f"{process.url}/runs/{run}/stream") as response:
                stream = sse(response)
                while not seen or seen[-1]["type"] != "message_chunk":
                    seen.append(await anext(stream))
                process.child.send_signal(signal.SIGTERM)
                rest = [event async for event in stream]
            await process.ended()
        assert rest[-1]["error"]["kind"] == "server_stopping"
        seen += rest[:-1]
        async with served(tmp_path) as process:
            cursor = {"Last-Event-ID": str(seen[-1]["seq"])}
            async with process.client.get(f"{process.url}/runs/{run}/stream", headers=cursor) as response:
                seen += [event async for event in sse(response)]
            await process.stop()
    assert [event["seq"] for event in seen] == list(range(1, len(seen) + 1))
    assert "".join(event["text"] for event in seen if event["type"] == "message_chunk") == TEXT
    assert seen[-1]["status"] == "completed"


async def test_during_the_drain_a_new_connection_gets_503_and_when_to_retry(tmp_path: Path) -> None:
    async with FaultyProvider(script=["silence"]) as provider:
        config_for(provider, tmp_path, config="server: {drain_s: 600}\n")
        async with served(tmp_path) as process:
            await process.start()
            await provider.request()
            process.child.send_signal(signal.SIGTERM)
            assert process.child.stderr is not None
            async for line in process.child.stderr:
                if b"stopping" in line:
                    break
            async with aiohttp.ClientSession() as fresh:
                async with fresh.post(process.url + "/runs", json={"input": "late"}) as response:
                    assert response.status == 503
                    assert response.headers["Retry-After"] == "5"
                    assert (await response.json())["error"]["kind"] == "server_stopping"
                async with fresh.get(process.url + "/healthz") as response:
                    assert response.status == 200


@pytest.mark.parametrize("port", ["99999", "65536", "-1", "80x", "٨"])
async def test_a_port_that_is_none_is_a_mistake_in_one_line(tmp_path: Path, port: str) -> None:
    async with command(tmp_path, f"--port={port}") as child:
        out, err = await child.communicate()
    assert (child.returncode, out) == (2, b"")
    assert f"argument --port: expected a whole number from 0 to 65535; found {port!r}" in err.decode()
    assert b"Traceback" not in err


async def test_the_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    async with FaultyProvider(script=["silence"]) as provider:
        config_for(provider, tmp_path, config="server: {drain_s: 600}\n")
        async with served(tmp_path) as process:
            await process.start()
            await provider.request()
            process.child.send_signal(signal.SIGINT)
            assert process.child.stderr is not None
            async for line in process.child.stderr:
                if b"stopping" in line:
                    break
            process.child.send_signal(signal.SIGINT)
            async with asyncio.timeout(20):
                assert await process.child.wait() == 130


@pytest.mark.parametrize(("host", "code"), [("0.0.0.0", 1), ("::", 1)])
async def test_J117_it_refuses_a_public_address_without_a_key(tmp_path: Path, host: str, code: int) -> None:
    async with FaultyProvider() as provider:
        config_for(provider, tmp_path)
        async with command(tmp_path, "--host", host) as child:
            out, err = await child.communicate()
    assert child.returncode == code
    assert out == b""
    assert err.decode().startswith("error: server.host: ")
    assert "TAILRACE_API_KEY" in err.decode()


async def test_J114_with_a_key_nothing_that_it_writes_has_it(tmp_path: Path) -> None:
    key = "sk-the-servers-own-key"
    async with FaultyProvider(script=["status-500", "status-500", "status-500"]) as provider:
        config_for(provider, tmp_path)
        async with served(tmp_path, "--log", "json", TAILRACE_API_KEY=key) as process:
            headers = {"Authorization": f"Bearer {key}"}
            for path in ("/runs", f"/runs/{key}", f"/{key}"):
                async with process.client.get(process.url + path, headers=headers) as response:
                    assert key not in await response.text()
            _, err = await process.stop()
    assert '"route":"/runs"' in err
    assert key not in err


WAITING = """
{"name": "waiting", "blocks": [{"type": "step", "id": "w", "handler": "wait_signal", "params": {"signal": "go"}}]}
"""


async def test_L145_an_instance_whose_command_was_killed_goes_on_beside_a_server(tmp_path: Path) -> None:
    async with FaultyProvider() as provider:
        config_for(provider, tmp_path, store="sqlite:///runs.db', lease_s: 2, durability: 'committed")
        (tmp_path / "waiting.json").write_text(WAITING, encoding="utf-8")
        async with asyncio.timeout(90), served(tmp_path) as process:
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tailrace", "flow", "run", "waiting.json"),
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, "TAILRACE_HOME": str(tmp_path)},
                cwd=tmp_path,
            )
            assert child.stderr is not None
            while b"waiting" not in (line := await child.stderr.readline()):
                assert line, "it ended"
            child.kill()
            await child.wait()
            async with process.client.get(process.url + "/instances") as response:
                [found] = (await response.json())["data"]
            path = f"{process.url}/instances/{found['id']}"
            async with process.client.post(f"{path}/signals", json={"signal": "go"}) as response:
                assert response.status == 200, await response.text()
            async with process.client.get(f"{path}/stream") as response:
                last = [event async for event in sse(response)][-1]
    assert (last["type"], last["state"]) == ("done", "completed")


async def test_the_embedded_model_is_not_fetched_before_it_is_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_app(load({}, tmp_path)) as app:
        await serve._warm_up(app)
        assert app.models.local.pid is None
    assert "models" not in os.listdir(tmp_path)  # noqa: PTH208 - pathlib's may not be called here
    assert "is not ready" not in caplog.text
