"""Answers written beforehand: a provider that plays them, and their words in each dialect."""

from __future__ import annotations

from tailrace.testing.scripted.provider import Cut, Fail, ScriptedProvider, Stall
from tailrace.testing.scripted.reply import (
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
    "Cut",
    "Fail",
    "RefusalBlock",
    "Reply",
    "ScriptedProvider",
    "Stall",
    "TextBlock",
    "ThinkingBlock",
    "call",
    "refuse",
    "reply",
    "say",
    "think",
]
