"""The web pages that a text rests on: OpenAI's two APIs annotate a range of the text, Anthropic's a whole block of it.
In a message a cited text is followed by a native part, which stands for the same text with its citations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tailrace.messages import JsonObject, Message, Native, NativeDelta, Text
from tailrace.wire.peer_json import count_of, object_of, objects_of, text_of

_PAGE = "web_search_result_location"
_URL_CITATION = "url_citation"


class Citation(NamedTuple):
    """`start` and `end` are offsets into the text."""

    url: str
    title: str
    start: int
    end: int

    def moved(self, by: int) -> Citation:
        return self._replace(start=self.start + by, end=self.end + by)

    def annotation(self) -> JsonObject:
        """As the Responses API has it; Chat Completions nests the same fields."""
        place = {"start_index": self.start, "end_index": self.end}
        return {"type": _URL_CITATION, "url": self.url, "title": self.title, **place}

    def chat_annotation(self) -> JsonObject:
        fields = self.annotation()
        return {"type": fields.pop("type"), _URL_CITATION: fields}

    def page(self) -> JsonObject:
        """As Anthropic's API has it. What proves it to that API is empty: see `is_foreign_page`."""
        return {"type": _PAGE, "url": self.url, "title": self.title, "cited_text": "", "encrypted_index": ""}


def is_foreign_page(citation: object) -> bool:
    """A citation of `Citation.page`, which Anthropic's API would refuse."""
    return isinstance(citation, dict) and citation.get("type") == _PAGE and not citation.get("encrypted_index")


def of_annotation(annotation: object) -> Citation | None:
    """Of either API of OpenAI's."""
    given = object_of(annotation)
    given = given | object_of(given.get(_URL_CITATION))
    if given.get("type") != _URL_CITATION or not text_of(given.get("url")):
        return None
    start, end = count_of(given.get("start_index")), count_of(given.get("end_index"))
    return Citation(text_of(given["url"]), text_of(given.get("title")), start, end)


def of_annotations(part: JsonObject) -> list[Citation]:
    """The citations of a text part of the Responses API, or of a message or delta of Chat Completions."""
    return [each for each in map(of_annotation, objects_of(part.get("annotations"))) if each is not None]


def cited_block(block: JsonObject) -> NativeDelta | None:
    """What says that the text block of Anthropic's that has just ended rests on web pages; None where it does not."""
    pages = {
        text_of(each.get("url")): text_of(each.get("title"))
        for each in objects_of(block.get("citations"))
        if each.get("type") == _PAGE and text_of(each.get("url"))
    }
    if not pages:
        return None
    return NativeDelta("anthropic", {"cited": {"pages": pages, "length": len(text_of(block.get("text")))}})


def of_cited(item: JsonObject, said: int) -> list[Citation]:
    """The citations that such a delta's item stands for, of the end of a text that is so long."""
    cited = object_of(item.get("cited"))
    start = max(0, said - count_of(cited.get("length")))
    return [Citation(url, title, start, said) for url, title in object_of(cited.get("pages")).items()]


def citations_in(message: Message) -> Iterator[Citation]:
    """The citations of a message's whole text."""
    begun = said = 0
    for part in message.parts:
        match part:
            case Text(text):
                begun, said = said, said + len(text)
            case Native(item={"type": "output_text"} as item):
                yield from (citation.moved(begun) for citation in of_annotations(item))
            case Native(item={"type": "text"} as item) if (cited := cited_block(item)) is not None:
                yield from of_cited(cited.item, said)
            case _:
                pass
