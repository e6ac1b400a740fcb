"""What `tailrace add` asks for a platform, and how an answer is kept that a person typed. Pure.

An integration has its own `PlatformQuestions`; this module has what they share.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from tailrace.config.load import Config
from tailrace.plugins.installed import platforms

STREAM_THERE = "streaming: {enabled: true} in the config lets them grow while they are written"
_HOST = re.compile(r"https?://[^/\s]\S*")


class OddAnswer(Exception):
    """What is missing or cannot be, in words."""


class UserIds(NamedTuple):
    """The form of a user's id. A name in place of an id serves no one, and the platform would not say why."""

    pattern: re.Pattern[str]
    example: str

    def odd(self, users: Iterable[str]) -> list[str]:
        """Those that are no ids."""
        return [user for user in users if user != "*" and not self.pattern.fullmatch(user)]


ANY_ID = UserIds(re.compile(r".+", re.DOTALL), "")  # names are ids


class PlatformQuestions(NamedTuple):
    """What connecting takes: the variables of secrets by their key, other keys, and how one gets them."""

    secrets: Mapping[str, str]
    keys: Mapping[str, str]
    where: str
    pairing: str = "send {code} to {bot}"  # how one is paired; empty: no message comes without an open port
    link: str = ""  # an address that sends the code; with `bot` the account's name without "@"
    instead: Mapping[str, str] = {}  # secrets that serve in place of `secrets` where their variables are set
    then: str = ""  # what is left to do on the platform
    own_id: str = "your own id there"
    # By key, `allow` for the person's own id: what was typed as it is kept. They raise `OddAnswer`.
    tidied: Mapping[str, Callable[[str], str]] = {}
    user_ids: UserIds = ANY_ID


def questions_of(platform: str) -> PlatformQuestions | None:
    """None for a platform that has none. Raises `ConfigError` where they cannot be loaded."""
    found = platforms().get(platform)
    if found is None or not found.integration.questions:
        return None
    questions: PlatformQuestions = found.load(found.integration.questions, key=f"platforms.{platform}")
    return questions


def is_whole_by_default(config: Config, platform: str) -> bool:
    """Whether answers appear whole in a chat where they could grow, and the config does not say that they shall."""
    unset = config.streaming.enabled is None and config.streaming.switch(platform) is None
    found = platforms().get(platform)
    return found is not None and found.integration.streams and unset and not config.streams(platform)


def http_address(typed: str, scheme: str) -> str:
    """An address without a scheme is taken as it is typed into a browser. Raises `OddAnswer`."""
    address = typed if "://" in typed else f"{scheme}://{typed}"
    if not _HOST.fullmatch(address):
        raise OddAnswer(f"{typed} is no http:// or https:// address")
    return address


def user_id(typed: str, platform: str, ids: UserIds) -> str:
    """Raises `OddAnswer`."""
    if ids.odd([typed]):
        raise OddAnswer(f"{typed} is no user's id on {platform}; an id looks like {ids.example}")
    return typed
