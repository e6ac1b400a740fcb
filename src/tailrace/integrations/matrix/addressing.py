"""Whom a Matrix message speaks to, and what it says without the bot's name. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tailrace.app.slash_commands import command_in, command_meant, is_unknown_command
from tailrace.messages import JsonObject

_MARK = re.compile(r"(?:!|//)(?=[A-Za-z])")  # clients keep "/…" for themselves, or take one "/" of two off

_BOT_COMMAND = re.compile(r"![A-Za-z]")
_USER_ID = re.compile(r"@[^\s:@]+:[^\s]")  # at the beginning of a text: whom it is for


class BotNames:
    """What people call the bot in one room: its id, the first part of it, and the name that clients show."""

    def __init__(self, user_id: str, shown: str = "") -> None:
        local = user_id.removeprefix("@").partition(":")[0]
        self._user_id = user_id.lower()
        called = [f"{user_id}{ending}" for ending in (":", ",", " ")]
        called += [f"@{local}{ending}" for ending in (": ", ",", " ")]  # not another server's
        names = [name for name in (local, shown) if name]
        called += [f"{name}{ending}" for name in names for ending in (":", ",")]
        self._called = _any_of(called)
        self._mentioned = _any_of([*called, *(f"{name} " for name in names)])

    def without_name(self, text: str, *, mentioned: bool) -> str:
        """The text after a name that it begins with. A name without a colon or a comma may be a word of the sentence,
        unless the client says that the bot is `mentioned`."""
        name = (self._mentioned if mentioned else self._called).match(f"{text} ")
        return text[name.end() :].lstrip() if name else text

    def named_in(self, text: str) -> bool:
        """Whether the text begins with a name, or has the id in it."""
        return self.without_name(text, mentioned=False) != text or self._user_id in text.lower()

    def speaks_to_others(self, text: str, content: JsonObject) -> bool:
        """Whether the client says that another person or everybody is mentioned, or the text begins with another id."""
        mentions = content.get("m.mentions")
        mentions = mentions if isinstance(mentions, dict) else {}
        users = mentions.get("user_ids")
        others = isinstance(users, list) and any(str(user).lower() != self._user_id for user in users)
        return others or mentions.get("room") is True or _USER_ID.match(text) is not None


def _any_of(beginnings: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, beginnings)), re.IGNORECASE)


def with_slash(text: str, *, to_us: bool) -> str:
    """A command as it is written elsewhere: "!Stop" and "//stop" as "/stop". What is no command of ours, nor mistypes
    one, stays as it is: another bot's, or a sentence. `to_us`: no other bot can be meant."""
    typed = _MARK.sub("/", text.strip(), count=1) if _MARK.match(text.strip()) else text.strip()
    return typed if is_command(typed) or command_meant(typed) or (to_us and is_unknown_command(typed)) else text


def is_others_command(text: str) -> bool:
    """Whether a text that `with_slash` has read is a command of another bot, `!weather`."""
    return _BOT_COMMAND.match(text.strip()) is not None


def is_command(text: str) -> bool:
    return command_in(text) is not None
