"""What an answer rests on, as the sources of a UI message: web pages and documents. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tailrace.messages import JsonObject, Message, Native, ToolCall
from tailrace.wire.peer_json import objects_of, text_of
from tailrace.wire.translation.citations import citations_in

_FETCH: Final = "web_fetch"
_PAGES = frozenset({"page_location"})  # Anthropic's word for a place in a PDF file
_PLACES = frozenset({"char_location", "content_block_location"}) | _PAGES


def web_sources(message: Message) -> Iterator[tuple[str, str]]:
    """The address and the title of each page that the text cites."""
    for citation in citations_in(message):
        yield citation.url, citation.title


def document_sources(message: Message) -> list[tuple[str, str]]:
    """The name and the media type of each document that the text cites, once each."""
    found: dict[tuple[str, str], None] = {}
    for part in message.parts:
        match part:
            case Native("anthropic", {"type": "text"} as item):
                found |= dict.fromkeys(map(_cited_document, _citations(item)))
            case Native("responses", {"type": "output_text"} as item):
                files = (text_of(note.get("filename")) for note in objects_of(item.get("annotations")))
                found |= dict.fromkeys((name, _media_type(name)) for name in files if name)
            case _:
                pass
    return [*found]


def _citations(item: JsonObject) -> list[JsonObject]:
    return [cited for cited in objects_of(item.get("citations")) if cited.get("type") in _PLACES]


def _cited_document(cited: JsonObject) -> tuple[str, str]:
    name = text_of(cited.get("document_title")) or "document"
    return name, "application/pdf" if cited.get("type") in _PAGES else "text/plain"


def _media_type(name: str) -> str:
    return "application/pdf" if name.lower().endswith(".pdf") else "text/plain"


def fetched_page(call: ToolCall) -> str:
    """The address of the page that this call fetches; empty where it is another tool's."""
    arguments = call.parsed() if call.name == _FETCH else None
    return text_of((arguments or {}).get("url"))
