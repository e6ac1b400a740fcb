"""What a person sends that is neither text nor a file, in words for the model: a place, a contact, a poll. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.delivery.planning.presenter import preview_line

MAX_DETAIL = 160  # characters of a name or an address on a card
MAX_FIELDS = 2000  # characters of a card of any shape


def card_words(kind: str, *details: str) -> str:
    """A card in one line in brackets, which mark it as no typed text."""
    told = ", ".join(filter(None, (preview_line(detail, MAX_DETAIL) for detail in details)))
    return f"[{kind}: {told}]" if told else f"[{kind}]"


def card_of_fields(kind: str, fields: object) -> str:
    """A card of any shape: its values in their order, each behind the name of its field."""
    return f"[{kind}: {preview_line(', '.join(_values(fields)), MAX_FIELDS)}]"


def _values(content: object, name: str = "") -> Iterator[str]:
    match content:
        case dict():
            for key, value in content.items():
                yield from _values(value, str(key))
        case list():
            for value in content:
                yield from _values(value, name)
        case _:
            yield f"{name} {content}".strip()
