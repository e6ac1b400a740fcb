"""The slash commands of every surface, in one table: what each is called, what it does, where it works.

Help texts, the menus that chat clients show and what a typed text means derive from `SLASH_COMMANDS`. A surface has
a handler for each of its commands; those that need the session alone are answered here, for terminal and chats.
The rows are in `slash_commands.toml`. Knows no platform.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

import msgspec

from tailrace.app import App
from tailrace.app.usage.spending import spent_in
from tailrace.messages import Value
from tailrace.providers.prices import load_prices

Surface = Literal["terminal", "chat", "page"]
_NEAR_COMMAND = 0.66  # difflib's ratio: "nwe" is near "new", and no directory at the root of a disk is near anything
_NEAR_COMMAND_UNMARKED = 0.7  # of a word without the mark: "hello" is no "help"
_ELSEWHERE = {"/reset": "new", "/clear": "new", "/cancel": "stop", "/abort": "stop", "/commands": "help"}
_COMMAND = re.compile(r"/([A-Za-z][A-Za-z0-9_]*)(?:@\S+)?(?:\s+(.*))?\s*", re.DOTALL)


class CommandArgument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What may follow a command in a chat: `name` and `about` label its field in a client's menu.

    `values`: the only ones there are. `unmarked`: the pattern of those that a text without the slash may have, as
    "stop" is a command where the slash is left out and "stop words?" is a question."""

    name: str
    about: str
    values: tuple[str, ...] = ()
    unmarked: str = ""


class SlashCommand(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    help: str  # one line, for lists and menus
    surfaces: tuple[Surface, ...] = ("terminal", "chat", "page")
    usage: str = ""  # the argument, as the terminal's list shows it
    argument: CommandArgument | None = None  # in a chat
    detail: str = ""  # what else the list of a chat says
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


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    commands: tuple[SlashCommand, ...]


SLASH_COMMANDS: Final = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=_Table).commands


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


def command_suggested(text: str) -> str | None:
    """The command that a text mistypes, or calls as other programs do."""
    return _ELSEWHERE.get(text.strip().lower()) or command_meant(text)


def command_meant(text: str, cutoff: float = _NEAR_COMMAND) -> str | None:
    """The command that a text mistypes: "/aprove"; None for a command, and for any other text."""
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
    return f"/{text}" if " " not in text and command_meant(f"/{text}", _NEAR_COMMAND_UNMARKED) else text


def with_mark(text: str, mark: str) -> str:
    """The text with its commands as they are typed on this platform: "!stop" for "/stop"."""
    return text if mark == "/" else _IN_TEXT.sub(lambda _: mark, text)


async def _cost(app: App, session: str, _argument: str) -> str:
    await load_prices()
    spending = await spent_in(app, session)
    is_unpriced = spending.calls and spending.cost_usd is None and find_spec("genai_prices") is None
    return spending.table() + ("\nprices come with Tailrace's extra `prices`" if is_unpriced else "")


SlashAnswer = Callable[[App, str, str], Awaitable[str]]
"""What a command says of a session, from its argument."""
SLASH_ANSWERS: Final[dict[str, SlashAnswer]] = {"cost": _cost}


def switched(argument: str, *, now: bool) -> bool | None:
    """What a switch is set to: the opposite without an argument, None for an argument that says neither."""
    return {"": not now, "on": True, "off": False}.get(argument.lower())
