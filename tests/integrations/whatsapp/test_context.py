"""The newest texts, by the ids of their messages."""

from __future__ import annotations

from tailrace.delivery.port import Quoted
from tailrace.integrations.whatsapp.inbound import RecentTexts


def test_the_oldest_texts_are_forgotten_first() -> None:
    recent = RecentTexts(limit=2)
    for number in range(3):
        recent.add("chat", str(number), f"text {number} " + "x" * 300, is_ours=True)
    assert recent.quoted("chat", "0") == Quoted(what="an earlier message")
    assert [recent.quoted("chat", key).text[:6] for key in "12"] == ["text 1", "text 2"]
    assert len(recent.quoted("chat", "2").text) == len("text 2 ") + 300
