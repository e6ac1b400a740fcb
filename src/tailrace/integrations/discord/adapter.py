"""Discord: messages edited in place, threads, typing, buttons and slash commands.

One action is one request of the REST API (`rest`); events come by discord.py's gateway (`gateway`), and `inbound` says
what they mean. Never waits, retries or splits.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec

from tailrace.app.slash_commands import CHAT_MENU, CommandArgument, command_in
from tailrace.config.load import Config
from tailrace.delivery import port
from tailrace.delivery.planning.presenter import quotation
from tailrace.delivery.text.markup import Flavour, marked_text
from tailrace.delivery.text.split import units
from tailrace.errors import ConfigError, PlatformError, TailraceError
from tailrace.gateway.base import ANSWER_S, BasePlatform
from tailrace.gateway.connection_errors import NO_ANSWER, first_error, no_connection, reply_without_answer
from tailrace.integrations.discord import DiscordSettings, confirmations, gateway
from tailrace.integrations.discord.confirmations import EPHEMERAL, NO_MENTIONS, SUPPRESS_EMBEDS, SUPPRESS_NOTIFICATIONS
from tailrace.integrations.discord.gateway import NO_MESSAGE_CONTENT
from tailrace.integrations.discord.inbound import MESSAGE_LIMIT, may_write, parse_interaction, parse_message
from tailrace.integrations.discord.library import discord
from tailrace.integrations.discord.rest import THREAD_ARCHIVED, RestBody, RestClient, RestResponse, reply_to, sent
from tailrace.integrations.discord.thread_reader import read_thread

log = logging.getLogger("tailrace.integrations.discord")
CAPABILITIES = port.Capabilities(
    mode="edit",
    limit=MESSAGE_LIMIT,
    unit="utf16",  # Discord counts characters; its clients count UTF-16 units, which are never fewer
    edits=True,
    deletes=True,
    buttons=True,
    max_file_bytes=10 << 20,
    resend="idempotent",  # the nonce: a second attempt gives the message of the first
    edit_interval_s=1.2,
    windows=(port.Window(5, 5.0),),
    typing_s=9.0,  # Discord shows it for ten
)
_SMALL_TEXT = MESSAGE_LIMIT // 2  # parts are made no smaller for what their tables need
_NONCE_CHARS = 25
_BUTTONS_PER_ROW = 5
_ACTION_ROW, _BUTTON, _SECONDARY, _STRING = 1, 2, 2, 3  # types of components and options
_MAX_ARGUMENT = 1900  # characters; a question is shown, as a quotation
_STRANGER = "I do not know you yet, and have done nothing."  # to a command or a button; they alone see it
_NOT_SHOWN = "👍 I may not write in this channel, so my answer is not shown here. Ask me in a direct message."

_MESSAGE_CONTENT = 1 << 18 | 1 << 19  # an application's flags: the intent is enabled, for a large or a small bot
# View Channels, Send Messages, Attach Files, Read Message History, Send Messages in Threads
_PERMISSIONS = 1 << 10 | 1 << 11 | 1 << 15 | 1 << 16 | 1 << 38
_NAME = "discord"


def invitation(application_id: str) -> str:
    """The address at which one adds the bot to a server, with what it needs there."""
    query = f"client_id={application_id}&scope=bot+applications.commands&permissions={_PERMISSIONS}"
    return f"https://discord.com/oauth2/authorize?{query}"


async def describe_account(rest: RestClient) -> str:
    """Logs in once. Raises `PlatformError`."""
    try:
        answer = await rest.request("GET", "/users/@me")
        application = await rest.request("GET", "/oauth2/applications/@me")
        servers = await rest.request("GET", "/users/@me/guilds")
    except NO_ANSWER as exc:
        raise PlatformError(no_connection(exc), platform=_NAME) from exc
    if answer.status == 401:
        raise PlatformError("the token was refused", platform=_NAME, permanent=True)
    if answer.status == 404:
        raise PlatformError("there is no REST API of Discord at platforms.discord.base_url (404)", platform=_NAME)
    if not answer.ok or (account := answer.decoded) is None:
        raise PlatformError(f"Discord answered {answer.status}", platform=_NAME)
    described = application.decoded if application.ok else None
    flags = described.flags if described is not None else None
    if flags is not None and not flags & _MESSAGE_CONTENT:
        raise PlatformError(NO_MESSAGE_CONTENT, platform=_NAME, permanent=True)
    login = f"logged in as {account.username}"
    if described is not None and described.id and _in_no_server(servers):
        return f"{login}, which is in no server yet: invite it with {invitation(described.id)}"
    return login


def _in_no_server(answer: RestResponse) -> bool:
    try:
        return answer.ok and not msgspec.json.decode(answer.body, type=list[RestBody])
    except msgspec.DecodeError:
        return False


# What Discord reads as a mark: anywhere, and at the start of a line. An address and snake_case are left as they are.
_MARK = re.compile(
    r"(?P<address>https?://[^\s<]+)|(?P<blanks>^[ \t]{0,20})(?P<mark>[>#-])"
    r"|(?P<anywhere>[\\*~|`\[]|(?<![^\W_])_|_(?![^\W_]))",
    re.MULTILINE,
)


def discord_literal(text: str) -> str:
    """The text with each of Discord's marks escaped: it is shown as it stands."""

    def escaped(found: re.Match[str]) -> str:
        if found["address"]:
            return found[0]
        return f"\\{found['anywhere']}" if found["anywhere"] else f"{found['blanks']}\\{found['mark']}"

    return _MARK.sub(escaped, text)


_MARKS = Flavour(bold="**", italic="*", strike="~~", code="`", block="```", is_rich=True, escape=discord_literal)


def discord_text(text: str) -> str:
    return marked_text(text, _MARKS)


class DiscordPlatform(BasePlatform):
    """One bot."""

    name = "discord"
    same_everywhere = CAPABILITIES

    def __init__(
        self, token: str, *, base_url: str | None = None, gateway_url: str | None = None, answer_s: float = ANSWER_S
    ) -> None:
        self._token = token
        self._gateway_url = gateway_url
        self._rest = RestClient(token, base_url, answer_s=answer_s)
        self._acknowledged: dict[int, asyncio.Task[None]] = {}  # interactions that wait for their turn
        self._session = gateway.GatewaySession()
        self._unhandled: int | None = None  # the number of the event in whose handling the run ended
        self._oldest_held: int | None = None  # the number of the first event whose part of a paste is held
        self._client: gateway.GatewayClient | None = None
        self._announced = False
        self._refused = False  # the gateway wants something changed first

    # ── outwards ─────────────────────────────────────────────────────────────────────────────────────────────

    async def perform(self, place: port.Place, action: port.AnyAction) -> port.AnyReply:
        try:
            return await self._perform(place, action)
        except NO_ANSWER as exc:
            return reply_without_answer(exc)

    async def _perform(self, place: port.Place, action: port.AnyAction) -> port.AnyReply:
        channel = f"/channels/{place.thread or place.chat}"
        match action:
            case port.Send() | port.Edit():
                shown = _shown(action.text, markup=action.markup)
                return port.TooLong() if shown is None else await self._show(place, channel, action, shown)
            case port.Upload():
                body = _nonce(action.key) | {"attachments": [{"id": 0, "filename": action.name}]}
                body["flags"] = SUPPRESS_NOTIFICATIONS
                file = (action.name, action.media_type, action.data)
                return sent(await self._rest.request("POST", f"{channel}/messages", body, file), place)
            case port.Delete():
                path = f"{channel}/messages/{action.message_id}"
                reply = reply_to(await self._change("DELETE", path, None, place), place)
                return port.Accepted() if reply == port.Gone("message") else reply
            case port.Typing():
                return reply_to(await self._rest.request("POST", f"{channel}/typing"), place)
            case _:
                return port.Refused(f"Discord has no {type(action).__name__}")

    async def _show(
        self, place: port.Place, channel: str, action: port.Send | port.Edit, content: str
    ) -> port.AnyReply:
        body = {"content": content, "components": _rows(action.buttons), "allowed_mentions": NO_MENTIONS}
        if isinstance(action, port.Edit):
            path = f"{channel}/messages/{action.message_id}"
            return reply_to(await self._change("PATCH", path, body, place), place)
        flags = SUPPRESS_EMBEDS | (SUPPRESS_NOTIFICATIONS if action.silent else 0)
        body |= _nonce(action.key) | {"flags": flags}
        return sent(await self._rest.request("POST", f"{channel}/messages", body), place)

    async def _change(self, method: str, path: str, body: object, place: port.Place) -> RestResponse:
        """A message that is there. A thread that was closed meanwhile is opened again, as by a new message in it; one
        that was locked stays closed."""
        answer = await self._rest.request(method, path, body)
        if place.thread and not answer.ok and (error := answer.decoded) is not None and error.code == THREAD_ARCHIVED:
            opened = await self._rest.request("PATCH", f"/channels/{place.thread}", {"archived": False})
            return await self._rest.request(method, path, body) if opened.ok else answer
        return answer

    async def fetch(self, attachment: port.Attachment, *, max_bytes: int) -> bytes:
        self.check_size(attachment, max_bytes)
        async with aiohttp.ClientSession(timeout=self._rest.timeout) as session:  # that host must not see the token
            return await self.download(attachment, session.get(attachment.ref), max_bytes)

    # ── inwards ──────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self, inbox: port.Inbox) -> None:
        if self._refused:  # Discord resets the token of a bot that logs in at the gateway 1000 times a day
            await describe_account(self._rest)
            self._refused = False
        try:
            client = await self._logged_in()
            if not self._announced:
                await self._announce_commands(client.application_id)
            client.events = asyncio.Queue()  # what an earlier run has left is heard again
            self._acknowledged.clear()
            try:
                async with asyncio.TaskGroup() as tasks:
                    client.on_interaction = lambda arrived: self._acknowledge(tasks, arrived)
                    tasks.create_task(client.listen(self._session))
                    tasks.create_task(self._handle_events(client, inbox))
            finally:
                self._go_back()
        except gateway.CONNECTION_ERRORS as exc:
            raise self._error(exc) from exc
        except ExceptionGroup as group:
            lost, others = group.split((TailraceError, *gateway.CONNECTION_ERRORS))
            if lost is None or others is not None:
                raise
            raise self._error(first_error(lost)) from group

    async def _logged_in(self) -> gateway.GatewayClient:
        """One client for all connections: a resumed session does not say again which servers and channels there are,
        and without them a message in a channel looks like a direct one."""
        if self._client is None:
            client = gateway.GatewayClient(self._rest.base_url, self._gateway_url)
            try:
                await client.login(self._token)
            except BaseException:
                await client.close()
                raise
            self._client = client
        return self._client

    async def _handle_events(self, client: gateway.GatewayClient, inbox: port.Inbox) -> None:
        """The next connection starts again at the first event that was not handled to its end, or at the oldest held
        part of a paste: the event may have been the rest of it."""
        while True:
            event, number = await client.events.get()
            try:
                await self._handle_event(event, client, inbox)
            except (TailraceError, asyncio.CancelledError):
                self._unhandled = number if self._oldest_held is None else self._oldest_held
                raise
            if not inbox.holds_parts:
                self._oldest_held = None
            elif self._oldest_held is None:
                self._oldest_held = number

    def _go_back(self) -> None:
        """Sets the session's cursor before the event that was not handled. To be called once the connection reads no
        more events: a later event would move the cursor past it."""
        number, self._unhandled = self._unhandled, None
        if number is not None:
            self._session.sequence = number - 1

    async def _handle_event(
        self, event: gateway.GatewayEvent, client: gateway.GatewayClient, inbox: port.Inbox
    ) -> None:
        match event:
            case gateway.Connected():
                inbox.connected()
            case discord.Message():
                me = client.user
                if me is None or event.author.bot:
                    return
                if (message := parse_message(event, me)) is not None:
                    await inbox.put(message)
            case discord.Interaction():
                await self._interact(event, inbox)

    async def quoted(self, message: port.MessageReceived, *, in_conversation: bool) -> tuple[port.Quoted, ...]:
        """The thread that the bot is called into. The first message of a post has nothing above it."""
        client, place = self._client, message.place
        is_below = place.thread not in ("", message.message_id) and bool(message.message_id)
        if in_conversation or not is_below or client is None or client.user is None:
            return ()
        thread = client.get_channel(int(place.thread))
        return await read_thread(thread, message, client.user) if isinstance(thread, discord.Thread) else ()

    async def _interact(self, interaction: discord.Interaction, inbox: port.Inbox) -> None:
        update = parse_interaction(interaction)
        if update is None:
            return
        await inbox.put(update)
        if (acknowledged := self._acknowledged.pop(interaction.id, None)) is not None:
            await acknowledged
        answer: tuple[str, int] | None = None
        if not await inbox.serves(update.sender):
            answer = _STRANGER, EPHEMERAL
        elif interaction.type == discord.InteractionType.application_command:
            answer = "👍", EPHEMERAL
            if not may_write(interaction):
                answer = _NOT_SHOWN, EPHEMERAL
            elif question := _question_in(update):
                answer = quotation(question), SUPPRESS_EMBEDS
        if answer is not None:
            await confirmations.answer(self._rest, interaction, *answer)

    def _acknowledge(self, tasks: asyncio.TaskGroup, interaction: discord.Interaction) -> None:
        """When it arrives: by its turn the three seconds may be over."""
        if (update := parse_interaction(interaction)) is not None:
            shown = may_write(interaction) and _question_in(update)
            acknowledging = confirmations.acknowledge(self._rest, interaction, SUPPRESS_EMBEDS if shown else EPHEMERAL)
            self._acknowledged[interaction.id] = tasks.create_task(acknowledging)

    def _error(self, error: Exception) -> PlatformError:
        if isinstance(error, PlatformError):
            return error
        if isinstance(error, TailraceError):
            return PlatformError(str(error), platform=self.name)
        reason, permanent = gateway.explain(error)
        self._refused = permanent
        return PlatformError(reason, platform=self.name, permanent=permanent)

    async def _announce_commands(self, application_id: int | None) -> None:
        body = [
            {"name": command.name, "description": command.help, "options": _options(command.argument)}
            for command in CHAT_MENU
        ]
        answer = await self._rest.request("PUT", f"/applications/{application_id}/commands", body)
        self._announced = answer.ok
        if not answer.ok:
            log.warning("the list of commands could not be set: HTTP %d", answer.status)

    async def check(self) -> str:
        account = await describe_account(self._rest)
        if self._gateway_url is not None:
            try:
                await gateway.reach_gateway(self._gateway_url)
            except gateway.CONNECTION_ERRORS as exc:
                raise self._error(exc) from exc
        return account

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()
        await self._rest.close()


def _options(argument: CommandArgument | None) -> list[dict[str, Any]]:
    """What a client shows beside the command: the argument's name, what it is, and the values where they are few."""
    if argument is None:
        return []
    option = {"type": _STRING, "name": argument.name, "description": argument.about, "required": False}
    if argument.values:
        return [option | {"choices": [{"name": value, "value": value} for value in argument.values]}]
    return [option | {"max_length": _MAX_ARGUMENT}]


def _question_in(update: port.Update) -> str:
    """What a command asks beside what it does. A client shows nothing of a command whose answer one person alone sees:
    without its question the answer would stand below nothing."""
    command = command_in(update.text) if isinstance(update, port.MessageReceived) else None
    return command.argument if command is not None and command.name == "new" else ""


def _nonce(key: str) -> dict[str, Any]:
    return {"nonce": hashlib.sha256(key.encode()).hexdigest()[:_NONCE_CHARS], "enforce_nonce": True}


def _shown(text: str, *, markup: bool) -> str | None:
    """The text as Discord wants it; None where that is too long for one message and smaller parts may be shorter. A
    text that is small already is sent as it is."""
    shown = discord_text(text) if markup else discord_literal(text)
    if units(shown, "utf16") <= MESSAGE_LIMIT:
        return shown
    return None if units(text, "utf16") > _SMALL_TEXT else text


def _rows(buttons: Sequence[port.Button]) -> list[dict[str, Any]]:
    keys = [{"type": _BUTTON, "style": _SECONDARY, "label": b.label[:80], "custom_id": b.value} for b in buttons]
    return [
        {"type": _ACTION_ROW, "components": keys[at : at + _BUTTONS_PER_ROW]}
        for at in range(0, len(keys), _BUTTONS_PER_ROW)
    ]


def make(config: Config) -> DiscordPlatform:
    """The bot of this config. Raises `ConfigError`."""
    settings = config.platforms.get("discord", DiscordSettings)
    if settings is None:
        raise ConfigError("is missing", key="platforms.discord")
    token = config.require_secret(settings.token_env, "platforms.discord.token_env")
    if not token.isprintable() or " " in token:
        raise ConfigError(f"the token in {settings.token_env} has a blank or a line end in it", key="platforms.discord")
    return DiscordPlatform(token, base_url=settings.base_url, gateway_url=settings.gateway_url)
