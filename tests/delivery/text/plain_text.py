"""Markdown for a platform that shows no markup."""

from __future__ import annotations

from tailrace.delivery.text.markup import Flavour, marked_text


def plain_text(text: str) -> str:
    return marked_text(text, Flavour())
