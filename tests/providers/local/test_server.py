"""The embedded model's server: a real child process, and every way in which it or its parent can end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from tailrace.errors import ConfigError, Unavailable
from tailrace.providers.local.child import Report, Settings
from tailrace.providers.local.server import Address, LocalServer
from tailrace.providers.local.weights import SMOLLM2
from tailrace.system.extras import install_command

CHILD = [sys.executable, "-P", "-m", "tailrace.providers.local.child"]
needs_pidfd = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waiting for a grandchild needs a pidfd")


@pytest.fixture
async def server(real_models: Path) -> AsyncIterator[LocalServer]:
    server = LocalServer(real_models)
    yield server
    await server.aclose()


def http(address: Address, key: str | None = None) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.UnixConnector(str(address.uds), force_close=True),
        headers={"Authorization": f"Bearer {address.key if key is None else key}"},
    )


async def ask(address: Address, **fields: Any) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": "Say hi."}], "max_tokens": 3, **fields}
    async with http(address) as client, client.post(f"{address.base_url}/chat/completions", json=body) as response:
        assert response.status == 200
        answer: dict[str, Any] = await response.json()
        return answer


def peer_pid(address: Address) -> int:
    """Who listens there, by the kernel's word."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(address.uds))
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return int.from_bytes(credentials[:4], sys.byteorder)


def await_end(pid: int, timeout_s: float = 10.0) -> None:
    """Returns when a process that is not our child has ended."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            assert select.select([descriptor], [], [], timeout_s)[0], f"process {pid} still runs"
        finally:
            os.close(descriptor)


async def test_it_answers_on_a_private_socket_to_whoever_has_the_key(server: LocalServer) -> None:
    first, second = await asyncio.gather(server.start(), server.start())
    assert first == second  # one server for all callers
    assert stat.S_IMODE(first.uds.parent.stat().st_mode) == 0o700
    assert (await ask(first))["usage"]["completion_tokens"] == 3
    async with http(first, key="wrong") as client, client.get(f"{first.base_url}/models") as refused:
        assert refused.status == 401
    assert first.key not in repr(first)

    await server.aclose()
    assert not first.uds.parent.exists()
    await server.aclose()  # twice is once


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
async def test_J114_the_key_is_in_no_argument_list_and_no_environment(server: LocalServer) -> None:
    address = await server.start()
    process = Path(f"/proc/{peer_pid(address)}")
    for name in ("cmdline", "environ"):
        assert address.key.encode() not in (process / name).read_bytes()
    assert b"providers.local.child" in (process / "cmdline").read_bytes()


async def test_a_crash_is_a_typed_error_and_the_next_start_a_new_server(server: LocalServer) -> None:
    address = await server.start()
    body = {"messages": [{"role": "user", "content": "Count to a thousand."}], "max_tokens": 1000, "stream": True}
    async with http(address) as client, client.post(f"{address.base_url}/chat/completions", json=body) as response:
        await response.content.readline()
        os.kill(peer_pid(address), signal.SIGSEGV)
        with pytest.raises(aiohttp.ClientError):
            await response.content.read()
    died = await server.died(within_s=10)
    assert isinstance(died, Unavailable)
    assert "the embedded model's server died (SIGSEGV)" in str(died)
    assert not address.uds.parent.exists()

    again = await server.start()
    assert again.uds != address.uds
    assert again.key != address.key
    assert await server.died(within_s=0) is None
    assert (await ask(again))["usage"]["completion_tokens"] == 3


async def test_a_running_server_has_not_died(server: LocalServer) -> None:
    assert await server.died(within_s=0) is None  # nor one that was never started
    await server.start()
    assert await server.died(within_s=0) is None


async def test_not_ready_in_time_is_unavailable_and_leaves_no_process(real_models: Path) -> None:
    server = LocalServer(real_models, start_timeout_s=0.001)
    with pytest.raises(Unavailable, match=r"not ready after 0\.001 s"):
        await server.start()
    assert await server.died(within_s=0) is None  # it never counted as started


async def test_a_cancelled_start_leaves_the_next_one_free_to_go(server: LocalServer) -> None:
    first, second = asyncio.ensure_future(server.start()), asyncio.ensure_future(server.start())
    await asyncio.sleep(0)  # both under way: one starts the server, the other waits for it
    first.cancel()
    address = await second
    assert first.cancelled()
    assert (await ask(address))["usage"]["completion_tokens"] == 3


async def test_closing_while_it_starts_leaves_no_process(server: LocalServer) -> None:
    starting = asyncio.ensure_future(server.start())
    await asyncio.sleep(0)
    await server.aclose()
    assert not (await starting).uds.parent.exists()
    assert server.pid is None


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"<!DOCTYPE html>", "is not a GGUF file"),
        (b"GGUF" + b"\xff" * 1000, "cannot be loaded: "),
    ],
)
async def test_a_model_path_that_holds_no_model_is_one_line(
    tmp_path: Path, content: bytes | None, complaint: str
) -> None:
    pytest.importorskip("xllamacpp", reason="the extra `local` is not installed")
    path = tmp_path / "own.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        await LocalServer(tmp_path, model_path=path).start()
    assert str(caught.value).startswith(f"providers.local.model_path: {path} {complaint}")
    assert "\n" not in str(caught.value)
    if content is not None and content.startswith(b"GGUF"):
        assert "failed to load model" in "".join(caught.value.__notes__)  # llama.cpp's own log


async def test_a_missing_engine_is_said_with_the_way_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)  # how the import system itself marks what is not there
    with pytest.raises(ConfigError, match=re.escape(install_command("local"))):
        await LocalServer(tmp_path).start()


BROKEN_IMPORT = "raise ImportError('libgomp.so.1: cannot open shared object file')"
CRASH_ON_LOAD = """
import os, sys
from types import SimpleNamespace

def CommonParams():
    return SimpleNamespace(model=SimpleNamespace(), cpuparams=SimpleNamespace(), cpuparams_batch=SimpleNamespace())

def Server(params):
    sys.stdout.write("noise on stdout\\n" * 100_000 + "0.00.1 E ggml_abort: GGML_ASSERT(n > 0) failed\\n")
    sys.stdout.flush()
    os.abort()
"""


@pytest.fixture
def engine(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another engine, which children load in place of the real one."""
    directory = tmp_path / "engine"
    directory.mkdir()
    (directory / "xllamacpp.py").write_text(request.param)
    monkeypatch.setenv("PYTHONPATH", str(directory))
    monkeypatch.syspath_prepend(directory)


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    path = tmp_path / "any.gguf"
    path.write_bytes(b"GGUF")
    return path


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("engine", [BROKEN_IMPORT], indirect=True)
async def test_an_engine_that_can_not_be_imported_is_one_line(gguf: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        await LocalServer(gguf.parent, model_path=gguf).start()
    assert str(caught.value) == (
        "the embedded model's engine cannot be imported (libgomp.so.1: cannot open shared object file): "
        f"{install_command('local')}"
    )


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("engine", [CRASH_ON_LOAD], indirect=True)
async def test_a_crash_while_loading_shows_the_end_of_the_log(gguf: Path) -> None:
    """Whatever the engine prints is log: it neither fills a pipe nor passes for a report, and its tail is bounded."""
    server = LocalServer(gguf.parent, model_path=gguf)
    with pytest.raises(Unavailable) as caught:
        await server.start()
    assert str(caught.value) == ("the embedded model's server died (SIGABRT): ggml_abort: GGML_ASSERT(n > 0) failed")
    [log] = caught.value.__notes__
    assert log.startswith("n")
    assert 7000 < len(log) <= 8192
    assert log.endswith("GGML_ASSERT(n > 0) failed")


def test_the_child_ends_with_its_stdin_and_takes_its_directory_along(real_models: Path, tmp_path: Path) -> None:
    """The portable half of dying with the parent; a killed process closes its pipes on every platform."""
    directory = tmp_path / "s"
    directory.mkdir()
    socket_path = os.path.relpath(directory / "llama.sock")  # pytest's own directories may be too long for a socket
    settings = Settings(
        str(real_models / SMOLLM2.file_name), "own-name", socket_path, "key", os.getpid(), 1, 512, 1, -1
    )
    with subprocess.Popen(CHILD, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(msgspec.json.encode(settings) + b"\n")
        child.stdin.flush()
        assert msgspec.json.decode(child.stdout.readline(), type=Report) == Report("ready")
        assert (directory / "llama.sock").is_socket()
        child.stdin.close()
        assert child.wait(timeout=10) == 0
    assert not directory.exists()


PARENT = """
import asyncio, sys
from pathlib import Path
from tailrace.providers.local.server import LocalServer

async def main():
    address = await LocalServer(Path(sys.argv[1])).start()
    print(address.uds, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@needs_pidfd
def test_killing_the_parent_ends_the_child(real_models: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(real_models)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        uds = Path(parent.stdout.readline().strip())
        pid = peer_pid(Address("", "", uds))
        parent.kill()
        await_end(pid)
    assert not uds.parent.exists()


ENDLESS_LOAD = """
import ctypes, sys
from types import SimpleNamespace

def CommonParams():
    return SimpleNamespace(model=SimpleNamespace(), cpuparams=SimpleNamespace(), cpuparams_batch=SimpleNamespace())

def Server(params):
    sys.stderr.write("loading\\n")
    ctypes.PyDLL(None).pause()  # as the real one: the interpreter's lock is held while it loads
"""

PARENT_OF_A_LOADING_CHILD = """
import asyncio, os, sys
from tailrace.providers.local.child import Settings
from tailrace.providers.local.server import _Child

async def main():
    child = await _Child.spawn()
    print(child.pid, flush=True)
    child.pipe_data_received = lambda fd, data: print(data.decode(), end="", flush=True)
    await child.introduce(Settings("", "", str(child.address.uds), "", os.getpid(), 1, 512, 1, -1))

asyncio.run(main())
"""


@needs_pidfd
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's own signal at the parent's death")
def test_killing_the_parent_ends_a_child_that_still_loads(tmp_path: Path) -> None:
    """While the engine loads nobody in the child can read a pipe. The engine here is one that never gets ready."""
    (tmp_path / "xllamacpp.py").write_text(ENDLESS_LOAD)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", PARENT_OF_A_LOADING_CHILD]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert parent.stdout.readline() == "loading\n"
        parent.kill()
        await_end(pid)


def test_a_child_whose_parent_died_before_it_looked_does_not_serve(real_models: Path, tmp_path: Path) -> None:
    settings = Settings(
        str(real_models / SMOLLM2.file_name),
        "own-name",
        str(tmp_path / "s" / "llama.sock"),
        "key",
        os.getppid(),
        1,
        512,
        1,
        -1,
    )
    done = subprocess.run(
        CHILD, input=msgspec.json.encode(settings) + b"\n", capture_output=True, timeout=60, check=True
    )
    assert done.stdout == b""
