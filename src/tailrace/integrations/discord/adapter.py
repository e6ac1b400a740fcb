"""Discord: messages edited in place, threads, typing, buttons and slash commands.

One action is one request of the REST API (`rest`); events come by discord.py's gateway (`gateway`), and `inbound` says
what they mean. Never waits, retries or splits.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import aiohttp

from tailrace.app.slash_commands import CHAT_MENU, CommandArgument, command_in
from tailrace.config.load import Config
from tailrace.delivery import port
from tailrace.delivery.planning.presenter import quotation
from tailrace.delivery.text.split import units
from tailrace.errors import ConfigError, PlatformError, TailraceError
from tailrace.gateway.base import ANSWER_S, BasePlatform
from tailrace.gateway.connection_errors import NO_ANSWER, first_error, reply_without_answer
from tailrace.integrations.discord import DiscordSettings, gateway
from tailrace.integrations.discord.account import describe_account
from tailrace.integrations.discord.confirmations import EPHEMERAL, NO_MENTIONS, SUPPRESS_EMBEDS, Confirmation
from tailrace.integrations.discord.inbound import MESSAGE_LIMIT, may_write, parse_interaction, parse_message
from tailrace.integrations.discord.library import discord
from tailrace.integrations.discord.markup import discord_literal, discord_text
from tailrace.integrations.discord.private_word import PrivateWord
from tailrace.integrations.discord.rest import THREAD_ARCHIVED, RestClient, RestResponse, reply_to, sent
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
        self._private_word = PrivateWord(self._rest)
        self._confirmations: dict[int, Confirmation] = {}  # of interactions that wait for their turn
        self._session = gateway.GatewaySession()
        self._unhandled: int | None = None  # the number of the event in whose handling the run ended
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
            answer = await self._change("PATCH", path, body, place)
            await self._private_word.tell(place, answer)  # the right may be lost in the middle of an answer
            return reply_to(answer, place)
        body |= _nonce(action.key) | {"flags": SUPPRESS_EMBEDS}
        answer = await self._rest.request("POST", f"{channel}/messages", body)
        await self._private_word.tell(place, answer)
        return sent(answer, place)

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
            self._confirmations.clear()
            try:
                async with asyncio.TaskGroup() as tasks:
                    client.on_interaction = partial(self._confirm_in_time, tasks)
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
        """An event that was not handled to its end is heard again by the next run, with those behind it."""
        while True:
            event, number = await client.events.get()
            try:
                await self._handle_event(event, client, inbox)
            except (TailraceError, asyncio.CancelledError):
                self._unhandled = number
                raise

    def _go_back(self) -> None:
        """To the event that was not handled, once nothing is heard any more: what the connection heard last would move
        the session past it."""
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
        confirmation = self._confirmations.pop(interaction.id, None) or self._confirmation(interaction, update)
        if not await inbox.serves(update.sender):
            await confirmation.answer(_STRANGER, EPHEMERAL)
        elif interaction.type != discord.InteractionType.application_command:
            await confirmation.answer(None, 0)
        elif not may_write(interaction):
            self._private_word.is_told(update.place)
            await confirmation.answer(_NOT_SHOWN, EPHEMERAL)
        elif question := _question_in(update):
            await confirmation.answer(quotation(question), SUPPRESS_EMBEDS)
        else:
            await confirmation.answer("👍", EPHEMERAL)

    def _confirmation(self, interaction: discord.Interaction, update: port.Update) -> Confirmation:
        shown = may_write(interaction) and _question_in(update)
        return Confirmation(self._rest, interaction, SUPPRESS_EMBEDS if shown else EPHEMERAL)

    def _confirm_in_time(self, tasks: asyncio.TaskGroup, interaction: discord.Interaction) -> None:
        """When it arrives: by its turn the three seconds may be over."""
        if (update := parse_interaction(interaction)) is not None:
            confirmation = self._confirmations[interaction.id] = self._confirmation(interaction, update)
            tasks.create_task(confirmation.defer_when_late())

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
    return command.argument if command is not None and command.name in ("new", "back") else ""


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
