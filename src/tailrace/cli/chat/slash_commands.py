"""What a person can type after a slash. The same on every surface of the terminal.

Each command acts on the conversation and says what it did; how that is shown is the surface's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec

from tailrace.cli.chat.conversation import Conversation, new_session, now
from tailrace.errors import TailraceError
from tailrace.ports import Run

PAST_TURNS: Final = 5  # how many of a resumed session are shown again
LISTED_SESSIONS: Final = 15
LISTED_CHANGES: Final = 30


class Surface(Protocol):
    """Where the conversation takes place."""

    def say(self, text: str) -> None:
        """Words of the program itself."""

    def replay(self, run: Run) -> Awaitable[None]:
        """Shows a run of before, as it was."""

    def watch(self, run: Run) -> Awaitable[None]:
        """Shows a run that has not ended from its beginning, and goes on with it."""

    def interrupt(self) -> Awaitable[bool]:
        """Stops the turn under way; False where there is none."""

    def leave(self) -> None:
        """Ends the conversation."""

    def aside(self) -> AbstractAsyncContextManager[None]:
        """While the block runs, others may write to the terminal."""


class Typed(NamedTuple):
    """A command as it was typed: what it acts on, where it speaks, and the rest of the line."""

    conversation: Conversation
    surface: Surface
    argument: str


Perform = Callable[[Typed], Awaitable[None]]


class Command(msgspec.Struct, frozen=True):
    help: str
    perform: Perform
    argument: str = ""


async def perform(line: str, conversation: Conversation, surface: Surface) -> None:
    """Does what the line says. Never raises `TailraceError`: what went wrong is said."""
    word, _, argument = line.strip().partition(" ")
    command = COMMANDS.get(word)
    if command is None:
        surface.say(f"no command {word}; /help lists them")
        return
    try:
        await command.perform(Typed(conversation, surface, argument.strip()))
    except TailraceError as exc:
        surface.say(f"error: {exc}")


async def _help(typed: Typed) -> None:
    width = max(len(f"{name} {command.argument}") for name, command in COMMANDS.items())
    lines = [
        f"  {f'{name} {command.argument}'.ljust(width)}  {command.help}" for name, command in sorted(COMMANDS.items())
    ]
    keys = "Enter sends, Alt-Enter or Ctrl-J begins a new line, Ctrl-C interrupts (twice leaves), Ctrl-D leaves."
    typed.surface.say("\n".join([*lines, "", keys]))


async def _model(typed: Typed) -> None:
    if typed.argument:
        async with typed.surface.aside():  # the embedded model shows how far its download has come
            await typed.conversation.use_model(typed.argument)
    choice = typed.conversation.choice
    stand_ins = "".join(f", then {ref.provider}/{ref.name}" for ref in choice.fallbacks)
    typed.surface.say(f"model: {choice.provider}/{choice.name}{stand_ins}")


async def _new(typed: Typed) -> None:
    await typed.surface.interrupt()
    typed.conversation.switch(session=new_session())
    typed.surface.say(f"new session {typed.conversation.session}")


async def _sessions(typed: Typed) -> None:
    sessions = (await typed.conversation.sessions())[:LISTED_SESSIONS]
    if not sessions:
        typed.surface.say("no sessions yet")
        return
    here, at = typed.conversation.session, now()
    lines = [
        f"{'*' if session.id == here else ' '}{number:>2}  {session.describe(at)}"
        for number, session in enumerate(sessions, 1)
    ]
    typed.surface.say("\n".join([*lines, "", "/resume N goes on with one"]))


async def _resume(typed: Typed) -> None:
    session = await typed.conversation.find(typed.argument)
    await typed.surface.interrupt()
    unfinished = await typed.conversation.resume(session)
    earlier = session.turns - (unfinished is not None) - PAST_TURNS
    typed.surface.say(f"session {session.id}" + (f" · {earlier} earlier turns not shown" if earlier > 0 else ""))
    for run in await typed.conversation.turns(PAST_TURNS):
        await typed.surface.replay(run)
    if unfinished is not None:
        await typed.surface.watch(unfinished)


async def _stop(typed: Typed) -> None:
    if not await typed.surface.interrupt():
        typed.surface.say("nothing is running")


async def _yolo(typed: Typed) -> None:
    typed.conversation.switch(yolo=not typed.conversation.options.yolo)
    said = "on: nothing is asked, the hard list stays blocked" if typed.conversation.options.yolo else "off"
    typed.surface.say(f"yolo {said}")


async def _verbose(typed: Typed) -> None:
    typed.conversation.verbose = not typed.conversation.verbose
    typed.surface.say(f"verbose {'on: what tools print is shown' if typed.conversation.verbose else 'off'}")


async def _reasoning(typed: Typed) -> None:
    typed.conversation.switch(reasoning=not typed.conversation.options.reasoning)
    typed.surface.say(f"reasoning {'shown' if typed.conversation.options.reasoning else 'hidden'}")


async def _rollback(typed: Typed) -> None:
    """In two steps: what it would do is shown before it is done."""
    from tailrace.tools.checkpoint.checkpoint import Checkpoints

    word, _, agreed = typed.argument.partition(" ")
    number = int(word) if word.isdecimal() else 1
    await typed.surface.interrupt()
    checkpoints = Checkpoints(typed.conversation.app.config.home / "checkpoints", Path())
    plan = await asyncio.to_thread(checkpoints.plan, number)
    if not plan.changes:
        typed.surface.say("nothing to undo: the directory is as it was then")
    elif agreed.strip() == "yes":
        await asyncio.to_thread(checkpoints.restore, plan)
        typed.surface.say("done; /rollback undoes this too")
    else:
        signs = {"change": "~", "create": "+", "delete": "-"}
        lines = [f"{signs[change.kind]} {change.path}" for change in plan.changes[:LISTED_CHANGES]]
        more = len(plan.changes) - LISTED_CHANGES
        lines += [f"… and {more} more"] if more > 0 else []
        typed.surface.say("\n".join([*lines, "", f"/rollback {number} yes puts these back"]))


async def _quit(typed: Typed) -> None:
    typed.surface.leave()


COMMANDS: Final[dict[str, Command]] = {
    "/help": Command("this list", _help),
    "/model": Command("show or change the model", _model, "[provider/model]"),
    "/new": Command("begin a new session", _new),
    "/sessions": Command("list the sessions of before", _sessions),
    "/resume": Command("go on with one of them, and join what still runs", _resume, "[N or id]"),
    "/stop": Command("interrupt the answer", _stop),
    "/yolo": Command("approve without asking, or ask again", _yolo),
    "/verbose": Command("show what tools print, or not", _verbose),
    "/reasoning": Command("show what the model thinks, or not", _reasoning),
    "/rollback": Command("undo the changes of a turn, by its checkpoint", _rollback, "[N] [yes]"),
    "/quit": Command("leave", _quit),
}
