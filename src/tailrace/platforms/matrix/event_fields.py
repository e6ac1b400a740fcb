"""What an event of a room says of itself. Pure: a client may have written anything into it."""

from __future__ import annotations

import re
from typing import Any

from tailrace.messages import JsonObject

EVENT_ID = re.compile(r"\$[!-~]{1,254}")  # as homeservers make them


def content_of(event: JsonObject) -> JsonObject:
    content = event.get("content")
    return content if isinstance(content, dict) else {}


def relation_of(content: JsonObject) -> JsonObject:
    relation = content.get("m.relates_to")
    return relation if isinstance(relation, dict) else {}


def thread_of(relation: JsonObject) -> str:
    """The thread that a message is in; empty for the room itself."""
    return str(relation.get("event_id", "")) if relation.get("rel_type") == "m.thread" else ""


def replied_to(relation: JsonObject) -> str:
    """The event that a message replies to; empty where it replies to none."""
    replied = relation.get("m.in_reply_to")
    if not isinstance(replied, dict) or relation.get("is_falling_back"):
        return ""
    return str(replied.get("event_id", ""))


def newest_content(event: JsonObject) -> JsonObject:
    """What the event's last edit has made of it, where the homeserver tells of one."""
    found: Any = event
    for key in ("unsigned", "m.relations", "m.replace", "content", "m.new_content"):
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else content_of(event)


def age_s(event: JsonObject) -> float:
    """Since when the event is there, by the homeserver's clock; 0 where it does not say."""
    unsigned = event.get("unsigned")
    age = unsigned.get("age") if isinstance(unsigned, dict) else None
    return age / 1000 if isinstance(age, int | float) else 0.0


def since_invitation(events: list[JsonObject], user_id: str) -> list[JsonObject]:
    """A room that was just entered comes with what was said there before. What is older than the invitation is not for
    the user: a command in it may have been carried out when they were there the last time."""
    steps = [event for event in events if is_entry(event, user_id)]
    invitations = [event for event in steps if event["content"]["membership"] == "invite"]
    if not steps:
        return events
    return events[events.index((invitations or steps)[-1]) + 1 :]


def before_joining(events: list[JsonObject], user_id: str) -> list[JsonObject]:
    """Those from before the user came into the room; none where that is not among them."""
    entries = [event for event in events if is_entry(event, user_id) and event["content"]["membership"] == "join"]
    return events[: events.index(entries[-1])] if entries else []


def is_entry(event: JsonObject, user_id: str) -> bool:
    """Whether the user is invited or comes in here. A new name or picture is a "join" too, after another one."""
    content, unsigned = event.get("content"), event.get("unsigned")
    if event.get("type") != "m.room.member" or event.get("state_key") != user_id or not isinstance(content, dict):
        return False
    before = unsigned.get("prev_content") if isinstance(unsigned, dict) else None
    was_in = isinstance(before, dict) and before.get("membership") == "join"
    return content.get("membership") == "invite" or (content.get("membership") == "join" and not was_in)
