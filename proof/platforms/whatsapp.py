"""WhatsApp's Cloud API on a loopback port: what the number sends becomes what people see, what people write becomes
signed calls of the webhook.

    async with FakeWhatsApp() as whatsapp:
        ada = whatsapp.person("15550001", "Ada")
        whatsapp.webhook_url = "http://127.0.0.1:8642/platforms/whatsapp/webhook"
        assert await whatsapp.write(ada, "hello") == 200
        await whatsapp.until(lambda: ada.texts)

The adapter's `base_url` is `whatsapp.url`; its token, secrets and number are attributes here.
"""

# ruff: noqa: S105 - these secrets open nothing but the fake

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import time
from collections.abc import Callable
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from proof.platforms.budgets import Budget, Meter
from tailrace.testing.platforms.loopback import Fault, LoopbackFake, json_fault

MAX_TEXT_CHARS = 4096
_OFFICE = "application/vnd.openxmlformats-officedocument"
# What may be uploaded; everything else is refused.
MEDIA_TYPES = tuple(
    f"""
    audio/aac audio/mp4 audio/mpeg audio/amr audio/ogg audio/opus application/vnd.ms-powerpoint application/msword
    {_OFFICE}.wordprocessingml.document {_OFFICE}.presentationml.presentation {_OFFICE}.spreadsheetml.sheet
    application/pdf text/plain application/vnd.ms-excel image/jpeg image/png image/webp video/mp4 video/3gpp
    """.split()
)
PAIR = Budget(10, 60.0)  # what one person may be sent: one in 6 s, and a burst borrows from the time after it


def failure(code: int, details: str, *, status: int = 400) -> Fault:
    """An error in Meta's form."""
    return json_fault(status, _error(code, details))


class Bubble(msgspec.Struct, frozen=True):
    """A message as the person sees it."""

    id: str
    text: str
    at: float


class Person(msgspec.Struct):
    """A person with a phone. `window_open`: they wrote within the last 24 hours. `user_id` is their id for one business
    (`US.1349…`), by which alone they are known where `number` is empty: they have a username."""

    number: str
    name: str
    user_id: str = ""
    bubbles: list[Bubble] = []  # what the business number has sent
    read: list[str] = []  # ids of their messages that were marked as read, each time it was done
    typing: list[float] = []  # when the indicator was shown
    window_open: bool = False
    files: list[tuple[str, str, bytes]] = []  # what the business number has sent: kind, name, content

    @property
    def texts(self) -> list[str]:
        return [bubble.text for bubble in self.bubbles]


class FakeWhatsApp(LoopbackFake):
    """The API, the people, and Meta's calls of the webhook."""

    token = "a-token-for-tests"
    app_secret = "an-app-secret-for-tests"
    verify_token = "a-verify-token-for-tests"
    phone_number_id = "106540352242922"

    def __init__(
        self, *, pair: Budget | None = PAIR, port: int = 0, time_of_day: Callable[[], float] = time.time
    ) -> None:
        """`pair` is what one person may be sent; None: no limit."""
        super().__init__(port=port)
        self.webhook_url = ""
        self.people: dict[str, Person] = {}
        self._pair, self._meter = pair, Meter()
        self._time_of_day = time_of_day
        self._media: dict[str, tuple[bytes, str]] = {}
        self._senders: dict[str, Person] = {}  # of messages, by id
        self._last = 0
        self._telling: set[asyncio.Task[None]] = set()  # statuses under way to the webhook

    async def close(self) -> None:
        for task in self._telling:
            task.cancel()
        await asyncio.gather(*self._telling, return_exceptions=True)
        await super().close()

    # ── people and what they do ──────────────────────────────────────────────────────────────────────────────

    def person(self, number: str, name: str = "Ada", *, user_id: str = "") -> Person:
        """A person without a number has a username, and Meta names them by the id alone."""
        self.people[number or user_id] = Person(number, name, user_id)
        return self.people[number or user_id]

    def message(self, person: Person, text: str = "", **fields: Any) -> bytes:
        """The body of the call that tells of a new message; `fields` are more of the message object."""
        self._last += 1
        person.window_open = True
        message_id = f"wamid.in-{self._last}"
        self._senders[message_id] = person
        content = {"type": "text", "text": {"body": text}} if text else {}
        written = {"from": person.number, "id": message_id, "timestamp": str(int(self._time_of_day()))}
        contact: dict[str, Any] = {"wa_id": person.number, "profile": {"name": person.name}}
        if person.user_id:
            written["from_user_id"] = contact["user_id"] = person.user_id
        return self.notification({"contacts": [contact], "messages": [{**written, **content, **fields}]})

    def media(self, content: bytes, media_type: str, **fields: str) -> dict[str, Any]:
        """The media object of a message; its content can be fetched from then on."""
        self._last += 1
        media_id = f"media-{self._last}"
        self._media[media_id] = (content, media_type)
        digest = hashlib.sha256(content).hexdigest()
        return {"id": media_id, "mime_type": media_type, "sha256": digest, **fields}

    def not_delivered(self, person: Person, code: int | None, title: str, *, key: str = "") -> bytes:
        """The body of the call that tells of a message that was not delivered, without a reason where `code` is None.
        `key` is the one that it was sent with."""
        status: dict[str, Any] = {"id": "wamid.out", "status": "failed", "timestamp": "1"}
        status |= {"recipient_id": person.number, "recipient_user_id": person.user_id, "biz_opaque_callback_data": key}
        errors = [] if code is None else [{"code": code, "title": title}]
        return self.notification({"statuses": [status | {"errors": errors}]})

    def taken(self, person: Person, message_id: str, key: str) -> bytes:
        """The body of the call that tells of a message that was taken; `key` is the one that it was sent with."""
        status = {"id": message_id, "status": "sent", "timestamp": str(int(self._time_of_day()))}
        status |= {"recipient_id": person.number, "recipient_user_id": person.user_id, "biz_opaque_callback_data": key}
        return self.notification({"statuses": [status]})

    def notification(self, value: dict[str, Any]) -> bytes:
        metadata = {"display_phone_number": "15550000", "phone_number_id": self.phone_number_id}
        change = {"field": "messages", "value": {"messaging_product": "whatsapp", "metadata": metadata, **value}}
        entry = {"id": "102290129340398", "changes": [change]}
        return msgspec.json.encode({"object": "whatsapp_business_account", "entry": [entry]})

    def signature(self, body: bytes) -> str:
        """As in `X-Hub-Signature-256`."""
        return "sha256=" + hmac.digest(self.app_secret.encode(), body, hashlib.sha256).hex()

    async def write(self, person: Person, text: str) -> int:
        """A person writes; the status that the webhook answered with."""
        return await self.call_webhook(self.message(person, text))

    async def call_webhook(self, body: bytes, signature: str | None = None) -> int:
        """Posts the body, signed unless told otherwise; the same body again is the same message again (G88)."""
        headers = {"X-Hub-Signature-256": self.signature(body) if signature is None else signature}
        headers["Content-Type"] = "application/json"
        async with (
            aiohttp.ClientSession() as session,
            session.post(self.webhook_url, data=body, headers=headers) as answer,
        ):
            return answer.status

    async def _tell(self, body: bytes) -> None:
        """A status, once: the sender does not wait for it, and the webhook may be gone."""
        with contextlib.suppress(aiohttp.ClientError):
            await self.call_webhook(body)

    # ── the API ──────────────────────────────────────────────────────────────────────────────────────────────

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/{version}/{number}/messages", self._serve_messages),
            web.post("/{version}/{number}/media", self._serve_upload),
            web.get("/{version}/{thing}", self._serve_thing),
            web.get("/lookaside/media/{media}", self._serve_content),
        ]

    async def _serve_upload(self, request: web.Request) -> web.Response:
        form = await request.post()

        def act() -> web.Response:
            file = form.get("file")
            if not self._is_authorised(request):
                return _refused(190, "Error validating access token", status=401)
            if form.get("messaging_product") != "whatsapp" or not isinstance(file, web.FileField):
                return _refused(100, "The parameter file is required.")
            if file.content_type not in MEDIA_TYPES:
                wanted = f"Param file must be a file with one of the following types: {', '.join(MEDIA_TYPES)}."
                return _refused(100, f"{wanted} Received file of type '{file.content_type}'.")
            media_id = self.media(file.file.read(), file.content_type)["id"]
            return web.json_response({"id": media_id})

        return await self.answer(request, "media", {}, act)

    async def _serve_messages(self, request: web.Request) -> web.Response:
        body = await request.json()
        method = "read" if body.get("status") == "read" else "messages"
        return await self.answer(request, method, body, lambda: self._act(request, body))

    def _act(self, request: web.Request, body: dict[str, Any]) -> web.Response:
        if not self._is_authorised(request):
            return _refused(190, "Error validating access token", status=401)
        if request.match_info["number"] != self.phone_number_id or body.get("messaging_product") != "whatsapp":
            return _refused(100, "Unsupported post request")
        return self._mark_read(body) if body.get("status") == "read" else self._send(body)

    def _mark_read(self, body: dict[str, Any]) -> web.Response:
        person = self._senders.get(body.get("message_id", ""))
        if person is None:
            return _refused(100, "Message does not exist")
        person.read.append(body["message_id"])
        if body.get("typing_indicator") == {"type": "text"}:
            person.typing.append(self.now())
        return web.json_response({"success": True})

    def _send(self, body: dict[str, Any]) -> web.Response:
        text = body.get("text", {}).get("body", "") if body.get("type") == "text" else ""
        person = self.people.get(body.get("to") or body.get("recipient", ""))
        if person is None or (body.get("to") or person.number) != person.number:
            return _refused(131026, "Message undeliverable")
        if (kind := body.get("type")) in ("image", "document"):
            media = body.get(kind, {})
            if media.get("id") not in self._media:
                return _refused(131053, "Media upload error")
            person.files.append((kind, media.get("filename", ""), self._media[media["id"]][0]))
            text = f"[{kind}] {media.get('filename', '')}".rstrip()
        if not text:
            return _refused(100, "The parameter text['body'] is required.")
        if len(text) > MAX_TEXT_CHARS:
            return _refused(100, f"Param text['body'] must be at most {MAX_TEXT_CHARS} characters long.")
        if not person.window_open:
            return _refused(131047, "More than 24 hours have passed since the recipient last replied.")
        if self._pair is not None and self._meter.wait_s(person.number or person.user_id, self._pair, self.now()):
            return _refused(131056, "Too many messages sent to the same recipient in a short period of time.")
        self._last += 1
        bubble = Bubble(f"wamid.out-{self._last}", text, self.now())
        person.bubbles.append(bubble)
        if self.webhook_url and (key := body.get("biz_opaque_callback_data")):
            telling = asyncio.ensure_future(self._tell(self.taken(person, bubble.id, key)))
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)
        contacts = [{"input": body.get("to") or person.user_id, "wa_id": person.number}]
        return web.json_response(
            {"messaging_product": "whatsapp", "contacts": contacts, "messages": [{"id": bubble.id}]}
        )

    async def _serve_thing(self, request: web.Request) -> web.Response:
        return await self.answer(request, "get", dict(request.match_info), lambda: self._thing(request))

    def _thing(self, request: web.Request) -> web.Response:
        thing = request.match_info["thing"]
        if not self._is_authorised(request):
            return _refused(190, "Error validating access token", status=401)
        if thing == self.phone_number_id:
            return web.json_response(
                {"id": thing, "display_phone_number": "+1 555 0000", "verified_name": "Tailrace Test"}
            )
        if thing not in self._media:
            return _refused(100, "Unsupported get request", status=404)
        content, media_type = self._media[thing]
        url = f"{self.url}/lookaside/media/{thing}"
        return web.json_response({"id": thing, "url": url, "mime_type": media_type, "file_size": len(content)})

    async def _serve_content(self, request: web.Request) -> web.Response:
        found = self._media.get(request.match_info["media"])
        if found is None or not self._is_authorised(request):
            return web.Response(status=404)
        return web.Response(body=found[0], content_type=found[1])

    def _is_authorised(self, request: web.Request) -> bool:
        return request.headers.get("Authorization") == f"Bearer {self.token}"


def _refused(code: int, details: str, *, status: int = 400) -> web.Response:
    return web.json_response(_error(code, details), status=status)


def _error(code: int, details: str) -> dict[str, Any]:
    data = {"messaging_product": "whatsapp", "details": details}
    error = {"message": f"(#{code}) {details}", "type": "OAuthException", "code": code, "error_data": data}
    return {"error": error}
