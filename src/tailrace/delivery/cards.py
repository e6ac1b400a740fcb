"""What a person sends that is neither text nor a file, in words for the model: a place, a contact, a poll. Pure."""

from __future__ import annotations

from tailrace.delivery.planning.presenter import preview_line

MAX_DETAIL = 160  # characters of a name or an address on a card


def card_words(kind: str, *details: str) -> str:
    """A card in one line in brackets, which mark it as no typed text."""
    told = ", ".join(filter(None, (preview_line(detail, MAX_DETAIL) for detail in details)))
    return f"[{kind}: {told}]" if told else f"[{kind}]"
