"""An answer as a loudspeaker reads it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from tailrace.delivery.text import markdown as md
from tailrace.delivery.text.markup import BOXES


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
