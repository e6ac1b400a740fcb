"""Discord's gateway through discord.py: one web socket that messages and interactions arrive on, in order.

discord.py would start a task for each event and reconnect for ever by itself. Here events wait in one queue, and a
connection that cannot be had is said; what can be resumed is resumed, so that nothing is missed in between. An event
that discord.py cannot read is skipped: resumed before it, the session would bring it again and again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import aiohttp
import msgspec
import yarl

from tailrace.gateway.connection_errors import NO_ANSWER, no_connection
from tailrace.integrations.discord.library import DiscordWebSocket, HTTPClient, ReconnectWebSocket, Route, discord

log = logging.getLogger("tailrace.integrations.discord")

CONNECT_S = 60.0  # for a connection and the server's greeting


class Connected:
    """In contact, or in contact again."""


GatewayEvent = discord.Message | discord.Interaction | Connected


class GatewaySession(msgspec.Struct):
    """What another connection needs to go on where this one ended: `sequence` is the last event that was heard."""

    session_id: str | None = None
    sequence: int | None = None
    address: str | None = None


class _Requests(HTTPClient):
    """discord.py's REST client at another address: it knows one for the whole process, as a constant of `Route`."""

    def __init__(self, base_url: str) -> None:
        super().__init__(asyncio.get_running_loop())
        self._base_url = base_url

    async def request(self, route: Route, **options: Any) -> Any:
        route.url = self._base_url + route.url.removeprefix(Route.BASE)
        return await super().request(route, **options)


class GatewayClient(discord.Client):
    """Logs in and listens. `events` is what has arrived, each with its number in the session."""

    def __init__(self, base_url: str, gateway_url: str | None) -> None:
        discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False  # there are no voice calls here
        super().__init__(
            intents=discord.Intents(guilds=True, guild_messages=True, dm_messages=True, message_content=True),
            max_messages=None,
            chunk_guilds_at_startup=False,
            guild_ready_timeout=0.0,  # nothing here waits for every server to be known
            member_cache_flags=discord.MemberCacheFlags.none(),
        )
        self.http = self._connection.http = _Requests(base_url)
        parsers = self._connection.parsers
        parsers.update({event: _skipping_errors(event, parse) for event, parse in parsers.items() if event != "READY"})
        self.events: asyncio.Queue[tuple[GatewayEvent, int]] = asyncio.Queue()
        self.on_interaction: Callable[[discord.Interaction], None] = lambda _: None  # as soon as it has arrived
        self._gateway_url = gateway_url

    def dispatch(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        del kwargs
        match event, args:
            case (("message" | "interaction"), (discord.Message() | discord.Interaction() as received,)):
                self.events.put_nowait((received, self.ws.sequence or 0))
                if isinstance(received, discord.Interaction):
                    self.on_interaction(received)
            case (("connect" | "resumed"), _):
                self.events.put_nowait((Connected(), self.ws.sequence or 0))
            case _:
                pass  # members, presence, edits: no concern of ours

    async def listen(self, session: GatewaySession) -> None:
        """Until the connection is lost for good. Raises what discord.py and aiohttp raise; `session` is kept up to
        date, for the next time."""
        while True:
            socket = await asyncio.wait_for(self._open(session), CONNECT_S)
            try:
                while True:
                    await socket.poll_event()
                    session.session_id, session.sequence = socket.session_id, socket.sequence
                    session.address = str(socket.gateway)
            except ReconnectWebSocket as lost:
                if lost.resume:
                    log.info("discord: the connection was lost; its session is resumed")
                else:
                    log.info("discord: the session was ended; another one begins")
                    session.session_id = session.sequence = session.address = None
            finally:
                await socket.close(code=4000 if session.session_id else 1000)  # 1000 would end the session

    async def _open(self, session: GatewaySession) -> DiscordWebSocket:
        address = session.address or self._gateway_url
        self.ws = await DiscordWebSocket.from_client(
            self,
            initial=session.session_id is None,
            gateway=yarl.URL(address) if address else None,
            session=session.session_id,
            sequence=session.sequence,
            resume=session.session_id is not None,
        )
        return self.ws


def _skipping_errors(event: str, parse: Callable[[Any], None]) -> Callable[[Any], None]:
    """The parser of an event; what it cannot read is logged, without a word of its content."""

    def parse_or_skip(data: Any) -> None:
        try:
            parse(data)
        except Exception as exc:  # noqa: BLE001 - whatever discord.py stumbles over
            log.warning("discord: an event could not be read and is left out: %s (%s)", event, type(exc).__name__)

    return parse_or_skip


async def reach_gateway(address: str) -> None:
    """Opens a connection and ends it. Raises what aiohttp raises."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=CONNECT_S)) as session:
        socket = await session.ws_connect(address)
        await socket.close()


NO_MESSAGE_CONTENT = "the message content intent is not enabled for this bot (Developer Portal → Bot)"
# a refused login and a closed connection are `ClientException`s
CONNECTION_ERRORS = (*NO_ANSWER, discord.HTTPException, discord.GatewayNotFound, discord.ClientException)


def explain(error: Exception) -> tuple[str, bool]:
    """The reason in words, and whether it is permanent: a retry fails until a person changes something."""
    match error:
        case discord.LoginFailure() | discord.ConnectionClosed(code=4004):
            return "the token was refused", True
        case discord.ConnectionClosed(code=4014):
            return NO_MESSAGE_CONTENT, True
        case discord.ConnectionClosed(code=4010 | 4011 | 4012 | 4013 as code):
            return f"the gateway refused us ({code})", True
        case discord.HTTPException():
            return f"Discord answered {error.status}", False
        case aiohttp.WSServerHandshakeError():
            return (
                f"there is no gateway of Discord at {error.request_info.url.with_query(None)} ({error.status})",
                False,
            )
        case _:
            return no_connection(error), False
