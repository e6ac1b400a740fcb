"""What Telegram's errors mean for the planner: exceptions of the client library in, replies out.

Every error reply of the server is certain. What is not: a time-out after the request was written, a cut connection, an
answer by a gateway in between (G80).
"""

from __future__ import annotations

import json
from typing import Any, Literal

import httpx
import msgspec
from telegram.error import BadRequest, ChatMigrated, Conflict, Forbidden, InvalidToken, TelegramError
from telegram.request import HTTPXRequest

from tailrace.delivery import port

DEFAULT_FLOOD_S = 5.0  # where the server says "too many requests" and not for how long
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)

# Descriptions in lower case, as the Bot API server and the servers behind it word them; it has no other codes.
_MARKUP = ("can't parse", "entity_", "entities_too_long", "entity beginning", "message text is empty")
_TOO_LONG = ("message is too long", "message_too_long", "text is too long")
_GONE: tuple[tuple[Literal["message", "thread", "chat"], tuple[str, ...]], ...] = (
    ("thread", ("message thread not found", "topic_closed", "topic_deleted", "topic closed", "topic_id_invalid")),
    ("message", ("message to edit not found", "message can't be edited", "message_id_invalid")),
    (
        "chat",
        (
            "chat not found",
            "bot was blocked",
            "bot was kicked",
            "user is deactivated",
            "is not a member",
            "group chat was deactivated",
            "peer_id_invalid",
        ),
    ),
)


class Flooded(TelegramError):
    """Too many requests. The library's own error for it warns of its own future whenever it is made."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"too many requests; retry in {retry_after_s:g} s")
        self.retry_after_s = retry_after_s


class NotOfBotApi(TelegramError):
    """The answer is no JSON object, so no Bot API server gave it."""

    def __init__(self) -> None:
        super().__init__("an answer that is not the Bot API's")


class _Parameters(msgspec.Struct):
    retry_after: float = DEFAULT_FLOOD_S


class _TooMany(msgspec.Struct):
    parameters: _Parameters = msgspec.field(default_factory=_Parameters)


class Connections(HTTPXRequest):
    """The library's connections. Raises `Flooded` where the server floods."""

    async def do_request(self, *args: Any, **options: Any) -> tuple[int, bytes]:
        status, payload = await super().do_request(*args, **options)
        if status != 429:
            return status, payload
        try:
            raise Flooded(msgspec.json.decode(payload, type=_TooMany).parameters.retry_after)
        except msgspec.DecodeError:
            raise Flooded(DEFAULT_FLOOD_S) from None

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        """As the library does it, but for its log, which would have a stack trace and the whole body. Raises
        `NotOfBotApi`."""
        try:
            answer = json.loads(payload.decode("utf-8", "replace"))
        except ValueError as exc:
            raise NotOfBotApi from exc
        if not isinstance(answer, dict):
            raise NotOfBotApi
        return answer


def is_of_another(error: TelegramError) -> bool:
    """Whether something else than a Bot API server has answered: a proxy, a captive portal, a web server."""
    return isinstance(error, NotOfBotApi) or isinstance(error.__cause__, NotOfBotApi)


def reply_to(error: TelegramError) -> port.AnyReply:
    """What became of the request that ended so."""
    said = error.message.lower()
    match error:
        case Flooded():
            return port.Flood(error.retry_after_s)
        case BadRequest() | Forbidden() | InvalidToken() if is_of_another(error):
            return port.Failed(status_of(error))  # the page stands in the way: nothing has reached Telegram
        case _ if is_of_another(error):
            return port.Unknown(status_of(error))
        case ChatMigrated():
            return port.Failed("the group has become a supergroup")
        case BadRequest() | Forbidden():
            return _refusal(said, error.message)
        case InvalidToken() if "unauthorized" in said:
            return port.Failed("the bot's token was revoked: set a new one and restart", needs_operator=True)
        case InvalidToken():
            return port.Refused("the bot's token is not valid, or the server does not know the method")
        case Conflict():
            return port.Failed(error.message)
        case _ if isinstance(error.__cause__, _UNSENT):
            return port.Failed(f"no connection: {str(error.__cause__) or type(error.__cause__).__name__}")
        case _ if error.__cause__ is None:  # an error that the server itself has worded
            return port.Failed(error.message)
        case _:
            return port.Unknown(_without_class(error.message))


def _without_class(message: str) -> str:
    """What the library says of a broken connection, without the name of a class: some have no more than that name."""
    name, _, said = message.partition(": ")
    return said.rstrip(".") if name.startswith("httpx.") and said else message


def status_of(error: TelegramError) -> str:
    """What the library says of an answer by another, without the body: "Bad Gateway (502)"."""
    return error.message.partition(". Parsing the server response")[0]


def _refusal(said: str, reason: str) -> port.AnyReply:
    if "not modified" in said:
        return port.NotModified()
    if any(words in said for words in _TOO_LONG):
        return port.TooLong()
    for what, wordings in _GONE:
        if any(words in said for words in wordings):
            return port.Gone(what)
    if any(words in said for words in _MARKUP):
        return port.MarkupRejected()
    return port.Refused(reason)
