"""What a notification shows and what a loudspeaker reads. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import assert_never

from tailrace.delivery import port
from tailrace.delivery.planning.presenter import ANSWER_BY_COMMAND
from tailrace.delivery.text import markdown as md
from tailrace.delivery.text.markup import BOXES
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


def spoken_text(text: str) -> str:
    """Without marks: a bullet, a line of dashes and the address behind a link are nothing to be read aloud. A row of a
    table is its cells, with a pause between."""
    return _blocks(md.blocks(text)).strip()


def _blocks(blocks: Iterable[md.Block]) -> str:
    return "\n".join(_block(block) for block in blocks if not isinstance(block, md.Rule))


def _block(block: md.Block) -> str:
    match block:
        case md.Paragraph(children=children) | md.Heading(children=children):
            return _words(children)
        case md.ItemList(children=inner) | md.Quote(children=inner):
            return _blocks(inner)
        case md.Item(marker=marker, children=inner, done=done):
            number = "" if marker == "-" else f"{marker} "
            return f"{number}{'' if done is None else f'{BOXES[done]} '}{_blocks(inner)}"
        case md.CodeBlock(text=text):
            return text
        case md.Table(rows=rows):
            return "\n".join(", ".join(filter(None, (_words(cell).strip() for cell in row))) for row in rows)
        case md.Rule() | md.Blank():
            return ""
        case _:
            assert_never(block)


def _words(nodes: Iterable[md.Node]) -> str:
    spoken: list[str] = []
    for node in nodes:
        match node:
            case str():
                spoken.append(node)
            case md.Code(text=text):
                spoken.append(text)
            case md.Styled(children=children):
                spoken.append(_words(children))
            case md.Link(url=url, children=children):
                spoken.append(_link(url, _words(children)))
            case _:
                assert_never(node)
    return "".join(spoken)


def _link(url: str, text: str) -> str:
    """Of a bare address, the host."""
    return text if text and text != url else url.partition("://")[2].partition("/")[0] or url


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
