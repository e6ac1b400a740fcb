"""A command that the user runs in the conversation with "!": at once, without an approval, since the user typed it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tailrace.cli.chat.question import CommandOutput
from tailrace.tools.process import run_process
from tailrace.tools.terminal import SHELL, Output

LONGEST_S: Final = 24 * 3600.0  # Ctrl-C ends it earlier


async def run_own_command(
    command: str, directory: Path, environment: Mapping[str, str], progress: Callable[[str], None]
) -> CommandOutput:
    """Its output and exit code. `progress` gets its last line as it comes. Cancelled, the command and everything it
    started have ended when this raises."""
    output = Output()

    def take(data: bytes) -> None:
        if line := output.add(data):
            progress(line)

    plain = {**environment, "PAGER": "cat", "GIT_PAGER": "cat", "TERM": "dumb"}
    try:
        code = await run_process(
            (SHELL, "-c", "--", command), take, directory=directory, environment=plain, timeout_s=LONGEST_S
        )
    except (OSError, ValueError) as exc:  # the line is too long, or holds a NUL
        return CommandOutput(command, f"the shell cannot be started: {exc}", 127)
    return CommandOutput(command, output.text(), code)
