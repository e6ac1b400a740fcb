"""Discord's REST API for what is sent: one request, one answer, and what the answer means for the planner.

discord.py's own REST client sleeps through rate limits and tries again by itself. Here the planner waits and decides,
so a 429 is an answer (`Flood`), and the headers of every other answer say how long to pause.
"""

from __future__ import annotations

import logging
from typing import Any

import aiohttp
import msgspec

from tailrace.delivery import port
from tailrace.gateway.base import UPLOAD_S

log = logging.getLogger("tailrace.integrations.discord")

API_URL = "https://discord.com/api/v10"
DEFAULT_FLOOD_S = 5.0  # where a 429 comes from the proxy in front and names no time
_USER_AGENT = "DiscordBot (https://tailrace.example, 1)"  # the form that Discord asks for

# JSON error codes of Discord's "Opcodes and Status Codes".
UNKNOWN_MESSAGE = 10008
_UNKNOWN_CHANNEL = 10003
THREAD_ARCHIVED = 50083
_THREAD_CODES = frozenset({THREAD_ARCHIVED, 160005})  # cannot be written to; locked
_CHAT_CODES = frozenset({10004, 50001, 50007, 50008})  # no such server; no access; no messages to that person; a forum
_INVALID_BODY = 50035
_TOO_OLD_TO_EDIT = 30046  # too many edits of a message that is older than an hour; Discord does not say for how long
_TOO_LONG = "BASE_TYPE_MAX_LENGTH"


class RestBody(msgspec.Struct):
    """A message or an account (`id`, `username`), or an error. `errors` says which field, nested as the request was."""

    id: str = ""
    username: str = "?"
    code: int = 0
    message: str = ""
    retry_after: float | None = None
    errors: dict[str, Any] = {}
    flags: int | None = None


class RestResponse(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def decoded(self) -> RestBody | None:
        """None where it is not Discord itself that answers."""
        try:
            return msgspec.json.decode(self.body, type=RestBody)
        except msgspec.DecodeError:
            return None

    @property
    def pause_s(self) -> float:
        """How long the next request must wait, by the headers of this one."""
        if self.headers.get("x-ratelimit-remaining") != "0":
            return 0.0
        return _seconds(self.headers.get("x-ratelimit-reset-after")) or 0.0


class RestClient:
    """Connections to the REST API. Made without I/O; the first request connects."""

    def __init__(self, token: str, base_url: str | None = None, *, answer_s: float) -> None:
        self.base_url = (base_url or API_URL).rstrip("/")
        self._headers = {"Authorization": f"Bot {token}", "User-Agent": _USER_AGENT}
        self.timeout = aiohttp.ClientTimeout(total=answer_s, sock_connect=answer_s / 2)
        self._session: aiohttp.ClientSession | None = None

    async def request(
        self, method: str, path: str, body: object = None, file: tuple[str, str, bytes] | None = None
    ) -> RestResponse:
        """`file` is a name, a type and the content. Raises what aiohttp raises."""
        data: bytes | aiohttp.FormData | None = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": "application/json"} if data is not None else {}
        timeout = self.timeout
        if file is not None:
            name, media_type, content = file
            form = aiohttp.FormData()
            form.add_field("payload_json", msgspec.json.encode(body).decode(), content_type="application/json")
            form.add_field("files[0]", content, filename=name, content_type=media_type)
            data, headers = form, {}
            timeout = aiohttp.ClientTimeout(total=UPLOAD_S, sock_connect=self.timeout.sock_connect)
        url = f"{self.base_url}{path}"
        async with self._open().request(method, url, data=data, headers=headers, timeout=timeout) as response:
            lower = {name.lower(): value for name, value in response.headers.items()}
            return RestResponse(response.status, lower, await response.read())

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                headers=self._headers, timeout=self.timeout, connector=aiohttp.TCPConnector(limit=256)
            )
        return self._session


def reply_to(answer: RestResponse, place: port.Place) -> port.AnyReply:
    """What the answer to one action means."""
    if answer.ok:
        return port.Accepted(answer.pause_s)
    error = answer.decoded
    if answer.status == 429 and (error is None or error.code != _TOO_OLD_TO_EDIT):
        told = error.retry_after if error is not None else None
        return port.Flood(told or _seconds(answer.headers.get("retry-after")) or DEFAULT_FLOOD_S)
    if answer.status >= 500 or error is None:
        return port.Unknown(f"HTTP {answer.status}")
    if answer.status == 401:
        return port.Failed("the bot's token was reset: set the new one and restart", needs_operator=True)
    return _refusal(error, answer.status, place)


def sent(answer: RestResponse, place: port.Place) -> port.AnyReply:
    """The same for an action that makes a message."""
    if not answer.ok:
        return reply_to(answer, place)
    created = answer.decoded
    return (
        port.Sent(created.id, answer.pause_s) if created and created.id else port.Unknown("an answer without a message")
    )


def _refusal(error: RestBody, status: int, place: port.Place) -> port.AnyReply:
    if error.code == UNKNOWN_MESSAGE:
        return port.Gone("message")
    told = f"{error.message or 'no reason given'} ({error.code or status})"
    if error.code == _UNKNOWN_CHANNEL or error.code in _THREAD_CODES | _CHAT_CODES:
        log.warning("%s: nothing can be written there: %s", place.key, told)
        return port.Gone("thread" if place.thread and error.code not in _CHAT_CODES else "chat")
    if error.code == _INVALID_BODY and _TOO_LONG in str(error.errors.get("content")):
        return port.TooLong()
    return port.Refused(told)


def _seconds(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
