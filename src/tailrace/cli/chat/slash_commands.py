"""The slash commands of the terminal: a handler each, which acts on the conversation and notifies the surface.

`app.slash_commands` has the table of all commands.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from difflib import get_close_matches
from itertools import takewhile
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from tailrace.agent.session import TURN_KIND, new_session
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app.approvals import AlwaysApprovals, find_approval
from tailrace.app.slash_commands import SLASH_ANSWERS, commands_of, switched
from tailrace.cli.chat.conversation import Conversation, SessionSummary, now
from tailrace.cli.screen.input.choice_list import Choice
from tailrace.cli.screen.tool_details import clipped
from tailrace.errors import TailraceError
from tailrace.ports import Run

if TYPE_CHECKING:
    from tailrace.tools.checkpoint.checkpoint import Checkpoints, RollbackPlan

TERMINAL_COMMANDS: Final = commands_of("terminal")
PAST_TURNS: Final = 5  # of a resumed session, shown again
MAX_CHOICES: Final = 50  # sessions to pick from
LISTED_CHANGES: Final = 30
_UNDONE: Final = {"change": "restored", "create": "restored", "delete": "deleted "}
MAX_DIFF_LINES: Final = 400
MAX_COPIED_BYTES: Final = 74_994  # of base64: more is dropped by several terminals
# As it is called in chats, and in other programs.
ELSEWHERE: Final = {
    **dict.fromkeys(("/back", "/sessions"), "/resume goes back to a session"),
    **dict.fromkeys(("/q", "/bye"), "/quit leaves"),
    "/rollback": "/undo takes the last changes back",
}
_KEYS: Final = (
    "  @file       takes a file along; Tab completes its name",
    "  !command    runs it here at once; its output goes with your next message",
    "  Enter       sends; Alt-Enter or Ctrl-J begins a new line",
    "  Ctrl-O      shows the last tool in full; again: the one before it",
    "  Esc         takes the message that waits back; again: interrupts",
    "  Ctrl-C      interrupts; twice leaves, as does Ctrl-D",
)


class ChatSurface(Protocol):
    """Where the conversation is shown."""

    def notify(self, text: str) -> None:
        """Shows a message of the program itself."""

    def replay(self, run: Run) -> Awaitable[None]:
        """Shows an ended run."""

    def watch(self, run: Run) -> Awaitable[None]:
        """Shows a run that has not ended, from its beginning, and follows it."""

    def submit(self, spec: TurnSpec, *, with_question: bool = True) -> Awaitable[None]:
        """Starts this turn in the session and shows it."""

    def interrupt(self) -> Awaitable[bool]:
        """Stops the running turn; False where there is none."""

    def leave(self) -> None:
        """Ends the conversation."""

    def clear(self) -> None:
        """Empties the window, where there is one."""

    def listing(self, text: str, language: str) -> None:
        """Shows text as code of this language."""

    def copy(self, text: str) -> bool:
        """Puts the text on the user's clipboard; False where there is none."""

    def expand(self, number: int | None) -> bool:
        """Shows one tool in full, the last one without a number; False where there is none."""

    def choose(self, choices: Sequence[Choice]) -> Awaitable[str | None]:
        """The value that the user picks; None for none of them, and where there is no list to pick from."""

    def aside(self) -> AbstractAsyncContextManager[None]:
        """Within the block, other code may write to the terminal."""


class SlashCall(NamedTuple):
    """One call of a command: its conversation, its surface, the rest of the line."""

    conversation: Conversation
    surface: ChatSurface
    argument: str


SlashHandler = Callable[[SlashCall], Awaitable[None]]


async def clear(call: SlashCall) -> None:
    await call.surface.interrupt()
    call.surface.clear()
    await _new(call)


async def retry(call: SlashCall) -> None:
    await call.surface.interrupt()
    await call.surface.submit(await call.conversation.retried())


async def compact(call: SlashCall) -> None:
    await call.surface.interrupt()
    spec = await call.conversation.compacting()
    call.surface.notify("summarising; from your next message on, this and the newest exchange stand for the rest")
    await call.surface.submit(spec, with_question=False)


async def copy(call: SlashCall) -> None:
    answer = await call.conversation.last_answer()
    if not answer:
        raise TailraceError("there is no answer to copy")
    if len(answer.encode()) * 4 // 3 > MAX_COPIED_BYTES:
        raise TailraceError("the answer is too long for a terminal's clipboard: tailrace show last --full prints it")
    if not call.surface.copy(answer):
        raise TailraceError("this terminal has no clipboard to copy to")
    call.surface.notify(f"copied the answer, {len(answer):,} characters (where the terminal allows OSC 52)")


async def show(call: SlashCall) -> None:
    number = call.argument.removeprefix("#")
    if number and not number.isdecimal():
        raise TailraceError("/show N: the number is at the end of the tool's line")
    if not call.surface.expand(int(number) if number else None):
        raise TailraceError(f"there is no tool #{number} to show" if number else "no tool has run yet")


async def approvals(call: SlashCall) -> None:
    from tailrace.cli.screen.approvals_table import approval_line, approvals_table
    from tailrace.cli.screen.painter import notice_room

    always = AlwaysApprovals(call.conversation.app.journal)
    listed = await always.listed()
    match call.argument.split():
        case [] if not listed:
            call.surface.notify('nothing was approved with "always"')
        case []:
            lines = approvals_table(listed, width=notice_room(shutil.get_terminal_size().columns))
            call.surface.notify("\n".join([*lines, "", "/approvals forget ID asks about one again"]))
        case ["forget", word]:
            found = find_approval(listed, word)
            await always.forget(found)
            call.surface.notify(f"asked about again: {approval_line(found)}")
        case _:
            raise TailraceError("/approvals lists them, /approvals forget ID asks about one again")


def is_slash_command(line: str) -> bool:
    """Whether the line is a command, and no message that begins with a path: `/etc/hosts is what?`. The prompt of an
    MCP server, behind its colon, may be named as it likes."""
    return line.startswith("/") and "/" not in line.split(maxsplit=1)[0][1:].partition(":")[0]


async def run_slash_command(line: str, conversation: Conversation, surface: ChatSurface) -> None:
    """Runs the line's command. Shows a `TailraceError` instead of raising it."""
    word, _, argument = line.strip().partition(" ")
    call = SlashCall(conversation, surface, argument.strip())
    name = {"/exit": "quit"}.get(word, word.removeprefix("/"))
    try:
        if (handler := HANDLERS.get(name)) is not None:
            await handler(call)
        elif (answer := SLASH_ANSWERS.get(name)) is not None:
            surface.notify(await answer(conversation.app, conversation.session, call.argument))
        else:
            harmless = [f"/{name}" for name in TERMINAL_COMMANDS if name != "yolo"]  # never suggested
            close = get_close_matches(word, harmless, n=1, cutoff=0.7)
            hint = ELSEWHERE.get(word) or (f"did you mean {close[0]}?" if close else "/help lists them")
            surface.notify(f"no command {word}; {hint}")
    except TailraceError as exc:
        surface.notify(f"error: {exc}")


async def _help(call: SlashCall) -> None:
    usages = {f"/{name} {command.usage}": command.help for name, command in sorted(TERMINAL_COMMANDS.items())}
    width = max(map(len, usages))
    lines = [f"  {usage.ljust(width)}  {about}".rstrip() for usage, about in usages.items()]
    call.surface.notify("\n".join([*lines, "", *_KEYS]))


async def _model(call: SlashCall) -> None:
    if call.argument:
        await _use_model(call)
    choice = call.conversation.choice
    stand_ins = "".join(f", then {ref.provider}/{ref.name}" for ref in choice.fallbacks)
    call.surface.notify(f"model: {choice.provider}/{choice.name}{stand_ins}")


async def _use_model(call: SlashCall) -> None:
    """The embedded model takes its time. Its download shows its progress on the terminal; loading it shows nothing."""
    conversation = call.conversation
    if not conversation.is_to_load(call.argument):
        await conversation.use_model(call.argument)
    elif await asyncio.to_thread(conversation.app.models.local.downloads_first):
        async with call.surface.aside():
            await conversation.use_model(call.argument)
    else:
        call.surface.notify("loading the embedded model; what you enter meanwhile is done afterwards")
        await conversation.use_model(call.argument)


async def _new(call: SlashCall) -> None:
    await call.surface.interrupt()
    call.conversation.switch(session=new_session())
    await call.conversation.count_spending()
    call.surface.notify("new conversation; /resume goes back to an earlier one")


async def _resume(call: SlashCall) -> None:
    if (session := await _picked_session(call)) is None:
        return
    await call.surface.interrupt()
    unfinished = await call.conversation.resume(session)
    await call.conversation.count_spending()
    earlier = session.turns - (unfinished is not None) - PAST_TURNS
    call.surface.notify(f"session {session.id}" + (f" · {earlier} earlier turns not shown" if earlier > 0 else ""))
    for run in await call.conversation.turns(PAST_TURNS):
        if unfinished is None or run.id != unfinished.id:  # it may have ended meanwhile, and is shown below
            await call.surface.replay(run)
    if unfinished is not None:
        await call.surface.watch(unfinished)


async def _picked_session(call: SlashCall) -> SessionSummary | None:
    """The one that is named; without a name this one, where its answer is not finished, else the one that is picked."""
    if call.argument:
        return await call.conversation.find(call.argument)
    sessions = await call.conversation.sessions()
    here = next((each for each in sessions if each.id == call.conversation.session), None)
    if here is not None and here.unfinished is not None:
        return here
    others = sorted([each for each in sessions if each is not here], key=lambda each: not each.is_own)[:MAX_CHOICES]
    if not others:
        raise TailraceError("there is no other conversation to resume")
    picked = await call.surface.choose([each.as_choice(now()) for each in others])
    return next((each for each in others if each.id == picked), None)


async def _stop(call: SlashCall) -> None:
    if not await call.surface.interrupt():
        call.surface.notify("nothing is running")


def _switched(call: SlashCall, now: bool, name: str) -> bool:
    """The new value of a switch. Raises `TailraceError`."""
    if (wanted := switched(call.argument, now=now)) is None:
        raise TailraceError(f"/{name} turns it on or off; /{name} on or off")
    return wanted


async def _yolo(call: SlashCall) -> None:
    """Only a word switches it: without one it says how it is."""
    on = call.conversation.options.yolo
    if call.argument:
        on = _switched(call, on, "yolo")
        await call.conversation.approve_all(on=on)
    said = "on: nothing is asked, the hard list stays blocked; /yolo off asks again"
    if not on:
        said = "off: tools ask, from the next one on; /yolo on approves everything in this conversation"
    call.surface.notify(f"yolo {said}")


async def _verbose(call: SlashCall) -> None:
    on = call.conversation.verbose = _switched(call, call.conversation.verbose, "verbose")
    shown = "on: arguments, progress and output of tools are shown" if on else "off: a line for each call of a tool"
    call.surface.notify(f"verbose {shown}")


async def _reasoning(call: SlashCall) -> None:
    call.conversation.switch(reasoning=not call.conversation.options.reasoning)
    call.surface.notify(f"reasoning {'shown' if call.conversation.options.reasoning else 'hidden'}")


class _LastChange(NamedTuple):
    """The way back to the newest checkpoint of a conversation from which the files differ."""

    checkpoints: Checkpoints
    plan: RollbackPlan
    is_undo: bool  # the last change was one; the way back is to do it again
    by_hand: list[str]  # changed after that undo or the end of the turn, or perhaps: the turn has no end


async def _undo(call: SlashCall) -> None:
    """Back to before the last change of a file; once more brings that back. Stops an answer only where there is one."""
    if call.argument not in ("", "all"):
        raise TailraceError("/undo undoes the last changes of files, /undo all also what you changed since")
    change = await _last_change(call.conversation)
    if change is not None and await call.surface.interrupt():
        change = await _last_change(call.conversation)
    if change is None:
        call.surface.notify("nothing to undo: no file has changed since the last checkpoint")
        return
    if change.by_hand and call.argument != "all":
        names = ", ".join(change.by_hand[:LISTED_CHANGES])
        raise TailraceError(f"you may have changed {names}; /undo all undoes that, too")
    await asyncio.to_thread(change.checkpoints.restore, change.plan)
    done, again = ("brought back", "takes it back") if change.is_undo else ("taken back", "brings it back")
    paths = "\n".join(f"{_UNDONE[each.kind]} {each.path}" for each in change.plan.changes)
    call.surface.notify("\n".join([f"{done}; /undo again {again}", *clipped(paths, LISTED_CHANGES)]))


async def _diff(call: SlashCall) -> None:
    change = await _last_change(call.conversation)
    if change is None:
        call.surface.notify("no file has changed since the last checkpoint")
    else:
        diff = await asyncio.to_thread(change.checkpoints.diff, change.plan, back=False)
        call.surface.listing("\n".join(clipped(diff, MAX_DIFF_LINES)), "diff")


async def _last_change(conversation: Conversation) -> _LastChange | None:
    app = conversation.app
    runs = await app.journal.runs(session=conversation.session, kind=TURN_KIND)
    return await asyncio.to_thread(_change_of, runs, app.config.home / "checkpoints", app.directory)


def _change_of(runs: Sequence[Run], root: Path, directory: Path) -> _LastChange | None:
    """An undo has no turn: it is one of this conversation where it follows a turn of it."""
    from tailrace.tools.checkpoint.checkpoint import Checkpoints

    checkpoints = Checkpoints(root, directory)
    own = {"", *(run.id for run in runs)}
    ends = {run.id: run.finished.at for run in runs if run.finished}
    kept = list(takewhile(lambda each: each.turn in own, checkpoints.all()))
    for each in kept if any(each.turn for each in kept) else ():
        if (plan := checkpoints.plan(each.number)).changes:
            if each.turn:
                ended_at = ends.get(each.turn, -inf)
                by_hand = [change.path for change in plan.changes if _changed_at(directory / change.path) > ended_at]
            else:
                by_hand = checkpoints.edited(plan, each.restored)
            return _LastChange(checkpoints, plan, not each.turn, by_hand)
    return None


def _changed_at(path: Path) -> float:
    """0 where nothing is. A file that was moved or copied here may bring an old time of its content along."""
    with suppress(OSError):
        return max((status := path.lstat()).st_mtime, status.st_ctime)
    return 0.0


async def _plan(call: SlashCall) -> None:
    """The mode in which nothing is changed; `go` is the user's agreement. Any other text is what to plan."""
    word = call.argument.lower()
    if word != "go":
        question = "" if word in ("on", "off") else call.argument
        on = bool(question) or _switched(call, call.conversation.options.plan, "plan")
        if on:
            await call.surface.interrupt()  # the turn under way may change files, and would take the next message
        call.conversation.switch(plan=on)
        said = "on: it reads and proposes, nothing is changed; /plan go carries the plan out" if on else "off"
        call.surface.notify(f"plan mode {said}")
        if question:
            await call.surface.submit(call.conversation.turn(question))
        return
    if not call.conversation.options.plan:
        raise TailraceError("/plan begins with the plan; /plan go carries it out")
    await call.surface.interrupt()
    call.conversation.switch(plan=False)
    await call.surface.submit(call.conversation.turn("I agree: carry out the plan."))


async def _quit(call: SlashCall) -> None:
    call.surface.leave()


HANDLERS: Final[dict[str, SlashHandler]] = {
    "help": _help,
    "model": _model,
    "new": _new,
    "resume": _resume,
    "retry": retry,
    "compact": compact,
    "clear": clear,
    "copy": copy,
    "show": show,
    "stop": _stop,
    "approvals": approvals,
    "yolo": _yolo,
    "verbose": _verbose,
    "reasoning": _reasoning,
    "undo": _undo,
    "diff": _diff,
    "plan": _plan,
    "quit": _quit,
}
