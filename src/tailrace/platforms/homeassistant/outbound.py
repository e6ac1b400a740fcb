"""What a notification shows: its title and its text. Pure."""

from __future__ import annotations

import re

from tailrace.delivery import port
from tailrace.delivery.planning.presenter import ANSWER_BY_COMMAND
from tailrace.platforms.homeassistant.inbound import MESSAGE_EVENT

TITLE = "Tailrace"
_MARKS = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~])")


def title_of(place: port.Place) -> str:
    """With the name of the conversation, where it has one."""
    name = place.extra.get("title", "")
    return f"{TITLE} · {name}" if name else TITLE


def notification_text(place: port.Place, action: port.Send | port.Edit) -> str:
    if not action.markup:
        return _MARKS.sub(r"\\\1", action.text)
    return action.text + _how_to_answer(place, action)


def _how_to_answer(place: port.Place, action: port.Send | port.Edit) -> str:
    """What to fire, below an open question: nobody can write below a notification."""
    if action.purpose != "approval" or not action.text.endswith(ANSWER_BY_COMMAND):
        return ""
    user = f"user: {_quoted(place.extra['user'])}\n" if "user" in place.extra else ""
    data = f'text: "/approve"\n{user}conversation_id: {_quoted(place.chat)}'
    return f"\n\nThat is, fire the event `{MESSAGE_EVENT}` with this data:\n\n```yaml\n{data}\n```"


def _quoted(name: str) -> str:
    """As a text of YAML, on one line: any name could be given."""
    escaped = name.replace("\\", "\\\\").replace('"', '\\"').replace("`", "\\x60")
    return '"' + "".join(char if char.isprintable() else " " for char in escaped) + '"'
