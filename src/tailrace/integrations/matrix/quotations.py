"""What a message refers to, for the model: the message that it replies to, or the one that its thread hangs from.

A client shows both beside the message. Without them "translate this" has no this. The homeserver is asked for them; a
message whose reference it does not give soon goes on without.
"""

from __future__ import annotations

import asyncio
import logging

import nio
from msgspec.structs import replace

from tailrace.delivery.planning.presenter import quotation, shortened
from tailrace.delivery.port import MessageReceived
from tailrace.delivery.speakers import author_name
from tailrace.gateway.connection_errors import NO_ANSWER
from tailrace.gateway.inbound import is_command_or_answer
from tailrace.integrations.matrix.event_fields import (
    EVENT_ID,
    attachment_in,
    newest_content,
    relation_of,
    replied_to,
    shown_name,
    without_quote,
)
from tailrace.messages import JsonObject

log = logging.getLogger("tailrace.integrations.matrix")
ANSWER_S = 5.0  # nobody is heard meanwhile


class Quotations:
    """What this process knows of events that people refer to."""

    def __init__(self, client: nio.AsyncClient) -> None:
        self._client = client
        self._found: dict[str, JsonObject] = {}  # of the sync that is read now

    def note_found(self, event_id: str, event: JsonObject) -> None:
        """The homeserver was asked for this event by the sync that is read now."""
        self._found[event_id] = event

    def forget_found(self) -> None:
        """The sync is read: what is referred to later may have been edited."""
        self._found.clear()

    def reference(self, message: MessageReceived, relation: JsonObject, *, has_conversation: bool) -> str:
        """The event that the model should see with the message; empty where there is none. Nothing is added to a
        command or to an answer to a question. `has_conversation`: the thread is one, so that what it hangs from was
        quoted already."""
        if not (message.addressed or has_conversation) or is_command_or_answer(message.text):
            return ""
        about = replied_to(relation) or ("" if has_conversation else message.place.thread)
        return about if EVENT_ID.fullmatch(about) else ""

    async def placed_above(self, message: MessageReceived, about: str) -> MessageReceived:
        """The message below what it refers to, and with the file of that."""
        room_id = message.place.chat
        event = self._found.get(about) or await self._asked(room_id, about)
        content = newest_content(event) if event is not None else {}
        said = without_quote(str(content.get("body") or ""), relation_of(content)).strip()
        if event is None or not said:
            return message
        sender = str(event.get("sender"))
        name = author_name(shown_name(self._client.rooms.get(room_id), sender)) or author_name(sender)
        author = "you" if sender == self._client.user_id else name
        above = f"[in reply to {author}]\n{quotation(shortened(said))}"
        file = attachment_in(content)
        files = (*message.attachments, file) if file is not None else message.attachments
        return replace(message, text=f"{above}\n\n{message.text}".rstrip(), attachments=files)

    async def _asked(self, room_id: str, event_id: str) -> JsonObject | None:
        try:
            async with asyncio.timeout(ANSWER_S):
                found = await self._client.room_get_event(room_id, event_id)
        except NO_ANSWER as exc:
            log.warning(
                "matrix: what a message in %s refers to could not be read: %s", room_id, str(exc) or "no answer"
            )
            return None
        if isinstance(found, nio.RoomGetEventResponse):
            return dict(found.event.source)
        log.warning("matrix: what a message in %s refers to could not be read: %s", room_id, found)
        return None
