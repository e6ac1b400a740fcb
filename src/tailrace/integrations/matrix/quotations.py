"""Reads the event that a message refers to: the one that it replies to, or the root of its thread.

A client shows both beside the message. Without them "translate this" has no this.
"""

from __future__ import annotations

import asyncio
import logging

import nio

from tailrace.delivery.port import Quoted
from tailrace.gateway.connection_errors import NO_ANSWER
from tailrace.integrations.matrix import event_fields
from tailrace.messages import JsonObject

log = logging.getLogger("tailrace.integrations.matrix")
ANSWER_S = 5.0


async def quoted_event(client: nio.AsyncClient, room_id: str, event_id: str) -> Quoted | None:
    """None where the homeserver does not give it soon, or it says nothing."""
    event = await _asked(client, room_id, event_id) if event_fields.EVENT_ID.fullmatch(event_id) else None
    if event is None:
        return None
    content = event_fields.newest_content(event)
    said = event_fields.without_quote(str(content.get("body") or ""), event_fields.relation_of(content)).strip()
    file = event_fields.attachment_in(content)
    sender = str(event.get("sender"))
    name = event_fields.shown_name(client.rooms.get(room_id), sender) or sender
    files = (file,) if file is not None else ()
    return Quoted(name, said, files, is_ours=sender == client.user_id) if said else None


async def _asked(client: nio.AsyncClient, room_id: str, event_id: str) -> JsonObject | None:
    try:
        async with asyncio.timeout(ANSWER_S):
            found = await client.room_get_event(room_id, event_id)
    except NO_ANSWER as exc:
        log.warning("matrix: what a message in %s refers to could not be read: %s", room_id, str(exc) or "no answer")
        return None
    if isinstance(found, nio.RoomGetEventResponse):
        return dict(found.event.source)
    log.warning("matrix: what a message in %s refers to could not be read: %s", room_id, found)
    return None
