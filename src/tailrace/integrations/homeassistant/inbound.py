"""What Home Assistant sends as messages: events of ours. Pure."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from tailrace.delivery import port
from tailrace.delivery.planning.presenter import preview_line

log = logging.getLogger("tailrace.integrations.homeassistant")

MESSAGE_EVENT = "tailrace_message"
DEFAULT_CHAT = "home"
MAX_TITLE_CHARS = 60


class _Data(msgspec.Struct):
    """As automations write them: YAML makes a number of `text: 42`, and a template may leave nothing."""

    text: Any = None
    user: Any = None
    conversation_id: Any = None


class _Context(msgspec.Struct):
    id: str = ""
    user_id: str | None = None


class _MessageEvent(msgspec.Struct):
    """An event of ours."""

    data: _Data
    time_fired: str = ""
    context: _Context = msgspec.field(default_factory=_Context)


def parse_message_event(content: msgspec.Raw) -> port.MessageReceived | None:
    """Without a `user` in the data, the sender is the user of Home Assistant who fired the event. Raises
    `msgspec.DecodeError`."""
    fired = msgspec.json.decode(content, type=_MessageEvent)
    text, user, conversation = (_text_of(value) for value in msgspec.structs.astuple(fired.data))
    update_id = f"{fired.context.id}:{fired.time_fired}"  # one context may fire several events
    sender = user or fired.context.user_id or ""
    received = _received(update_id, text or "", sender, conversation, title=conversation or user or "")
    if not received.text.strip():
        log.warning("an event %s was not understood: it has no `text` that is one; write it in quotes", MESSAGE_EVENT)
        return None
    return received


def _text_of(value: object) -> str | None:
    """What was meant as a text; None for nothing, and for what cannot be meant as one."""
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None


def _received(update_id: str, text: str, sender: str, conversation: str | None, *, title: str) -> port.MessageReceived:
    """`title` is what notifications of the answer are named after; generated ids are no names."""
    known = {"user": sender or DEFAULT_CHAT, "title": preview_line(title, MAX_TITLE_CHARS)}
    place = port.Place("homeassistant", conversation or sender or DEFAULT_CHAT, extra=known)
    return port.MessageReceived(update_id, place, port.Sender(sender or DEFAULT_CHAT), text, message_id=update_id)
