"""The gateways that are measured: how each is started, what it is asked, what it has used.

A program runs as its users run it, in processes of its own on its own core. What it has used is read from /proc, over
its whole tree of processes.
"""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from bench.gateway.native import PATH_OF, Load, cores_for, on_cores, question

ROOT = Path(__file__).parents[2]
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
START_S = 90.0  # LiteLLM takes most of it on a slow machine
Command = Callable[[int, int, Path], list[str]]  # from the provider's port, its own, and a directory for its files


class Program(msgspec.Struct, frozen=True):
    """`missing` says why it cannot be started here; empty when it can. `slice_us`: what is due within it, a paced load
    sends at once; a program that commits has the few milliseconds in which it gathers what it commits."""

    name: str
    label: str
    command: Command
    body: dict[str, Any]
    dialect: str = "chat"
    workers: int = 1
    slice_us: int = 1000
    missing: str = ""
    version: Callable[[], str] = lambda: f"Tailrace {version('tailrace')}"


class NotServing(Exception):
    """The program did not answer a first request in time."""


class Running:
    """A program that serves: its load, and what its processes have used so far."""

    def __init__(self, program: Program, process: subprocess.Popen[bytes], port: int) -> None:
        self.program = program
        self.port = port
        self.cores = cores_for(program.workers)
        self.load = Load(port, PATH_OF[program.dialect], program.body, self.cores.load)
        self._process = process

    def processes(self) -> list[int]:
        found, new = [], [self._process.pid]
        while new:
            pid = new.pop()
            found.append(pid)
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                new += map(int, children.read_text(encoding="ascii").split())
        return found

    def cpu_s(self) -> float:
        """Of every process of it."""
        return sum(map(cpu_s_of, self.processes()))

    def memory_kb(self) -> float:
        """Resident memory; what processes share is counted once."""
        total = 0
        for pid in self.processes():
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
            total += next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
        return total * 1.024


def cpu_s_of(pid: int) -> float:
    """User and system time with all threads, to a hundredth of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


@contextmanager
def started(program: Program, provider_port: int) -> Iterator[Running]:
    """The program from its first answer until the block ends. Raises `NotServing`."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as home:
        command = program.command(provider_port, port, Path(home))
        environment = {**os.environ, "TAILRACE_HOME": home, "HOME": home, "NO_COLOR": "1"}
        with (Path(home) / "log").open("wb") as log, on_cores(*cores_for(program.workers).program):
            process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=ROOT, env=environment, process_group=0
            )
        try:
            running = Running(program, process, port)
            _wait_for_answer(running, port, Path(home) / "log")
            yield running
        finally:
            _end(process)


def _wait_for_answer(running: Running, port: int, log: Path) -> None:
    program = running.program
    body = msgspec.json.encode(program.body).replace(b"MODE", b"one")
    deadline, last = time.monotonic() + START_S, "no answer"
    while time.monotonic() < deadline and running._process.poll() is None:
        asking = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        try:
            asking.request("POST", PATH_OF[program.dialect], body, {"Content-Type": "application/json"})
            answer = asking.getresponse()
            text = answer.read()
            if answer.status == 200 and b"~0000" in text:
                return
            last = f"status {answer.status}: {text[:300].decode(errors='replace')}"
        except (OSError, http.client.HTTPException) as error:
            last = str(error)
        finally:
            asking.close()
        time.sleep(0.1)
    tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:])
    raise NotServing(f"{program.name} does not serve: {last}\n{tail}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Its whole group: it was started as the leader of one."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            continue
        break


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def python(*arguments: object) -> list[str]:
    return [sys.executable, *map(str, arguments)]


def prototype(kind: str) -> Command:
    return lambda provider, port, _home: python("-m", "bench.gateway.prototypes", kind, provider, port)


# Whether the extension is installed here or not: a row says whether it is used.
WITHOUT_RELAY = "import sys; sys.modules['tailrace_relay'] = None; from tailrace.cli.main import main; sys.exit(main())"
COMPILE_RELAY = "import sys, pathlib, build_relay; build_relay.compile_module(pathlib.Path(sys.argv[1]))"


def tailrace(workers: int = 1, **server: object) -> Command:
    """`tailrace serve` with one provider and, but for these settings of the server, nothing else in its config."""

    def command(provider: int, port: int, home: Path) -> list[str]:
        config = {
            "model": {"provider": "up", "name": "bench"},
            "providers": {"up": {"dialect": "chat", "base_url": f"http://127.0.0.1:{provider}/v1"}},
            "server": {"drain_s": 0.1, **server},
        }
        (home / "config.yaml").write_bytes(msgspec.json.encode(config))
        return python("-c", WITHOUT_RELAY, "serve", "--port", port, "--workers", workers)

    return command


def with_relay(without: Command) -> Command:
    """The same with tailrace-relay, which is compiled now."""

    def command(provider: int, port: int, home: Path) -> list[str]:
        subprocess.run(python("-c", COMPILE_RELAY, home), cwd=ROOT / "relay", check=True)
        return ["env", f"PYTHONPATH={home}", *python("-m", "tailrace", *without(provider, port, home)[3:])]

    return command


def of_prototype() -> str:
    return f"aiohttp {version('aiohttp')}, uvloop {version('uvloop')}"


OWN = [
    Program(
        "aiohttp", "prototype: aiohttp on both sides", prototype("aiohttp"), question("up/bench"), version=of_prototype
    ),
    Program(
        "own",
        "prototype: aiohttp server, own client",
        prototype("own"),
        question("up/bench"),
        missing="" if find_spec("httptools") else "httptools is not installed",
        version=of_prototype,
    ),
    Program("raw", "Tailrace, raw chat → chat", tailrace(), question("up/bench")),
    Program(
        "relay",
        "Tailrace, raw, with tailrace-relay",
        with_relay(tailrace()),
        question("up/bench"),
        missing="" if shutil.which("cc") else "no C compiler: cc is not on the PATH",
    ),
    Program(
        "stored",
        "Tailrace, /v1/responses stored (committed)",
        tailrace(),
        question("up/bench", "responses", store=True),
        dialect="responses",
        slice_us=5000,
    ),
    Program("agent", "Tailrace, agent turn (committed)", tailrace(), question("tailrace"), slice_us=5000),
    Program("raw-2", "Tailrace, raw, 2 workers", tailrace(2), question("up/bench"), workers=2),
]
