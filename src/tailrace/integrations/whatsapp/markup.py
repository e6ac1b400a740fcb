"""Markdown in the marks that WhatsApp reads. Pure."""

from __future__ import annotations

from tailrace.delivery.text.markup import Flavour, marked_text

_MARKS = Flavour(bold="*", italic="_", strike="~", code="`", block="```")


def whatsapp_markup(text: str) -> str:
    return marked_text(text, _MARKS)
