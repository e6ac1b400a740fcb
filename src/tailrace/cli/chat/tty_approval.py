"""Approvals on the controlling terminal, for a command whose stdin and stdout may be anything.

Owns `/dev/tty` while it asks. It shows the whole command, because the approval is bound to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Final, Self

from tailrace.cli.screen.sanitize import sanitized, sanitized_line
from tailrace.events import ApprovalAsked, Decision

# The whole word or its first letter: text that was typed before the question appeared must not approve anything.
_DECISIONS: Final[tuple[Decision, ...]] = ("once", "session", "always", "deny")
ANSWERS: Final = {word: each for each in _DECISIONS for word in (each, each[0])}
ANSWERS.update(y="once", yes="once", n="deny", no="deny")
MEANINGS: Final = (
    "  once      this time only\n"
    "  session   exactly this, here, until this session ends\n"
    "  always    exactly this, here, in every session from now on\n"
    "  deny      not now; deny and a few words: the model is told why\n"
)


def answer_of(line: str) -> tuple[Decision, str] | None:
    """The decision, and for a denial what was said about it. Only a denial may have more than its word."""
    word, _, rest = line.strip().partition(" ")
    decision = ANSWERS.get(word.lower().rstrip(",:"))
    return None if decision is None or (rest and decision != "deny") else (decision, rest.strip())


class TerminalAsker:
    """Asks on one terminal. `open` returns None where there is none (J108)."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def open(cls, path: str = "/dev/tty") -> Self | None:
        """None without a controlling terminal, and for a background job."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            return None
        with contextlib.suppress(OSError):
            if os.tcgetpgrp(descriptor) == os.getpgrp():
                return cls(descriptor)
        os.close(descriptor)
        return None

    def close(self) -> None:
        os.close(self._descriptor)

    async def ask(self, question: ApprovalAsked, *, timeout_s: float) -> tuple[Decision, str] | None:
        """The decision, and the reason of a denial. None after the timeout, and when the terminal is closed."""
        self._write(f"\n{sanitized_line(question.tool_name, 60)} wants to run ({sanitized_line(question.reason)}):\n\n")
        self._write("".join(f"  {line}\n" for line in sanitized(question.command).split("\n")))
        self._write(f"\n{sanitized(question.scope)}\n\n{MEANINGS}")
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    left_s = max(0.0, ends_at - loop.time())
                    self._write(f"\nonce, session, always or deny? ({left_s:.0f} s) ")
                    line = await read_line(self._descriptor)
                    if line is None:
                        return None
                    if answer := answer_of(line):
                        return answer
        except TimeoutError:
            self._write(f"\nno answer in {timeout_s:.0f} s: denied\n")
            return None

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._descriptor, text.encode(errors="replace"))


async def read_line(descriptor: int) -> str | None:
    """One line from a terminal; None at the end of input."""
    loop = asyncio.get_running_loop()
    typed = b""
    while not typed.endswith(b"\n"):
        readable = asyncio.Event()
        loop.add_reader(descriptor, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(descriptor)
        try:
            piece = os.read(descriptor, 4096)
        except OSError:  # the terminal was hung up
            return None
        if not piece:
            return None
        typed += piece
    return typed.decode(errors="replace")
