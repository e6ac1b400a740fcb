"""What a notification shows: its title and its text. Pure."""

from __future__ import annotations

import re

from tailrace.delivery import port
from tailrace.delivery.planning.presenter import ANSWER_BY_COMMAND
from tailrace.integrations.homeassistant.inbound import MESSAGE_EVENT

TITLE = "Tailrace"
_MARKS = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~])")
# An image, and the HTML that loads something. The front end of Home Assistant shows both without asking, so that a text
# that a model was tricked into would reach a stranger's server as soon as a person looks at it. The word joiner, which
# is not seen, makes a link of the one and a text of the other, also inside of HTML, where no backslash does.
# The integration has the same filter (`custom_components/tailrace/images.py`): it is installed without this package.
# `tests/components/homeassistant/test_images.py` holds both to one table.
_LOADED = re.compile(
    r"!(?=\[)|<(?=(?:audio|embed|iframe|image|img|input|link|object|picture|source|style|svg|track|video)\b)",
    re.IGNORECASE,
)
_WORD_JOINER = "\u2060"
_LINKED = re.compile(r"\]\s*[(\[:]")  # no image is without one of these; `vec![1, 2]` is none


def title_of(place: port.Place) -> str:
    """With the name of the conversation, where it has one."""
    name = place.extra.get("title", "")
    return f"{TITLE} · {name}" if name else TITLE


def notification_text(place: port.Place, action: port.Send | port.Edit) -> str:
    if not action.markup:
        return _MARKS.sub(r"\\\1", action.text)
    return _without_images(action.text) + _how_to_answer(place, action)


def _without_images(text: str) -> str:
    if "<" not in text and not _LINKED.search(text):
        return text
    return _LOADED.sub(rf"\g<0>{_WORD_JOINER}", text)


def _how_to_answer(place: port.Place, action: port.Send | port.Edit) -> str:
    """What to fire, below an open question: a notification takes no reply."""
    if action.purpose != "approval" or not action.text.endswith(ANSWER_BY_COMMAND):
        return ""
    user = f"user: {_quoted(place.extra['user'])}\n" if "user" in place.extra else ""
    data = f'text: "/approve"\n{user}conversation_id: {_quoted(place.chat)}'
    return f"\n\nThat is, fire the event `{MESSAGE_EVENT}` with this data:\n\n```yaml\n{data}\n```"


def _quoted(name: str) -> str:
    """As a text of YAML, on one line: any name could be given."""
    escaped = name.replace("\\", "\\\\").replace('"', '\\"').replace("`", "\\x60")
    return '"' + "".join(char if char.isprintable() else " " for char in escaped) + '"'
