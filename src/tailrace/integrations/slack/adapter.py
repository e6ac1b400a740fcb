"""Slack: native streams with task cards, edits where there is no stream, threads, status, buttons; by Socket Mode.

One action is one call of the Web API through slack_sdk. `replies` says what errors mean, `inbound` what envelopes mean,
`socket` holds a connection. Never waits, retries or splits: the SDK's own retries are off, since a send is not safe to
repeat.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
from slack_sdk.errors import SlackApiError, SlackRequestError
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.web.async_client import AsyncWebClient

from tailrace.config.load import Config
from tailrace.delivery import port
from tailrace.errors import ConfigError, PlatformError
from tailrace.events.speakers import one_line_name
from tailrace.gateway.base import ANSWER_S, UPLOAD_S, BasePlatform
from tailrace.gateway.connection_errors import NO_ANSWER, no_connection, reply_without_answer
from tailrace.gateway.inbound.quotations import UNREAD_THREAD
from tailrace.integrations.slack import SlackSettings
from tailrace.integrations.slack.blocks import key_of, message_body, metadata, stream_body
from tailrace.integrations.slack.envelope_order import OrderedTasks, is_answered_soon, order_keys
from tailrace.integrations.slack.inbound import OWN_COMMAND, BotAccount, is_bare_question, parse_envelope
from tailrace.integrations.slack.replies import OLD_TOKEN, code_of, reply_to, status_of
from tailrace.integrations.slack.slash import NO_QUESTION, STRANGER, ResponseUrls, why_not_here
from tailrace.integrations.slack.socket import OneSocket, hide_tickets_in_logs
from tailrace.integrations.slack.thread_reader import PAGE, PERSON, read_thread, with_names
from tailrace.integrations.slack.user_names import UserNames
from tailrace.integrations.slack.workspace_limits import WorkspaceLimits
from tailrace.runs.signals import FlatTaskGroup

log = logging.getLogger("tailrace.gateway")
API_URL = "https://slack.com/api/"
TEXT_LIMIT = 12_000  # characters of Markdown in one message
STREAM = port.Capabilities(
    mode="stream",
    limit=TEXT_LIMIT,
    edits=True,
    deletes=True,
    buttons=True,
    threaded=True,
    max_file_bytes=100 << 20,
    cards=True,
    resend="look_up",
    edit_interval_s=1.0,
    rewrite_interval_s=1.5,  # chat.update: fifty a minute
    windows=(port.Window(1, 1.0), port.Window(90, 60.0)),  # appendStream: a hundred a minute
    typing_s=100.0,  # Slack takes a status away after two minutes
    stream_lifetime_s=240.0,  # it ends streams after five
)
EDIT = msgspec.structs.replace(
    STREAM, mode="edit", cards=False, edit_interval_s=1.5, windows=(port.Window(1, 1.0), port.Window(45, 60.0))
)
OUTSIDE = msgspec.structs.replace(EDIT, command_mark=f"{OWN_COMMAND} ")  # of every thread: the one slash command
OUTSIDE_IN_CHANNEL = msgspec.structs.replace(OUTSIDE, hides=True)
STATUS = "is thinking…"
SCOPES_HEADER = "x-oauth-scopes"
SCOPES = (  # as in the manifest of docs/integrations/slack.md
    *("app_mentions:read", "channels:history", "chat:write", "commands", "files:read", "files:write"),
    *("groups:history", "im:history", "mpim:history", "users:read"),
)
VITAL = frozenset({"app_mentions:read", "chat:write", "im:history"})  # without these it hears or says nothing
BOT_TOKEN, APP_TOKEN = "the bot token", "the app-level token"
MAX_NAMES = 20  # that are asked for at a time
_BAD_TOKEN = OLD_TOKEN | {"not_allowed_token_type"}


class SlackPlatform(BasePlatform):
    """One app in one workspace."""

    name = "slack"

    def __init__(
        self,
        token: str,
        app_token: str,
        *,
        base_url: str | None = None,
        answer_s: float = ANSWER_S,
        tells_names: bool = True,
    ) -> None:
        """`tells_names`: whether the model reads what people are called."""
        hide_tickets_in_logs()
        self._answer_s = answer_s
        self._app_token = app_token
        self._web = AsyncWebClient(token, base_url or API_URL, retry_handlers=[])
        self._me: BotAccount | None = None
        self._stream, self._edit = STREAM, EDIT
        self._response_urls = ResponseUrls()
        self._user_names = UserNames()
        self._limits = WorkspaceLimits()
        self._tells_names = tells_names

    def capabilities(self, place: port.Place) -> port.Capabilities:
        """A native stream is a reply: it needs the thread, and in a channel the person."""
        if not place.thread:
            return OUTSIDE if place.kind == "private" else OUTSIDE_IN_CHANNEL
        is_reply = place.kind == "private" or place.extra.get("user")
        return self._stream if is_reply else self._edit

    def _is_ephemeral(self, place: port.Place) -> bool:
        """Whether what is sent there is shown to one person alone. In a thread there are no slash commands."""
        return bool(place.only_for) and self.capabilities(place).hides

    # ── outwards ─────────────────────────────────────────────────────────────────────────────────────────────

    async def perform(self, place: port.Place, action: port.AnyAction) -> port.AnyReply:
        markup = not isinstance(action, port.Send | port.Edit) or action.markup
        try:
            return await self._perform(place, action)
        except SlackApiError as exc:
            reply = reply_to(exc, place, markup=markup)
            if reply == port.Gone("chat") and not isinstance(action, port.Typing):
                log.warning("slack: nothing can be written in %s (%s)", place.chat, code_of(exc))
                await self._tell_in_private(place, why_not_here(code_of(exc), place, self._bot_name))
            return port.Accepted() if isinstance(action, port.Delete) and reply == port.Gone("message") else reply
        except NO_ANSWER as exc:
            return reply_without_answer(exc)

    async def _perform(self, place: port.Place, action: port.AnyAction) -> port.AnyReply:
        channel = place.chat
        match action:
            case port.Send() if self._is_ephemeral(place):
                return await self._send_privately(place, action)
            case port.Send():
                body = {"thread_ts": place.thread} if place.thread else {}
                shown = message_body(action) | metadata(action.key) | {"unfurl_links": False, "unfurl_media": False}
                return _sent(await self._call("chat.postMessage", channel=channel, **body, **shown))
            case port.Upload():
                return await self._upload(place, action)
            case port.Edit():
                await self._call(
                    "chat.update", channel=channel, ts=action.message_id, **message_body(action), **metadata()
                )
            case port.Open():
                return await self._open_stream(place, action)
            case port.Append():
                return await self._append(place, action)
            case port.Close():
                last = stream_body(action.text, action.cards) | metadata()
                await self._call("chat.stopStream", channel=channel, ts=action.message_id, **last)
            case port.Delete():
                await self._call("chat.delete", channel=channel, ts=action.message_id)
            case port.LookUp() if self._is_ephemeral(place):
                return port.Unknown("Slack keeps no ephemeral message")
            case port.LookUp():
                return await self._look_up(place, action.key)
            case port.Typing() if place.thread:
                await self._call(
                    "assistant.threads.setStatus", channel_id=channel, thread_ts=place.thread, status=STATUS
                )
            case _:
                return port.Refused(f"Slack has no {type(action).__name__} here")
        return port.Accepted()

    async def _open_stream(self, place: port.Place, action: port.Open) -> port.AnyReply:
        """Where the workspace has too many new streams for Slack, the answer is sent when it is whole: edits would
        be counted for all of it too."""
        if not self._limits.may_open(asyncio.get_running_loop().time()):
            return port.Refused("the workspace has as many new streams as Slack takes in a minute", for_now=True)
        wanted = {"recipient_user_id": place.extra.get("user"), "recipient_team_id": place.extra.get("team")}
        body = {name: value for name, value in wanted.items() if value} | stream_body(action.text, action.cards)
        return _sent(await self._call("chat.startStream", channel=place.chat, thread_ts=place.thread, **body))

    async def _append(self, place: port.Place, action: port.Append) -> port.AnyReply:
        loop = asyncio.get_running_loop()
        if wait_s := self._limits.wait_s(place.chat, loop.time()):
            return port.Flood(wait_s)
        added = stream_body(action.text, action.cards)
        await self._call("chat.appendStream", channel=place.chat, ts=action.message_id, **added)
        return port.Accepted(self._limits.pause_s(loop.time()))

    async def _send_privately(self, place: port.Place, action: port.Send) -> port.AnyReply:
        """Answers a slash command so that no other person sees it: at the address that came with the command, which is
        good in every channel, else as an ephemeral message. An answer that may have been shown is not sent again."""
        body = message_body(action)
        told = await self._answer_command(place, body)
        if isinstance(told, port.Sent):
            return port.Sent(action.key)  # Slack tells no id, and it is never edited
        if isinstance(told, port.Unknown):
            return told
        answer = await self._call("chat.postEphemeral", channel=place.chat, user=place.only_for, **body)
        return port.Sent(str(answer.get("message_ts") or action.key))

    async def _tell_in_private(self, place: port.Place, text: str) -> None:
        """Tells the person whose slash command is answered there."""
        await self._answer_command(place, {"text": text})

    async def _answer_command(self, place: port.Place, body: dict[str, Any]) -> port.AnyReply:
        """`Failed` where Slack has certainly not taken it, as where no command is open there."""
        url = self._response_urls.take(place)
        if not url:
            return port.Failed("no command is open there")
        try:
            async with self._session().post(url, json={"response_type": "ephemeral"} | body) as answer:
                if answer.status >= 500:
                    return port.Unknown(f"HTTP {answer.status}")
                return port.Sent("") if answer.ok else port.Failed(f"HTTP {answer.status}")
        except NO_ANSWER as exc:
            return reply_without_answer(exc)

    async def _upload(self, place: port.Place, file: port.Upload) -> port.AnyReply:
        """Three requests of the SDK's. Slack makes the message itself, and later: the file's id stands for it."""
        try:
            async with asyncio.timeout(UPLOAD_S):
                answer = await self._client().files_upload_v2(
                    file=file.data, filename=file.name, channel=place.chat, thread_ts=place.thread or None
                )
        except SlackRequestError as exc:
            return port.Failed(f"the file was not taken: {exc}")
        files = answer.get("files") or []
        return port.Sent(str(files[0]["id"])) if files else port.Unknown("an answer without a file")

    async def _look_up(self, place: port.Place, key: str) -> port.AnyReply:
        """Finds a message by the metadata that every message of ours carries. A stream that was not closed has none: it
        is the one without, since the actions of one chat are made in order."""
        ours, has_more = await self._our_messages(place)
        unmarked = ""
        for message in sorted(ours, key=lambda message: str(message.get("ts"))):
            found = key_of(message)
            if found is None:
                unmarked = str(message.get("ts"))
            elif found == key:
                return port.Sent(str(message.get("ts")))
        if unmarked:
            return port.Sent(unmarked)
        return port.Unknown("the thread is too long to be looked through") if has_more else port.NotFound()

    async def _our_messages(self, place: port.Place) -> tuple[list[dict[str, Any]], bool]:
        """What we wrote in the thread, or in the channel outside of threads, and whether there is more than that.
        Raises what the SDK and aiohttp raise."""
        me = await self._who()
        method = "conversations.replies" if place.thread else "conversations.history"
        where = {"ts": place.thread} if place.thread else {}
        page = await self._call(method, channel=place.chat, limit=PAGE, include_all_metadata=True, **where)
        ours = [message for message in page.get("messages") or () if message.get("user") == me.user_id]
        return ours, bool(page.get("has_more"))

    async def quoted(self, message: port.MessageReceived, *, in_conversation: bool) -> tuple[port.Quoted, ...]:
        """The thread that the bot is called into."""
        place = message.place
        if in_conversation or place.kind == "private" or place.thread in ("", message.message_id):
            return ()
        try:
            return await read_thread(self._call, message, await self._who(), self._names)
        except (SlackApiError, *NO_ANSWER):  # who the bot is could not be asked
            return (UNREAD_THREAD,)

    async def _names(self, ids: Iterable[str]) -> dict[str, str]:
        """The names of people by their ids, where names are told and Slack has them."""
        asked = list(dict.fromkeys(filter(None, ids)))[:MAX_NAMES] if self._tells_names else []
        found = await asyncio.gather(*map(self._name_of, asked))
        return {one: name for one, given in zip(asked, found, strict=True) if (name := one_line_name(given))}

    async def _name_of(self, user_id: str) -> str:
        return await self._user_names.of(self._client(), user_id)

    async def _call(self, method: str, **body: Any) -> dict[str, Any]:
        """Raises what the SDK and aiohttp raise."""
        response = await self._client().api_call(method, json=body)
        return response.data if isinstance(response.data, dict) else {}

    def _client(self) -> AsyncWebClient:
        self._session()
        return self._web

    def _session(self) -> aiohttp.ClientSession:
        session = self._web.session
        if session is None or session.closed:
            timeout = aiohttp.ClientTimeout(total=self._answer_s, sock_connect=self._answer_s / 2)
            session = aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=256))
            self._web.session = session
        return session

    async def fetch(self, attachment: port.Attachment, *, max_bytes: int) -> bytes:
        """Files are private: the token goes along. It goes to Slack alone: a file may lie anywhere, and a redirect
        may lead anywhere."""
        if not self._is_slacks(attachment.ref):
            raise PlatformError(f"{attachment.name} is not on Slack's own servers", platform=self.name)
        self.check_size(attachment, max_bytes)
        headers = {"Authorization": f"Bearer {self._web.token}"}
        request = self._session().get(attachment.ref, headers=headers, allow_redirects=False)
        return await self.download(attachment, request, max_bytes)

    def _is_slacks(self, url: str) -> bool:
        file, api = urlsplit(url), urlsplit(self._web.base_url)
        if file.scheme != api.scheme:
            return False
        return file.netloc == api.netloc or (file.hostname or "").endswith(".slack.com")

    async def display_name(self, sender: port.Sender) -> str:
        return await self._name_of(sender.id) or sender.name

    # ── inwards ──────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self, inbox: port.Inbox) -> None:
        """A connection that has lived and that Slack wants replaced is replaced without a pause."""
        try:
            me = await self._who()
        except (SlackApiError, *NO_ANSWER) as exc:
            raise self._error(exc, BOT_TOKEN) from exc
        self._check_bot(me.bot_id)
        async with FlatTaskGroup() as group:  # what was begun is seen to its end, though the connection is lost
            ended = await self._stay_connected(inbox, me, OrderedTasks(group))
        raise ended

    async def _stay_connected(self, inbox: port.Inbox, me: BotAccount, taking: OrderedTasks) -> PlatformError:
        """Why there is no connection any more."""
        try:
            while await self._listen(inbox, me, taking):
                pass
        except PlatformError as exc:
            return exc
        except (SlackApiError, *NO_ANSWER) as exc:
            error = self._error(exc, APP_TOKEN)
            error.__cause__ = exc
            return error
        return PlatformError("the connection was lost", platform=self.name)

    async def _listen(self, inbox: port.Inbox, me: BotAccount, taking: OrderedTasks) -> bool:
        """One connection, to its end; whether Slack wants it replaced."""
        socket = OneSocket(self._app_token, self._client())
        try:
            await socket.open(self._answer_s)
            inbox.connected()
            while (envelope := await socket.next_envelope()) is not None:
                update = parse_envelope(envelope.type, envelope.payload, me)
                take = partial(self._take_envelope, envelope, update, inbox)
                confirm = partial(self._confirm_released, socket, envelope, update, inbox)
                soon = partial(self._confirm, socket, envelope) if is_answered_soon(envelope.type, update) else None
                taking.start(order_keys(update), take, then=confirm, when_late=soon)
            if socket.is_replaced and socket.is_short_lived:  # for the gateway's pause: the next one may fare the same
                raise PlatformError("Slack asked for another connection at once", platform=self.name)
            return socket.is_replaced
        finally:
            await socket.finish()

    async def _confirm_released(
        self, socket: OneSocket, envelope: SocketModeRequest, update: port.Update | None, inbox: port.Inbox
    ) -> None:
        """An envelope is confirmed once it was put and is no held part of a paste. One that is not confirmed comes
        again, also to the next process."""
        if update is not None:
            await inbox.until_released(update.update_id)
        await self._confirm(socket, envelope)

    async def _confirm(self, socket: OneSocket, envelope: SocketModeRequest) -> None:
        with contextlib.suppress(*NO_ANSWER):
            await socket.confirm(envelope)

    async def _take_envelope(self, envelope: SocketModeRequest, update: port.Update | None, inbox: port.Inbox) -> None:
        if envelope.type == "slash_commands":
            self._response_urls.keep(envelope.payload)
        if envelope.type == "slash_commands" and update is not None and not await inbox.serves(update.sender):
            await self._answer_stranger(update.place)
        if isinstance(update, port.MessageReceived) and is_bare_question(update) and await inbox.serves(update.sender):
            await self._tell_in_private(update.place, NO_QUESTION)
        elif isinstance(update, port.MessageReceived) and PERSON.search(update.text) and _may_be_answered(update):
            names = await self._names(PERSON.findall(update.text)) if await inbox.serves(update.sender) else {}
            await inbox.put(msgspec.structs.replace(update, text=with_names(update.text, names)))
        elif update is not None:
            await inbox.put(update)

    async def _answer_stranger(self, place: port.Place) -> None:
        """Slack offers the command to everyone and shows its line to the person who typed it alone. In a group a person
        who is not served gets no answer; in private they get a code."""
        if place.kind != "private":
            await self._tell_in_private(place, STRANGER)

    @property
    def _bot_name(self) -> str:
        return self._me.name if self._me else "me"

    async def _who(self) -> BotAccount:
        if self._me is None:
            answer, missing = await self._ask_who()
            if missing:
                log.warning("slack: the app lacks the scopes %s: add them, and install it again", ", ".join(missing))
            self._me = BotAccount(
                str(answer["user_id"]),
                str(answer.get("bot_id") or ""),
                str(answer.get("team_id") or ""),
                str(answer.get("user") or ""),
            )
            if self._me.name:  # Slack keeps what begins with "/" for itself, and has no slash commands in threads
                mark = f"@{self._me.name} /"
                self._stream = msgspec.structs.replace(STREAM, command_mark=mark)
                self._edit = msgspec.structs.replace(EDIT, command_mark=mark)
        return self._me

    def _check_bot(self, bot_id: str | None) -> None:
        """Slack takes a person's token too, and then speaks in that person's name. Raises `PlatformError`."""
        if not bot_id:
            raise PlatformError(f"{BOT_TOKEN} is a person's, not an app's", platform=self.name, permanent=True)

    async def check(self) -> str:
        token = BOT_TOKEN
        try:
            answer, missing = await self._ask_who()
            self._check_bot(answer.get("bot_id"))
            token = APP_TOKEN
            await self._client().apps_connections_open(app_token=self._app_token)
        except (SlackApiError, *NO_ANSWER) as exc:
            raise self._error(exc, token) from exc
        if not VITAL.isdisjoint(missing):
            lacks = f"the app lacks the scopes {', '.join(missing)}: add them, and install it again"
            raise PlatformError(f"{lacks}; so it cannot hear or answer people", platform=self.name, permanent=True)
        without = f", without the scopes {', '.join(missing)}: add them, and install the app again" if missing else ""
        return f"{answer.get('user')} in {answer.get('team')}{without}"

    async def _ask_who(self) -> tuple[dict[str, Any], list[str]]:
        """Whose token it is, and which scopes it lacks: Slack names those that it has beside each answer."""
        response = await self._client().api_call("auth.test", json={})
        told = {name.lower(): value for name, value in response.headers.items()}.get(SCOPES_HEADER)
        has = {scope.strip() for scope in told.split(",")} if told else set(SCOPES)
        data = response.data if isinstance(response.data, dict) else {}
        return data, [scope for scope in SCOPES if scope not in has]

    async def close(self) -> None:
        if self._web.session is not None:
            await self._web.session.close()

    def _error(self, error: Exception, token: str) -> PlatformError:
        """`token`: the one that the request was made with."""
        if not isinstance(error, SlackApiError):
            return PlatformError(no_connection(error), platform=self.name)
        code = code_of(error)
        if code in _BAD_TOKEN:
            given, begins = (self._web.token or "", "xoxb-") if token == BOT_TOKEN else (self._app_token, "xapp-")
            hint = "" if given.startswith(begins) else f": it does not begin with {begins}"
            return PlatformError(f"{token} was refused ({code}){hint}", platform=self.name, permanent=True)
        host = urlsplit(self._web.base_url).netloc
        return PlatformError(code or f"{host} answered {status_of(error)}, and not as Slack does", platform=self.name)


def _may_be_answered(message: port.MessageReceived) -> bool:
    """Whether it is addressed to the bot, or stands in a thread that the bot may have part in."""
    return message.addressed or message.place.thread != message.message_id


def _sent(answer: dict[str, Any]) -> port.AnyReply:
    return port.Sent(str(answer["ts"])) if answer.get("ts") else port.Unknown("an answer without a message")


def make(config: Config) -> SlackPlatform:
    """The app of this config. Raises `ConfigError`."""
    settings = config.platforms.get("slack", SlackSettings)
    if settings is None:
        raise ConfigError("is missing", key="platforms.slack")
    return SlackPlatform(
        config.require_secret(settings.token_env, "platforms.slack.token_env"),
        config.require_secret(settings.app_token_env, "platforms.slack.app_token_env"),
        base_url=settings.base_url,
        tells_names=settings.names != "none",
    )
