"""The slash commands of every surface, in one table: what each is called, what it does, where it works.

Help texts, the menus that chat clients show and what a typed text means derive from `SLASH_COMMANDS`. A surface that
does something of its own for a command has a handler for it; for all others the row's `answer` is the handler. Knows no
platform.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from tailrace.messages import Value

if TYPE_CHECKING:
    from tailrace.app.app import App

Surface = Literal["terminal", "chat"]
_NEAR_COMMAND = 0.66  # difflib's ratio: "nwe" is near "new", and no directory at the root of a disk is near anything
_NEAR_COMMAND_UNMARKED = 0.7  # of a word without the mark: "hello" is no "help"
_COMMAND = re.compile(r"/([A-Za-z][A-Za-z0-9_]*)(?:@\S+)?(?:\s+(.*))?\s*", re.DOTALL)


class CommandCall(NamedTuple):
    """What an `answer` is given."""

    app: App
    session: str
    argument: str


Answer = Callable[[CommandCall], Awaitable[str]]


class CommandArgument(NamedTuple):
    """What may follow a command in a chat: `name` and `about` label its field in a client's menu.

    `values`: the only ones there are. `unmarked`: the pattern of those that a text without the slash may have, as
    "stop" is a command where the slash is left out and "stop words?" is a question."""

    name: str
    about: str
    values: tuple[str, ...] = ()
    unmarked: str = ""


class SlashCommand(NamedTuple):
    name: str
    help: str  # one line, for lists and menus
    surfaces: tuple[Surface, ...] = ("terminal", "chat")
    usage: str = ""  # the argument, as the terminal's list shows it
    argument: CommandArgument | None = None  # in a chat
    detail: str = ""  # what else the list of a chat says
    answer: Answer | None = None  # for the surfaces that have no handler of their own
    is_listed: bool = True
    works_late: bool = False  # in a chat: also where it was typed while no process ran. It allows and answers nothing
    follows_paste: bool = False  # in a chat: what its sender wrote before it is taken first, though more may follow

    def takes_unmarked(self, argument: str) -> bool:
        if not argument:
            return True
        if self.argument is None:
            return False
        allowed = self.argument.values
        return argument.lower() in allowed or re.fullmatch(self.argument.unmarked, argument, re.DOTALL) is not None


async def _chat_help(_call: CommandCall) -> str:
    return CHAT_HELP


_SWITCH: Final = CommandArgument("switch", "Without it, it is switched over", ("on", "off"))
_TERMINAL: Final[tuple[Surface, ...]] = ("terminal",)
_CHAT: Final[tuple[Surface, ...]] = ("chat",)
SLASH_COMMANDS: Final = (
    SlashCommand(
        "new",
        "begin a new conversation",
        argument=CommandArgument("question", "What to begin with; everybody here sees it"),
        detail="/new <question> begins it with this question",
        works_late=True,
        follows_paste=True,
    ),
    SlashCommand("stop", "stop the answer under way", works_late=True, follows_paste=True),
    SlashCommand(
        "steer",
        "say something to the answer under way",
        _CHAT,
        argument=CommandArgument("message", "What it has to know; it goes on with that"),
        follows_paste=True,
    ),
    SlashCommand(
        "queue",
        "ask something after the answer under way",
        _CHAT,
        argument=CommandArgument("message", "What to answer next"),
        follows_paste=True,
    ),
    SlashCommand(
        "model",
        "show or change the model",
        usage="[provider/model]",
        argument=CommandArgument("model", "<provider>/<model>; without it, the model is shown", unmarked=r"\S+"),
        detail="/model <provider>/<model> changes it, /model default goes back",
    ),
    SlashCommand("verbose", "show more, or less, of what tools do", _TERMINAL, "[on or off]"),
    SlashCommand("yolo", "approve everything without asking, or ask again", usage="[on or off]", argument=_SWITCH),
    SlashCommand(
        "approve",
        "approve what a tool asks for",
        _CHAT,
        argument=CommandArgument("scope", "Without it, this once", ("once", "session", "always")),
        detail="/approve session and /approve always ask no more about it",
    ),
    SlashCommand(
        "deny",
        "deny what a tool asks for",
        _CHAT,
        argument=CommandArgument("reason", "Why not; the model reads it", unmarked=".*"),
        detail="/deny <why> tells the model why",
    ),
    SlashCommand("status", "say what is going on", _CHAT, works_late=True),
    SlashCommand("help", "show this list", answer=_chat_help, works_late=True),
    SlashCommand("start", "show this list", _CHAT, answer=_chat_help, is_listed=False, works_late=True),
    SlashCommand("resume", "continue an earlier session, and join its run", _TERMINAL, "[id]"),
    SlashCommand("retry", "ask the last question again", _TERMINAL),
    SlashCommand("compact", "summarise the conversation, to make room", _TERMINAL),
    SlashCommand("clear", "empty the window and begin a new conversation", _TERMINAL),
    SlashCommand("cost", "tokens and dollars of this session, by model", _TERMINAL),
    SlashCommand("copy", "copy the last answer", _TERMINAL),
    SlashCommand("show", "show one tool in full; the number ends its line", _TERMINAL, "[N]"),
    SlashCommand("approvals", 'what was approved with "always", and taking it back', _TERMINAL, "[forget ID]"),
    SlashCommand("reasoning", "show what the model thinks, or not", _TERMINAL),
    SlashCommand("plan", "read and propose, change nothing until you agree", _TERMINAL, "[question, off or go]"),
    SlashCommand("undo", "undo the last changes of files, or bring them back", _TERMINAL),
    SlashCommand("diff", "show the last changes of files", _TERMINAL),
    SlashCommand("quit", "leave", _TERMINAL),
)


def commands_of(surface: Surface) -> dict[str, SlashCommand]:
    """By name, in the order of the table."""
    return {command.name: command for command in SLASH_COMMANDS if surface in command.surfaces}


CHAT_COMMANDS: Final = commands_of("chat")
CHAT_MENU: Final = tuple(command for command in CHAT_COMMANDS.values() if command.is_listed)
CHAT_HELP: Final = "\n".join(
    f"/{command.name}: {command.help}" + (f"; {command.detail}" if command.detail else "") for command in CHAT_MENU
)
_IN_TEXT = re.compile(rf"(?<!\S)/(?=(?:{'|'.join(CHAT_COMMANDS)})\b)")


class ChatCommand(Value):
    """`/name argument`, as it was typed in a chat."""

    name: str
    argument: str = ""

    @property
    def row(self) -> SlashCommand:
        return CHAT_COMMANDS[self.name]


def command_in(text: str) -> ChatCommand | None:
    """The chat command in the text; None for a text that the agent answers. `/help@our_bot` is `/help`."""
    match = _COMMAND.fullmatch(text.strip())
    if match is None or match[1].lower() not in CHAT_COMMANDS:
        return None
    return ChatCommand(match[1].lower(), (match[2] or "").strip())


def command_meant(text: str) -> str | None:
    """The command that a text mistypes: "/aprove"; None for a command, and for any other text."""
    return _nearest(text, _NEAR_COMMAND)


def _nearest(text: str, cutoff: float) -> str | None:
    match = _COMMAND.fullmatch(text.strip())
    if match is None or match[1].lower() in CHAT_COMMANDS:
        return None
    return next(iter(get_close_matches(match[1].lower(), sorted(CHAT_COMMANDS), n=1, cutoff=cutoff)), None)


def is_unknown_command(text: str) -> bool:
    """Whether the text is written as a command and is none of ours: one that is mistyped, or a word behind the slash
    and nothing else ("/undo"). A path and a sentence are for the agent."""
    match = _COMMAND.fullmatch(text.strip())
    if match is None or match[1].lower() in CHAT_COMMANDS:
        return False
    return not match[2] or command_meant(text) is not None


def with_command_mark(text: str) -> str:
    """A text that was typed where the slash before a command is left out: "stop" as "/stop", a mistyped "stpo" as
    "/stpo". A question stays as it is, also one that begins like a command ("stop words in German?")."""
    text = text.strip()
    command = command_in(f"/{text}")
    if command is not None and command.row.takes_unmarked(command.argument):
        return f"/{text}"
    return f"/{text}" if " " not in text and _nearest(f"/{text}", _NEAR_COMMAND_UNMARKED) else text


def with_mark(text: str, mark: str) -> str:
    """The text with its commands as they are typed on this platform: "!stop" for "/stop"."""
    return text if mark == "/" else _IN_TEXT.sub(lambda _: mark, text)
