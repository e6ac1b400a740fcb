"""Runs a shell command in a process group of its own, and ends the whole tree when it must."""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
from collections import deque
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from tailrace.messages import JsonObject
from tailrace.ports import Effect, ToolContext, ToolOutcome
from tailrace.tools.paths import PathRefused, resolved
from tailrace.tools.typed import TypedTool, failed, one_line

DEFAULT_TIMEOUT_S = 120
MAX_TIMEOUT_S = 1800
HEAD_CHARS = 20_000
TAIL_CHARS = 10_000
_READ_BYTES = 65_536
_KILL_AFTER_S = 2.0  # between asking the tree to end and ending it


class TerminalArgs(msgspec.Struct):
    command: Annotated[str, Meta(min_length=1, description="A shell command line.")]
    directory: Annotated[str, Meta(description="Where to run it, relative to the working directory.")] = "."
    timeout_s: Annotated[int, Meta(ge=1, le=MAX_TIMEOUT_S, description="Seconds before it is ended.")] = (
        DEFAULT_TIMEOUT_S
    )


class Terminal(TypedTool[TerminalArgs]):
    name = "terminal"
    description = (
        "Run a shell command and return its exit code and output (standard output and error together). There is no "
        "terminal: programs that ask questions get no answer."
    )
    Args = TerminalArgs

    def __init__(self, environment: Mapping[str, str]) -> None:
        """`environment` is what commands get to see: the user's, without the keys that we hold."""
        super().__init__()
        self._environment = {**environment, "PAGER": "cat", "GIT_PAGER": "cat", "TERM": "dumb"}

    def preview(self, args: JsonObject) -> str:
        return one_line(str(args.get("command", "")))

    def effect(self, args: JsonObject) -> Effect:
        return Effect("command", str(args.get("command", "")))

    async def do(self, args: TerminalArgs, context: ToolContext) -> ToolOutcome:
        try:
            directory = resolved(args.directory, context)
        except PathRefused as exc:
            return failed(str(exc))
        if not directory.is_dir():
            return failed(f"{args.directory} is not a directory")
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            args.command,
            cwd=directory,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        output = _Output()
        try:
            async with asyncio.timeout(args.timeout_s):
                await _collect(process, output, context)
                code = await process.wait()
        except TimeoutError:
            await _end_tree(process)
            return failed(f"{output.text()}\n[ended after {args.timeout_s} s: it had not finished]".lstrip())
        except asyncio.CancelledError:
            await asyncio.shield(_end_tree(process))
            raise
        finally:
            _close_pipe(process)
        return ToolOutcome(f"{output.text()}\n[exit code {code}]".lstrip(), ok=code == 0)


async def _collect(process: asyncio.subprocess.Process, output: _Output, context: ToolContext) -> None:
    """Reads until the shell has ended and its pipe is empty; a child left in the background does not hold it open."""
    assert process.stdout is not None  # noqa: S101 - asked for above
    ended = asyncio.ensure_future(process.wait())
    try:
        while True:
            reading = asyncio.ensure_future(process.stdout.read(_READ_BYTES))
            await asyncio.wait({reading, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                await asyncio.wait({reading}, timeout=0.1)  # what the shell wrote last may still be in the pipe
            if not reading.done():
                reading.cancel()
                return
            data = reading.result()
            if not data:
                return
            if line := output.add(data):
                context.progress(line)
    finally:
        ended.cancel()


class _Output:
    """Head and tail of what a command printed; the middle is counted and dropped as it comes."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._head: list[str] = []
        self._head_chars = 0
        self._tail: deque[str] = deque()
        self._tail_chars = 0
        self._dropped = 0

    def add(self, data: bytes) -> str:
        """Keeps it, and returns its last line for whoever watches."""
        text = self._decode(data)
        room = HEAD_CHARS - self._head_chars
        self._head.append(text[:room])
        self._head_chars += len(text[:room])
        if rest := text[room:]:
            self._tail.append(rest)
            self._tail_chars += len(rest)
            while self._tail_chars - len(self._tail[0]) > TAIL_CHARS:
                first = self._tail.popleft()
                self._tail_chars -= len(first)
                self._dropped += len(first)
        lines = text.rstrip().rsplit("\n", 1)
        return lines[-1][-200:]

    def text(self) -> str:
        tail = "".join(self._tail)
        dropped = self._dropped + max(0, len(tail) - TAIL_CHARS)
        gap = f"\n… {dropped} characters left out …\n" if dropped else ""
        return ("".join(self._head) + gap + tail[-TAIL_CHARS:]).rstrip("\n")


async def _end_tree(process: asyncio.subprocess.Process) -> None:
    """Asks the whole process group to end, and ends it. The group outlives its leader, so it is always asked."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            break
        if sign is signal.SIGTERM:
            try:
                async with asyncio.timeout(_KILL_AFTER_S):
                    await process.wait()
            except TimeoutError:
                continue
    await process.wait()


def _close_pipe(process: asyncio.subprocess.Process) -> None:
    """Lets go of the output pipe, which a child left in the background may hold open."""
    transport = getattr(process, "_transport", None)  # asyncio offers no public way
    if transport is not None:
        transport.close()
