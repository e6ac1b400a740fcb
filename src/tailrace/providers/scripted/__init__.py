"""Answers written beforehand, in the words of any dialect."""

from __future__ import annotations

from tailrace.providers.scripted.reply import (
    Block,
    CallBlock,
    Citation,
    RefusalBlock,
    Reply,
    TextBlock,
    ThinkingBlock,
    call,
    refuse,
    reply,
    say,
    think,
)

__all__ = [
    "Block",
    "CallBlock",
    "Citation",
    "RefusalBlock",
    "Reply",
    "TextBlock",
    "ThinkingBlock",
    "call",
    "refuse",
    "reply",
    "say",
    "think",
]
