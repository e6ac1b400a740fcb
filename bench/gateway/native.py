"""The provider and the load generator, which are C: compiled when a benchmark starts, pinned to the load's core.

The program that is measured has its own core; both of these share another one, and cost little enough there that the
program is what ends the figure.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

HERE = Path(__file__).parent
PATH_OF = {"chat": "/v1/chat/completions", "responses": "/v1/responses"}


class NoCompiler(Exception):
    """Nothing here compiles C."""


class Spread(msgspec.Struct):
    """Milliseconds."""

    p50: float
    p99: float
    max: float


class Seen(msgspec.Struct):
    """What the readers saw, as the load generator prints it."""

    streams: int
    whole: int
    failed: int
    tokens: int
    repeated: int
    seconds: float
    first_ms: Spread
    token_ms: Spread
    pause_ms: float
    stepped_s: float  # of slices, where the load went in step: `token_ms` and `pause_ms` are in the program's own time
    program_cpu_s: float
    load_cpu_s: float
    failure: str


class Cores(msgspec.Struct, frozen=True):
    """Who runs where: the program on its cores, provider and load generator together on another."""

    program: tuple[int, ...]
    load: int

    def spread_out(self) -> bool:
        return self.load not in self.program


def cores_for(workers: int) -> Cores:
    """The last core is the load's; a program of several workers has as many others as there are."""
    there = sorted(os.sched_getaffinity(0))
    return Cores(tuple(there[: max(1, min(workers, len(there) - 1))]), there[-1])


@contextmanager
def on_cores(*cores: int) -> Iterator[None]:
    """What is started in the block runs on these cores, and so do its children."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def compiled(name: str) -> Path:
    """The program of `name`.c, kept under the hash of its source."""
    compiler = next((found for tried in ("cc", "gcc", "clang") if (found := shutil.which(tried))), None)
    source = b"".join((HERE / part).read_bytes() for part in ("common.h", "answers.h", "lockstep.h", f"{name}.c"))
    kept = Path(tempfile.gettempdir()) / f"tailrace-bench-{os.getuid()}"
    program = kept / f"{name}-{hashlib.sha256(source).hexdigest()[:16]}"
    if program.exists():
        return program
    if compiler is None:
        raise NoCompiler("no C compiler on the PATH (cc, gcc, clang): the load generator of this benchmark is C")
    kept.mkdir(mode=0o700, exist_ok=True)
    fresh = program.with_suffix(f".{os.getpid()}")
    subprocess.run([compiler, "-O2", "-o", str(fresh), str(HERE / f"{name}.c")], check=True)
    fresh.rename(program)
    return program


class Provider(msgspec.Struct, frozen=True):
    port: int
    pid: int


@contextmanager
def provider(core: int) -> Iterator[Provider]:
    """It serves for as long as the block lasts."""
    with on_cores(core):
        running = subprocess.Popen([compiled("provider")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert running.stdin is not None
    assert running.stdout is not None
    try:
        yield Provider(int(running.stdout.readline()), running.pid)
    finally:
        running.stdin.close()
        running.wait(10)
        running.stdout.close()


class Slices(msgspec.Struct, frozen=True):
    """How a paced load is cut: a stream has a token every `every_ms`, and what is due within `us` is sent at once."""

    every_ms: int
    us: int


class Load:
    """Readers of one gateway: where it listens, what they ask, on which core."""

    def __init__(self, port: int, path: str, body: dict[str, Any] | None, core: int) -> None:
        self._where = [str(port), path]
        self._body = msgspec.json.encode(body).decode() if body is not None else ""
        self._core = core

    def _command(self, answer: str, *arguments: object) -> list[str]:
        return [str(compiled("load")), *self._where, self._body.replace("MODE", answer), *map(str, arguments)]

    def _run(self, answer: str, *arguments: object) -> Seen:
        with on_cores(self._core):
            done = subprocess.run(self._command(answer, *arguments), capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the load generator ended with {done.returncode}: {done.stderr.strip()}")
        return msgspec.json.decode(done.stdout, type=Seen)

    def requests(self, at_once: int, seconds: float) -> Seen:
        """One token each, as fast as they are answered, on connections that stay."""
        return self._run("one", "requests", at_once, 1, seconds)

    def flat_out(self, at_once: int, tokens: int, seconds: float) -> Seen:
        return self._run(f"flat-{tokens}", "requests", at_once, tokens, seconds)

    def one_answer(self, tokens: int, limit_s: float) -> Seen:
        return self._run(f"flat-{tokens}", "streams", 1, tokens, limit_s, 0)

    def paced(self, streams: int, tokens: int, every_ms: int, arrival_s: float) -> Seen:
        limit_s = arrival_s + tokens * every_ms / 1000 + 10
        return self._run(f"paced-{tokens}-{every_ms}", "streams", streams, tokens, limit_s, arrival_s)

    def in_step(self, streams: int, tokens: int, slices: Slices, pids: Sequence[int], provider: Provider) -> Seen:
        """Slice after slice, each when every reader has the one before; see lockstep.h."""
        groups = slices.every_ms * 1000 // slices.us
        limit_s = 120 + streams * tokens * 0.002
        told = [slices.us, ",".join(map(str, pids)), provider.port]
        return self._run(f"step-{tokens}-{groups}", "steps", streams, tokens, limit_s, *told)

    def watch(self, viewers: int, tokens: int, arrival_s: float, limit_s: float) -> Seen:
        """Viewers of one stream, which begins without them: the path names it."""
        return self._run("", "streams", viewers, tokens, limit_s, arrival_s)

    @contextmanager
    def idle(self, streams: int, limit_s: float = 60.0) -> Iterator[Seen]:
        """Streams that have said one token each, and hold for as long as the block lasts."""
        command = self._command("idle", "idle", streams, 1, limit_s)
        with on_cores(self._core):
            running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert running.stdin is not None
        assert running.stdout is not None
        try:
            yield msgspec.json.decode(running.stdout.readline(), type=Seen)
        finally:
            running.stdin.close()
            running.wait(10)
            running.stdout.close()


def question(model: str, dialect: str = "chat", **more: Any) -> dict[str, Any]:
    """A streamed request whose text tells the provider how to answer; `Load` fills in what MODE stands for."""
    said = "bench:MODE"
    asked = {"messages": [{"role": "user", "content": said}]} if dialect == "chat" else {"input": said}
    return {"model": model, "stream": True, **asked, **more}
