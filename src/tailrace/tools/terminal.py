"""Runs a shell command and shows the model its exit code and what it printed."""

from __future__ import annotations

import asyncio
import codecs
import os
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from tailrace.messages import JsonObject
from tailrace.ports import Effect, ToolContext, ToolOutcome
from tailrace.tools.paths import PathRefused, placed
from tailrace.tools.process import run_process
from tailrace.tools.typed import Arguments, TypedTool, failed, preview_line

# bash where there is one: commands are judged by its grammar, and other shells read some lines otherwise.
SHELL = next((shell for shell in ("/bin/bash", "/usr/bin/bash") if os.access(shell, os.X_OK)), "/bin/sh")
DEFAULT_TIMEOUT_S = 120
MAX_TIMEOUT_S = 1800
HEAD_CHARS = 20_000
TAIL_CHARS = 10_000
_MAX_PROGRESS_CHARS = 200


class TerminalArgs(Arguments):
    command: Annotated[str, Meta(min_length=1, description="A shell command line.")]
    directory: Annotated[str, Meta(description="Where to run it, relative to the working directory.")] = "."
    timeout_s: Annotated[int, Meta(ge=1, le=MAX_TIMEOUT_S, description="Seconds before it is ended.")] = (
        DEFAULT_TIMEOUT_S
    )


class Terminal(TypedTool[TerminalArgs]):
    name = "terminal"
    description = (
        "Run a shell command and return its exit code and output (standard output and error together). There is no "
        "terminal: programs that ask questions get no answer. A process left in the background (&) goes on; send its "
        "output to a file, since it is not read here."
    )
    Args = TerminalArgs

    def __init__(self, environment: Mapping[str, str]) -> None:
        """`environment` is what commands get to see: the user's, without the keys that we hold."""
        super().__init__()
        self._environment = {**environment, "PAGER": "cat", "GIT_PAGER": "cat", "TERM": "dumb"}

    def preview(self, args: JsonObject) -> str:
        return preview_line(str(args.get("command", "")))

    def effect(self, args: JsonObject) -> Effect:
        shell = SHELL.rpartition("/")[2]
        return Effect("command", str(args.get("command", "")), str(args.get("directory", ".")), shell)

    async def execute(self, args: TerminalArgs, context: ToolContext) -> ToolOutcome:
        if "\0" in args.command:
            return failed("a command cannot hold a NUL character")
        directory = await asyncio.to_thread(working_directory, args.directory, context)
        output = Output()

        def take(data: bytes) -> None:
            if line := output.add(data):
                context.progress(line)

        try:
            code = await run_process(
                (SHELL, "-c", "--", args.command),
                take,
                directory=directory,
                environment=self._environment,
                timeout_s=args.timeout_s,
            )
        except OSError as exc:  # the command line is too long, no more processes
            return failed(f"the shell cannot be started: {exc.strerror}")
        if code is None:
            return failed(_with(output, f"[ended after {args.timeout_s} s: it had not finished]"))
        return ToolOutcome(
            _with(output, f"[exit code {code}]" if code >= 0 else f"[ended by signal {-code}]"), code == 0
        )


def working_directory(path: str, context: ToolContext) -> Path:
    """Where a command runs. Raises `PathRefused`."""
    directory = placed(path, context).path
    if not directory.is_dir():
        raise PathRefused(f"{path} is not a directory")
    return directory


def _with(output: Output, note: str) -> str:
    return f"{output.text()}\n{note}".lstrip("\n")


class Output:
    """Head and tail of what a command printed; the middle is counted and dropped as it comes."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._head: list[str] = []
        self._head_chars = 0
        self._tail: deque[str] = deque()
        self._tail_chars = 0
        self._dropped = 0

    def add(self, data: bytes) -> str:
        """Keeps the output, and returns its last line for the viewers."""
        text = self._decode(data)
        self._keep(text)
        return text.rstrip().rpartition("\n")[2].rpartition("\r")[2][-_MAX_PROGRESS_CHARS:]

    def text(self) -> str:
        self._keep(self._decode(b"", final=True))
        tail = "".join(self._tail)
        dropped = self._dropped + max(0, len(tail) - TAIL_CHARS)
        gap = f"\n… {dropped} characters left out …\n" if dropped else ""
        return ("".join(self._head) + gap + tail[-TAIL_CHARS:]).rstrip("\n")

    def _keep(self, text: str) -> None:
        room = HEAD_CHARS - self._head_chars
        if head := text[:room]:
            self._head.append(head)
            self._head_chars += len(head)
        if rest := text[room:]:
            self._tail.append(rest)
            self._tail_chars += len(rest)
            while self._tail_chars - len(self._tail[0]) >= TAIL_CHARS:
                first = self._tail.popleft()
                self._tail_chars -= len(first)
                self._dropped += len(first)
