"""WhatsApp through Meta's Cloud API: a signed webhook in, whole answers out, paced to what one person may be sent.

Messages cannot be edited there, so nothing streams: the question is marked as read, the typing indicator shows, the
answer comes whole. `inbound` reads the webhook. Never waits, retries or splits.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Callable
from typing import Any

import aiohttp
import msgspec

from tailrace.config.load import Config
from tailrace.delivery import port
from tailrace.delivery.text.markup import Flavour, marked_text
from tailrace.errors import ConfigError, PlatformError, TailraceError
from tailrace.gateway.base import ANSWER_S, UPLOAD_S, BasePlatform
from tailrace.gateway.connection_errors import NO_ANSWER, no_connection, reply_without_answer
from tailrace.integrations.whatsapp import WhatsAppSettings, inbound
from tailrace.integrations.whatsapp.inbound import RecentTexts
from tailrace.integrations.whatsapp.meta_errors import (
    NO_SUCH_THING,
    TOKEN_CODES,
    Refusal,
    Trouble,
    UnclearResponse,
    reply_to,
)
from tailrace.integrations.whatsapp.statuses import MessagesTold
from tailrace.values.validation_words import decoding_problem

log = logging.getLogger("tailrace.integrations.whatsapp")
API_URL = "https://graph.facebook.com"
API_VERSION = "v24.0"
HOOK_PATH = "/platforms/whatsapp/webhook"
# One message in 6 s to the same person; a burst borrows from the time after it: ten at once, then ten a minute later.
# A second in between keeps the parts of an answer in order.
CAPABILITIES = port.Capabilities(
    limit=inbound.MAX_TEXT_CHARS,
    reply_window=True,
    max_file_bytes=16 << 20,
    windows=(port.Window(1, 1.0), port.Window(10, 60.0)),
    typing_s=25.0,
)
WARNING_S = 60.0  # between two warnings of the same
_NOT_SIGNED = "a call of WhatsApp's webhook has no signature: it is not Meta's, or a proxy drops X-Hub-Signature-256"
_SIGNED_BY_OTHERS = "a call of WhatsApp's webhook is not signed with app_secret_env: is that secret this app's?"
_NOT_VERIFIED = "WhatsApp's webhook was asked for with another verify token than verify_token_env holds"
STATUS_S = 10.0  # WhatsApp tells the webhook of a message that it took within seconds
MAX_IMAGE_BYTES = 5 << 20
_IMAGES = frozenset({"image/jpeg", "image/png"})

_MARKS = Flavour(bold="*", italic="_", strike="~", code="`", block="```")


def whatsapp_markup(text: str) -> str:
    return marked_text(text, _MARKS)


class _SentMessage(msgspec.Struct):
    id: str


class _Result(msgspec.Struct):
    """The body of an answer: to a message, an upload, a question for a file or for the number; or an error."""

    messages: list[_SentMessage] = []
    id: str = ""
    url: str = ""
    file_size: int = 0
    display_phone_number: str = ""
    verified_name: str = ""
    error: Trouble | None = None


class WhatsAppPlatform(BasePlatform):
    """One business number."""

    name = "whatsapp"
    same_everywhere = CAPABILITIES
    hook_path = HOOK_PATH

    def __init__(
        self,
        token: str,
        *,
        phone_number_id: str,
        app_secret: str,
        verify_token: str,
        base_url: str | None = None,
        answer_s: float = ANSWER_S,
        time_of_day: Callable[[], float] = time.time,
    ) -> None:
        """`base_url` is without the API's version; `answer_s` the deadline of one request."""
        self._token, self._number = token, phone_number_id
        self._app_secret, self._verify_token = app_secret, verify_token
        self._warned_at: dict[str, float] = {}
        self._base_url = (base_url or API_URL).rstrip("/")
        self._timeout = aiohttp.ClientTimeout(total=answer_s, connect=min(5.0, answer_s))
        self._time_of_day = time_of_day
        self._started_at = time_of_day()
        self._http: aiohttp.ClientSession | None = None
        self._told = MessagesTold()
        self._recent = RecentTexts()
        self._token_refusal: asyncio.Future[str] | None = None  # while `run` waits: why the token is no longer good

    # ── outwards ─────────────────────────────────────────────────────────────────────────────────────────────

    async def perform(self, place: port.Place, action: port.AnyAction) -> port.AnyReply:
        reply = await self._attempt(place, action)
        if isinstance(reply, port.Unknown) and isinstance(action, port.Send | port.Upload):
            reply = await self._settled(place, action.key, reply)
        if isinstance(reply, port.Sent) and isinstance(action, port.Send):
            self._recent.add(place.chat, reply.message_id, action.text, is_ours=True)
        return reply

    async def _attempt(self, place: port.Place, action: port.AnyAction) -> port.AnyReply:
        try:
            match action:
                case port.Send():
                    return await self._send(place, action)
                case port.Upload():
                    return await self._upload(place, action)
                case port.Typing():
                    return await self._show_typing(place)
                case _:
                    return port.Refused(f"WhatsApp has no {type(action).__name__}")
        except Refusal as refused:
            if refused.trouble.code in TOKEN_CODES and self._token_refusal and not self._token_refusal.done():
                self._token_refusal.set_result(str(refused))
            return reply_to(refused, place)
        except UnclearResponse as exc:
            return port.Unknown(str(exc))
        except NO_ANSWER as exc:
            return reply_without_answer(exc)

    async def _settled(self, place: port.Place, key: str, unknown: port.Unknown) -> port.AnyReply:
        """What became of a send without a reply: WhatsApp tells the webhook of each message (G80)."""
        if outcome := await self._told.outcome_of(key, within_s=STATUS_S):
            return outcome
        log.warning("whether a message to %s was sent is not known: %s", place.chat, unknown.reason)
        return port.Unknown(unknown.reason, unlikely=self._told.has_any)

    async def _send(self, place: port.Place, action: port.Send) -> port.AnyReply:
        text = whatsapp_markup(action.text) if action.markup else action.text
        if len(text) > inbound.MAX_TEXT_CHARS:
            return port.TooLong()
        message = {"type": "text", "text": {"body": text, "preview_url": False}}
        return await self._send_message(place, action.key, message)

    async def _upload(self, place: port.Place, file: port.Upload) -> port.AnyReply:
        """The content first, then the message that shows it. Only the second can be in doubt: content that no message
        shows is deleted by Meta."""
        media_type = _uploaded_as(file)
        form = aiohttp.FormData({"messaging_product": "whatsapp", "type": media_type})
        form.add_field("file", file.data, filename=file.name, content_type=media_type)
        timeout = aiohttp.ClientTimeout(total=UPLOAD_S, connect=self._timeout.connect)
        try:
            async with self._session().post(self._url(f"{self._number}/media"), data=form, timeout=timeout) as response:
                media = await _decode_response(response)
        except (UnclearResponse, *NO_ANSWER) as exc:
            return port.Failed(str(exc) or type(exc).__name__)
        message: dict[str, Any] = {"type": "document", "document": {"id": media.id, "filename": file.name}}
        if media_type in _IMAGES and len(file.data) <= MAX_IMAGE_BYTES:
            message = {"type": "image", "image": {"id": media.id}}
        return await self._send_message(place, file.key, message)

    async def _send_message(self, place: port.Place, key: str, message: dict[str, Any]) -> port.AnyReply:
        # The id of a person whose number is not known (US.1349…) has a field of its own.
        address = "to" if place.chat.isdecimal() else "recipient"
        asked = {"recipient_type": "individual", address: place.chat, "biz_opaque_callback_data": key, **message}
        result = await self._post(asked)
        if not result.messages:
            raise UnclearResponse("no message id in the answer")
        return port.Sent(result.messages[0].id)

    async def _show_typing(self, place: port.Place) -> port.AnyReply:
        """One request does both: the question is marked as read, and the indicator shows until the answer comes."""
        if question := place.extra.get("message"):
            await self._post({"status": "read", "message_id": question, "typing_indicator": {"type": "text"}})
        return port.Accepted()

    async def _post(self, body: dict[str, Any]) -> _Result:
        asked = {"messaging_product": "whatsapp", **body}
        async with self._session().post(self._url(f"{self._number}/messages"), json=asked) as response:
            return await _decode_response(response)

    def _url(self, path: str) -> str:
        return f"{self._base_url}/{API_VERSION}/{path}"

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            headers = {"Authorization": f"Bearer {self._token}"}
            self._http = aiohttp.ClientSession(headers=headers, timeout=self._timeout)
        return self._http

    # ── inwards ──────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self, inbox: port.Inbox) -> None:
        """There is no connection to keep: Meta calls the webhook. The number is asked for: a wrong token is to be said
        at the start and not with the first answer. A token that is refused later ends it, so that the operator sees
        it; the webhook still takes messages. Raises `PlatformError`."""
        log.info("the number is %s", await self.check())
        self._token_refusal = asyncio.get_running_loop().create_future()
        inbox.connected()
        raise PlatformError(await self._token_refusal, platform=self.name, permanent=True)

    async def hook(self, request: port.HookRequest, inbox: port.Inbox) -> port.HookAnswer:
        if request.method == "GET":
            return self._verify(request)
        signature = request.headers.get(inbound.SIGNATURE_HEADER, "")
        if not inbound.is_signed(request.body, signature, self._app_secret):
            self._warn(_SIGNED_BY_OTHERS if signature else _NOT_SIGNED)
            return port.HookAnswer(401)
        try:
            notification = inbound.NOTIFICATIONS.decode(request.body)
        except inbound.MAKES_NO_SENSE as exc:
            log.warning("a signed webhook call could not be read: %s", decoding_problem(exc))
            return port.HookAnswer(400)
        statuses = inbound.statuses_in(notification, self._number)
        self._told.add(inbound.told_of(statuses))
        for status in statuses:
            for reason in status.failures:
                log.warning("a message to %s was not delivered: %s", status.recipient, reason)
        now_s = self._time_of_day()
        try:
            for key, lost in inbound.lost(statuses):
                if not self._told.is_awaited(key):  # else the send that waits for it reports it
                    await inbox.put(lost)
            started_s = self._started_at
            messages = [*inbound.received(notification, self._number, now_s, self._recent, started_s=started_s)]
            for message in messages:
                await inbox.put(message)
            for message in messages:  # a held part that a crash loses comes again: Meta has no answer yet
                await inbox.until_released(message.update_id)
        except TailraceError:
            return port.HookAnswer(503)  # Meta delivers it again
        return port.HookAnswer()

    def _verify(self, request: port.HookRequest) -> port.HookAnswer:
        """Meta asks once, when the address is entered, whether it is ours."""
        query = request.query
        if query.get("hub.mode") != "subscribe":
            return port.HookAnswer(403)  # a browser or a probe
        given = query.get("hub.verify_token", "").encode("utf-8", "replace")
        if not hmac.compare_digest(given, self._verify_token.encode()):
            self._warn(_NOT_VERIFIED)
            return port.HookAnswer(403)
        return port.HookAnswer(body=query.get("hub.challenge", "").encode("utf-8", "replace"))

    def _warn(self, text: str) -> None:
        """The address is public: the log has at most one line of each kind in `WARNING_S`."""
        now = asyncio.get_running_loop().time()
        if now >= self._warned_at.get(text, float("-inf")) + WARNING_S:
            self._warned_at[text] = now
            log.warning("%s", text)

    async def fetch(self, attachment: port.Attachment, *, max_bytes: int) -> bytes:
        media = await self._get(self._url(attachment.ref))
        if media.file_size > max_bytes:
            raise self.too_large(attachment, max_bytes)
        if not media.url.startswith(("https://", f"{self._base_url}/")):
            raise PlatformError(f"{attachment.name} is not offered over https", platform=self.name)
        return await self.download(attachment, self._session().get(media.url), max_bytes)

    async def _get(self, url: str) -> _Result:
        """Raises `PlatformError`."""
        try:
            async with self._session().get(url) as response:
                return await _decode_response(response)
        except Refusal as exc:
            permanent = exc.status in (401, 403) or exc.trouble.code in (0, 10, 190)
            raise PlatformError(str(exc), platform=self.name, permanent=permanent) from exc
        except UnclearResponse as exc:
            raise PlatformError(str(exc), platform=self.name) from exc
        except NO_ANSWER as exc:
            raise PlatformError(no_connection(exc), platform=self.name) from exc

    async def check(self) -> str:
        fields = "display_phone_number,verified_name"
        try:
            number = await self._get(self._url(f"{self._number}?fields={fields}"))
        except PlatformError as exc:
            if isinstance(exc.__cause__, Refusal) and exc.__cause__.trouble.code == NO_SUCH_THING:
                why = f"no number has the phone_number_id {self._number}, or the token is not for it: {exc.__cause__}"
                raise PlatformError(why, platform=self.name) from exc
            raise
        return f"{number.display_phone_number} ({number.verified_name})"

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()


def _uploaded_as(file: port.Upload) -> str:
    """Meta accepts few media types, and text/plain alone of the texts; the file may have any name."""
    media_type = file.media_type.partition(";")[0].strip().lower()
    if media_type.startswith(("image/", "audio/", "video/", "application/pdf")):
        return media_type
    try:
        is_text = b"\0" not in file.data and bool(file.data.decode())
    except UnicodeDecodeError:
        is_text = False
    return "text/plain" if is_text else media_type


async def _decode_response(response: aiohttp.ClientResponse) -> _Result:
    """The body of a good answer. Raises `Refusal` for an error of Meta's own, `UnclearResponse` for anything else."""
    try:
        result = msgspec.json.decode(await response.read(), type=_Result)
    except msgspec.DecodeError:
        result = None
    if result is not None and response.status < 300:
        return result
    if result is None or result.error is None:
        raise UnclearResponse(f"status {response.status}, and no answer of WhatsApp's")
    raise Refusal(result.error, response.status)


def make(config: Config) -> WhatsAppPlatform:
    """The number of this config. Raises `ConfigError`."""
    settings = config.platforms.get("whatsapp", WhatsAppSettings)
    if settings is None or settings.phone_number_id is None:
        raise ConfigError("is missing", key="platforms.whatsapp.phone_number_id")
    return WhatsAppPlatform(
        config.require_secret(settings.token_env, "platforms.whatsapp.token_env"),
        phone_number_id=settings.phone_number_id,
        app_secret=config.require_secret(settings.app_secret_env, "platforms.whatsapp.app_secret_env"),
        verify_token=config.require_secret(settings.verify_token_env, "platforms.whatsapp.verify_token_env"),
        base_url=settings.base_url,
    )
