"""What an event of a room says of itself. Pure: a client may have written anything into it."""

from __future__ import annotations

import re
from typing import Any

import nio

from tailrace.delivery.port import Attachment
from tailrace.messages import JsonObject

FILES = ("m.image", "m.file", "m.audio", "m.video")
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


def shown_name(room: nio.MatrixRoom | None, user_id: str) -> str:
    """The name that clients show for a user of the room; empty where there is none."""
    member = room.users.get(user_id) if room is not None else None
    name = str(member.display_name or "") if member is not None else ""
    return "".join(character for character in name if character.isprintable()).strip()  # terminals show it


def without_quote(text: str, relation: JsonObject) -> str:
    """Older clients repeat what a message replies to, in lines that begin with "> "."""
    if "m.in_reply_to" not in relation or not text.startswith("> "):
        return text
    lines = text.split("\n")
    while lines and lines[0].startswith(">"):
        lines.pop(0)
    return "\n".join(lines).strip()


def attachment_in(content: JsonObject) -> Attachment | None:
    if content.get("msgtype") not in FILES or not str(content.get("url", "")).startswith("mxc://"):
        return None
    info = content.get("info")
    info = info if isinstance(info, dict) else {}
    size = info.get("size")
    return Attachment(
        ref=str(content["url"]),
        name=str(content.get("filename") or content.get("body") or "file"),
        media_type=str(info.get("mimetype") or ""),
        size_bytes=size if isinstance(size, int) else None,
    )
