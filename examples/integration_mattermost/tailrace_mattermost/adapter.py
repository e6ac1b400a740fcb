"""Mattermost through its REST API v4 and its web socket (https://api.mattermost.com).

In: `posted` events of the web socket. A reconnection names the connection and the next sequence number, and the server
sends again what was not taken; this holds while the server keeps the connection, which is some seconds.
Out: posts, which are edited while an answer grows. Each post has our key in its `props`: a send without an answer is
looked up there. In a channel the bot answers in a thread below the question.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any, Final

import aiohttp
import msgspec

from tailrace.config.load import Config
from tailrace.delivery import port
from tailrace.errors import ConfigError, PlatformError, TailraceError
from tailrace.gateway.base import ANSWER_S, BasePlatform
from tailrace.gateway.connection_errors import NO_ANSWER, no_connection, reply_without_answer
from tailrace_mattermost import MattermostSettings

NAME: Final = "mattermost"
KEY: Final = "tailrace_key"  # in the props of a post
LOOKED_UP: Final = 200  # posts of a channel, the most that one page has
HEARTBEAT_S: Final = 30.0
DIRECT: Final = "D"  # the type of a channel of two people
CAPABILITIES: Final = port.Capabilities(
    mode="edit",
    limit=16_383,
    edits=True,
    deletes=True,
    command_mark="!",  # the client keeps "/" for commands of the server
    resend="look_up",
    windows=(port.Window(5, 1.0),),  # the server's own limit is 10 requests a second of one user
    typing_s=5.0,
)
_MARK = re.compile(r"[\\`*_~#|\[\]<>]")


class File(msgspec.Struct):
    id: str
    name: str = ""
    mime_type: str = ""
    size: int = 0


class Metadata(msgspec.Struct):
    files: list[File] = []


class Post(msgspec.Struct):
    id: str
    channel_id: str
    user_id: str
    message: str = ""
    root_id: str = ""
    type: str = ""  # empty: a person's; `system_…`: the server's
    props: dict[str, Any] = {}
    metadata: Metadata = msgspec.field(default_factory=Metadata)


class Posts(msgspec.Struct):
    posts: dict[str, Post] = {}


class User(msgspec.Struct):
    id: str
    username: str


class EventData(msgspec.Struct):
    connection_id: str = ""
    post: str = ""  # JSON within JSON
    channel_type: str = ""
    mentions: str = "[]"
    sender_name: str = ""


class Frame(msgspec.Struct):
    """An event with its sequence number, or the answer (`seq_reply`) to what was sent."""

    event: str = ""
    seq: int = 0
    data: EventData = msgspec.field(default_factory=EventData)
    status: str = ""
    seq_reply: int = 0


class Problem(msgspec.Struct):
    id: str = ""
    message: str = ""


class MattermostPlatform(BasePlatform):
    name = NAME
    same_everywhere = CAPABILITIES

    def __init__(self, url: str, token: str, *, answer_s: float = ANSWER_S) -> None:
        self._url, self._token, self._answer_s = url.rstrip("/"), token, answer_s
        self._opened: aiohttp.ClientSession | None = None
        self._connection, self._next_seq = "", 0  # of the web socket: what a reconnection goes on with

    @property
    def _session(self) -> aiohttp.ClientSession:
        if self._opened is None:
            headers = {"Authorization": f"Bearer {self._token}"}
            timeout = aiohttp.ClientTimeout(total=self._answer_s)
            self._opened = aiohttp.ClientSession(f"{self._url}/api/v4/", headers=headers, timeout=timeout)
        return self._opened

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()

    # ── out ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def perform(self, place: port.Place, action: port.AnyAction) -> port.AnyReply:
        try:
            match action:
                case port.Send(key=key, text=text, markup=markup):
                    body = {"channel_id": place.chat, "root_id": place.thread, "props": {KEY: key}}
                    return await self._ask("POST", "posts", body | {"message": _shown(text, markup=markup)})
                case port.Edit(message_id=post, text=text, markup=markup):
                    return await self._ask("PUT", f"posts/{post}/patch", {"message": _shown(text, markup=markup)})
                case port.Delete(message_id=post):
                    reply = await self._ask("DELETE", f"posts/{post}")
                    return port.Accepted() if isinstance(reply, port.Gone) else reply
                case port.LookUp(key=key):
                    return await self._look_up(place, key)
                case port.Typing():
                    return await self._ask("POST", "users/me/typing", {"channel_id": place.chat})
                case _:
                    return await super().perform(place, action)
        except NO_ANSWER as exc:
            return reply_without_answer(exc)

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> port.AnyReply:
        async with self._session.request(method, path, json=body) as response:
            content = await response.read()
            if response.status == HTTPStatus.CREATED:
                return port.Sent(msgspec.json.decode(content, type=Post).id)
            return port.Accepted() if response.ok else _refusal(response, content)

    async def _look_up(self, place: port.Place, key: str) -> port.AnyReply:
        """So many posts do not come between a send and its look-up: one that is not among them was not made."""
        query = {"per_page": str(LOOKED_UP)}
        async with self._session.get(f"channels/{place.chat}/posts", params=query) as response:
            content = await response.read()
            if not response.ok:
                return _refusal(response, content)
        found = [post for post in msgspec.json.decode(content, type=Posts).posts.values() if post.props.get(KEY) == key]
        return port.Sent(found[0].id) if found else port.NotFound()

    # ── in ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def check(self) -> str:
        return f"@{(await self._me()).username} at {self._url}"

    async def run(self, inbox: port.Inbox) -> None:
        me = await self._me()
        query = {"connection_id": self._connection, "sequence_number": str(self._next_seq)} if self._connection else {}
        timeout = aiohttp.ClientWSTimeout(ws_close=self._answer_s)
        try:
            async with self._session.ws_connect(
                "websocket", params=query, heartbeat=HEARTBEAT_S, timeout=timeout
            ) as socket:
                challenge = {"seq": 1, "action": "authentication_challenge", "data": {"token": self._token}}
                await socket.send_json(challenge)
                async for message in socket:
                    await self._take(msgspec.json.decode(message.data, type=Frame), me, inbox)
        except NO_ANSWER as exc:
            raise PlatformError(no_connection(exc), platform=NAME) from exc
        except msgspec.MsgspecError as exc:
            raise PlatformError(f"the server sent a frame that cannot be read: {exc}", platform=NAME) from exc
        raise PlatformError("the server closed the connection", platform=NAME)

    async def _take(self, frame: Frame, me: User, inbox: port.Inbox) -> None:
        """An event counts as taken when the inbox has it."""
        if frame.seq_reply:
            inbox.connected()
            return
        if frame.event == "hello" and frame.data.connection_id != self._connection:
            self._connection = frame.data.connection_id
        if frame.event == "posted" and (update := received(frame.data, me)) is not None:
            try:
                await inbox.put(update)
            except TailraceError as exc:
                raise PlatformError(f"a message was not taken: {exc}", platform=NAME) from exc
        self._next_seq = frame.seq + 1

    async def _me(self) -> User:
        try:
            async with self._session.get("users/me") as response:
                content = await response.read()
                if response.status == HTTPStatus.UNAUTHORIZED:
                    raise PlatformError("the server refused the token (401)", platform=NAME, permanent=True)
                if not response.ok:
                    raise PlatformError(f"the server answered {response.status}", platform=NAME)
                return msgspec.json.decode(content, type=User)
        except NO_ANSWER as exc:
            raise PlatformError(no_connection(exc), platform=NAME) from exc
        except msgspec.MsgspecError as exc:
            raise PlatformError("there is no Mattermost at platforms.mattermost.url", platform=NAME) from exc

    async def fetch(self, attachment: port.Attachment, *, max_bytes: int) -> bytes:
        self.check_size(attachment, max_bytes)
        return await self.download(attachment, self._session.get(f"files/{attachment.ref}"), max_bytes)


def received(data: EventData, me: User) -> port.MessageReceived | None:
    """What a person wrote. None for our own posts, those of the server and those of other programs."""
    post = msgspec.json.decode(data.post, type=Post)
    if post.user_id == me.id or post.type or post.props.get("from_bot") or post.props.get("from_webhook"):
        return None
    private = data.channel_type == DIRECT
    files = [port.Attachment(file.id, file.name, file.mime_type, file.size) for file in post.metadata.files]
    return port.MessageReceived(
        post.id,
        port.Place(
            NAME,
            post.channel_id,
            thread=post.root_id or ("" if private else post.id),
            kind="private" if private else "group",
        ),
        port.Sender(post.user_id, data.sender_name.removeprefix("@")),
        text=re.sub(rf"(?<!\S)@{re.escape(me.username)}\b[ ,:]*", "", post.message).strip(),
        attachments=tuple(files),
        addressed=private or me.id in msgspec.json.decode(data.mentions, type=list[str]),
        at_limit=len(post.message) >= CAPABILITIES.limit,
        message_id=post.id,
    )


def _shown(text: str, *, markup: bool) -> str:
    return text if markup else _MARK.sub(r"\\\g<0>", text)


def _refusal(response: aiohttp.ClientResponse, content: bytes) -> port.AnyReply:
    """The server's own errors have an id, `….app_error`; another body is a proxy's."""
    try:
        problem = msgspec.json.decode(content, type=Problem)
    except msgspec.MsgspecError:
        problem = Problem()
    reason = problem.message or f"the server answered {response.status}"
    match response.status:
        case HTTPStatus.TOO_MANY_REQUESTS:
            return port.Flood(float(response.headers.get("X-Ratelimit-Reset") or 1))
        case HTTPStatus.UNAUTHORIZED:
            return port.Failed(reason, needs_operator=True)
        case HTTPStatus.NOT_FOUND:
            return port.Gone("message" if response.url.name != "posts" else "chat")
        case HTTPStatus.BAD_REQUEST if "message_length" in problem.id:
            return port.TooLong()
        case HTTPStatus.BAD_REQUEST if "root_id" in problem.id:
            return port.Gone("thread")
        case status if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return port.Unknown(reason)
        case _:
            return port.Refused(reason)


def make(config: Config) -> MattermostPlatform:
    """The bot of this config. Raises `ConfigError`."""
    settings = config.platforms.get(NAME, MattermostSettings)
    if settings is None or settings.url is None:
        raise ConfigError("is missing", key=f"platforms.{NAME}.url")
    return MattermostPlatform(settings.url, config.require_secret(settings.token_env, f"platforms.{NAME}.token_env"))
