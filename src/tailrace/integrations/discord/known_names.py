"""What channels, roles and people are called that a message names by their numbers alone.

In a server the names are those of that server. In a direct message they are those of the servers in which the bot
meets whoever writes: a name is told to nobody who could not read it in their own client. Discord tells of one member
at a time; the list of all would need one more privileged intent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import msgspec

from tailrace.gateway.connection_errors import NO_ANSWER
from tailrace.integrations.discord.library import discord
from tailrace.integrations.discord.message_text import KnownName, is_private, numbers_in
from tailrace.integrations.discord.rest import RestClient

log = logging.getLogger("tailrace.integrations.discord")

ASK_S = 1.0  # for all names of one message; an interaction behind it has three seconds
KEEP_S = 600.0  # how long an answer about a member holds
MAX_SERVERS = 10  # in which a person is looked for
_MAX_KEPT = 4096
_NOT_A_MEMBER = frozenset({10004, 10007, 10013})  # no such server, member, user


class _User(msgspec.Struct):
    username: str = ""
    global_name: str | None = None


class _Member(msgspec.Struct):
    user: _User
    nick: str | None = None

    @property
    def name(self) -> str:
        return self.nick or self.user.global_name or self.user.username


class KnownNames:
    def __init__(self, rest: RestClient) -> None:
        self._rest = rest
        self._members: dict[tuple[int, int], tuple[float, str]] = {}  # server and person: when asked, the name there

    async def of(self, message: discord.Message, servers: Sequence[discord.Guild]) -> KnownName:
        """Empty for what is not known, or not for this person. `servers` are those of the bot."""
        if not is_private(message):
            return partial(_first_name, [message.guild] if message.guild is not None else [])
        names: dict[tuple[str, int], str] = {}
        try:
            async with asyncio.timeout(ASK_S):
                for kind, number in numbers_in(message):
                    names[kind, number] = await self._name(kind, number, message.author.id, servers)
        except TimeoutError:
            log.info("discord: the names in a direct message were not told within %.0f s", ASK_S)
        return partial(_kept_name, names)

    async def _name(self, kind: str, number: int, asker: int, servers: Sequence[discord.Guild]) -> str:
        if kind == "@":
            for server in servers[:MAX_SERVERS]:
                if await self._member_name(server, asker) and (name := await self._member_name(server, number)):
                    return name
            return ""
        for server in servers:
            if (name := _name_in(server, kind, number)) and await self._member_name(server, asker):
                return name
        return ""

    async def _member_name(self, server: discord.Guild, user: int) -> str:
        """Empty for somebody who is not in the server, and where Discord does not tell."""
        now = asyncio.get_running_loop().time()
        asked_at, kept = self._members.get((server.id, user), (now - KEEP_S, ""))
        if now - asked_at < KEEP_S:
            return kept
        name = await self._ask_for_member(server.id, user)
        if name is not None:
            if len(self._members) >= _MAX_KEPT:
                self._members.clear()
            self._members[server.id, user] = now, name
        return name or ""

    async def _ask_for_member(self, server: int, user: int) -> str | None:
        """None: Discord has not told."""
        try:
            answer = await self._rest.request("GET", f"/guilds/{server}/members/{user}")
            if answer.ok:
                return msgspec.json.decode(answer.body, type=_Member).name
        except (*NO_ANSWER, msgspec.DecodeError) as exc:
            log.info("discord: whether a person is in a server is not known: %s", type(exc).__name__)
            return None
        refused = answer.decoded
        if refused is not None and refused.code in _NOT_A_MEMBER:
            return ""
        log.info("discord: whether a person is in a server is not known: HTTP %d", answer.status)
        return None


def _kept_name(names: Mapping[tuple[str, int], str], kind: str, number: int) -> str:
    return names.get((kind, number), "")


def _first_name(servers: Iterable[discord.Guild], kind: str, number: int) -> str:
    return next(filter(None, (_name_in(server, kind, number) for server in servers)), "")


def _name_in(server: discord.Guild, kind: str, number: int) -> str:
    """Of a channel that not all of its server see, the name is not for everybody who knows its number."""
    match kind:
        case "#":
            channel = server.get_channel_or_thread(number)
            return channel.name if channel is not None and _is_public(channel) else ""
        case "@&":
            role = server.get_role(number)
            return role.name if role is not None else ""
        case _:
            member = server.get_member(number)
            return member.display_name if member is not None else ""


def _is_public(channel: discord.abc.GuildChannel | discord.Thread) -> bool:
    """Whether everybody in its server sees it."""
    parent = channel.parent if isinstance(channel, discord.Thread) else channel
    if channel.type is discord.ChannelType.private_thread or parent is None:
        return False
    everyone = channel.guild.get_role(channel.guild.id)
    return everyone is not None and parent.permissions_for(everyone).view_channel
