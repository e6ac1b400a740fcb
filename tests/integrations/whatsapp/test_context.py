"""The newest texts, by the ids of their messages."""

from __future__ import annotations

from tailrace.delivery.port import Quoted
from tailrace.integrations.whatsapp.context import MAX_REMEMBERED_CHARS, RecentTexts


def test_the_oldest_texts_are_forgotten_first() -> None:
    recent = RecentTexts(limit=2)
    for number in range(3):
        recent.add("chat", str(number), f"text {number} " + "x" * 300, is_ours=True)
    assert recent.quoted("chat", "0") == Quoted(what="an earlier message")
    assert [recent.quoted("chat", key).text[:6] for key in "12"] == ["text 1", "text 2"]
    assert len(recent.quoted("chat", "2").text) == len("text 2 ") + 300


def test_many_long_texts_have_a_bound_together() -> None:
    recent = RecentTexts()
    count = MAX_REMEMBERED_CHARS // 4000
    for number in range(count + 2):
        recent.add("chat", str(number), "x" * 4000, is_ours=True)
        recent.add("chat", str(number), "y" * 4000, is_ours=True)  # the same one again takes no more room
    known = [number for number in range(count + 2) if recent.quoted("chat", str(number)).text]
    assert known == list(range(2, count + 2))
