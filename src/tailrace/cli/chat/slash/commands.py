"""The slash commands of the terminal: a handler each, which acts on the conversation and notifies the surface.

`app.slash_commands` has the table of all commands.
"""

from __future__ import annotations

import asyncio
from difflib import get_close_matches
from typing import Final

from tailrace.agent.session import new_session
from tailrace.app.slash_commands import CommandCall, commands_of
from tailrace.cli.chat.conversation import Conversation, now
from tailrace.cli.chat.options import ToolDisplay
from tailrace.cli.chat.slash import approval_commands, session_commands
from tailrace.cli.chat.slash.call import ChatSurface, SlashCall, SlashHandler
from tailrace.cli.screen.sanitize import sanitized_line
from tailrace.errors import TailraceError

TERMINAL_COMMANDS: Final = commands_of("terminal")
PAST_TURNS: Final = 5  # of a resumed session, shown again
LISTED_SESSIONS: Final = 15
LISTED_CHANGES: Final = 30
# As it is called in chats, and in other programs.
ELSEWHERE: Final = {"/back": "/resume goes back to a session"} | dict.fromkeys(("/exit", "/q", "/bye"), "/quit leaves")


_TOOL_DISPLAYS: Final[dict[ToolDisplay, str]] = {
    "lines": "verbose off: a line for each call of a tool",
    "new": "verbose new: a line when the tool is another than before, or failed",
    "verbose": "verbose on: arguments, progress and output of tools are shown",
}

_KEYS: Final = (
    "  @file       takes a file along; Tab completes its name",
    "  !command    runs it here at once; its output goes with your next message",
    "  Enter       sends; Alt-Enter or Ctrl-J begins a new line",
    "  Ctrl-O      shows the last tool in full; again: the one before it",
    "  Ctrl-C      interrupts; twice leaves, as does Ctrl-D",
)


def is_slash_command(line: str) -> bool:
    """Whether the line is a command, and no message that begins with a path: `/etc/hosts is what?`. The prompt of an
    MCP server, behind its colon, may be named as it likes."""
    return line.startswith("/") and "/" not in line.split(maxsplit=1)[0][1:].partition(":")[0]


async def run_slash_command(line: str, conversation: Conversation, surface: ChatSurface) -> None:
    """Runs the line's command. Shows a `TailraceError` instead of raising it."""
    word, _, argument = line.strip().partition(" ")
    call = SlashCall(conversation, surface, argument.strip())
    name = word.removeprefix("/")
    command = TERMINAL_COMMANDS.get(name)
    try:
        if (handler := HANDLERS.get(name)) is not None:
            await handler(call)
        elif command is not None and command.answer is not None:
            surface.notify(await command.answer(CommandCall(conversation.app, conversation.session, call.argument)))
        elif ":" in word and conversation.app.mcp is not None:
            await _ask_prompt(call, name)
        else:
            harmless = [f"/{name}" for name in TERMINAL_COMMANDS if name != "yolo"]  # never suggested
            close = get_close_matches(word, harmless, n=1, cutoff=0.7)
            hint = ELSEWHERE.get(word) or (f"did you mean {close[0]}?" if close else "/help lists them")
            surface.notify(f"no command {word}; {hint}")
    except TailraceError as exc:
        surface.notify(f"error: {exc}")


async def _ask_prompt(call: SlashCall, name: str) -> None:
    """Sends a prompt of an MCP server, `server:prompt`, as the user's question."""
    mcp = call.conversation.app.mcp
    if mcp is None:
        return
    question = await mcp.prompt(name, call.argument)
    await call.surface.interrupt()
    await call.surface.submit(await call.conversation.prepared(call.conversation.turn(question)))


async def _help(call: SlashCall) -> None:
    usages = {f"/{name} {command.usage}": command.help for name, command in sorted(TERMINAL_COMMANDS.items())}
    if (mcp := call.conversation.app.mcp) is not None:
        prompts = sorted((await mcp.prompt_usages()).items())
        usages |= {sanitized_line(f"/{usage}", 60): sanitized_line(about, 80) for usage, about in prompts}
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
    before = call.conversation.session
    call.conversation.switch(session=new_session())
    await call.conversation.count_spending()
    call.surface.notify(f"new session {call.conversation.session}; /resume {before} goes back to the one before")


async def _sessions(call: SlashCall) -> None:
    sessions = (await call.conversation.sessions())[:LISTED_SESSIONS]
    if not sessions:
        call.surface.notify("no sessions yet")
        return
    here, at = call.conversation.session, now()
    width = max(len(session.id) for session in sessions)
    lines = [
        f"{'*' if session.id == here else ' '}{number:>2}  {session.describe(at, min(width, 26))}"
        for number, session in enumerate(sessions, 1)
    ]
    call.surface.notify("\n".join([*lines, "", "/resume N goes on with one"]))


async def _resume(call: SlashCall) -> None:
    session = await call.conversation.find(call.argument)
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


async def _stop(call: SlashCall) -> None:
    if not await call.surface.interrupt():
        call.surface.notify("nothing is running")


async def _yolo(call: SlashCall) -> None:
    now = call.conversation.options.yolo
    wanted = {"": not now, "on": True, "off": False}.get(call.argument.lower())
    if wanted is None:
        call.surface.notify("/yolo turns it on or off; /yolo on or off")
        return
    call.conversation.switch(yolo=wanted)
    said = "on: nothing is asked, the hard list stays blocked" if call.conversation.options.yolo else "off"
    call.surface.notify(f"yolo {said}")


async def _verbose(call: SlashCall) -> None:
    conversation = call.conversation
    match call.argument.lower():
        case "" if conversation.tools == "verbose":
            conversation.tools = "lines"
        case "" | "on":
            conversation.tools = "verbose"
        case "off":
            conversation.tools = "lines"
        case "new":
            conversation.tools = "new"
        case _:
            call.surface.notify("/verbose turns it on or off; /verbose on, off or new")
            return
    call.surface.notify(_TOOL_DISPLAYS[conversation.tools])


async def _reasoning(call: SlashCall) -> None:
    call.conversation.switch(reasoning=not call.conversation.options.reasoning)
    call.surface.notify(f"reasoning {'shown' if call.conversation.options.reasoning else 'hidden'}")


async def _rollback(call: SlashCall) -> None:
    """In two steps: shows the changes first, applies them with `yes`."""
    from tailrace.tools.checkpoint.checkpoint import Checkpoints

    words = call.argument.split()
    agreed = words[-1:] == ["yes"]
    number = words[:-1] if agreed else words
    if len(number) > 1 or not all(word.isdecimal() for word in number):
        raise TailraceError("/rollback [N] shows what it would change, /rollback [N] yes does it")
    await call.surface.interrupt()
    checkpoints = Checkpoints(call.conversation.app.config.home / "checkpoints", call.conversation.app.directory)
    plan = await asyncio.to_thread(checkpoints.plan, int(number[0]) if number else 1)
    if not plan.changes:
        call.surface.notify("nothing to undo: the directory is as it was then")
    elif agreed:
        await asyncio.to_thread(checkpoints.restore, plan)
        call.surface.notify("done; /rollback undoes this too")
    else:
        signs = {"change": "~", "create": "+", "delete": "-"}
        lines = [f"{signs[change.kind]} {change.path}" for change in plan.changes[:LISTED_CHANGES]]
        more = len(plan.changes) - LISTED_CHANGES
        lines += [f"… and {more} more"] if more > 0 else []
        call.surface.notify("\n".join([*lines, "", f"/rollback {number[0] if number else 1} yes puts these back"]))


async def _quit(call: SlashCall) -> None:
    call.surface.leave()


HANDLERS: Final[dict[str, SlashHandler]] = {
    "help": _help,
    "model": _model,
    "new": _new,
    "sessions": _sessions,
    "resume": _resume,
    "retry": session_commands.retry,
    "compact": session_commands.compact,
    "clear": session_commands.clear,
    "cost": session_commands.cost,
    "copy": session_commands.copy,
    "save": session_commands.save,
    "show": session_commands.show,
    "stop": _stop,
    "approvals": approval_commands.approvals,
    "yolo": _yolo,
    "verbose": _verbose,
    "reasoning": _reasoning,
    "rollback": _rollback,
    "quit": _quit,
}
