"""The newest texts, by the ids of their messages."""

from __future__ import annotations

from tailrace.integrations.whatsapp.context import MAX_REMEMBERED_CHARS, Quote, RecentTexts, with_context


def test_the_oldest_texts_are_forgotten_first() -> None:
    recent = RecentTexts(limit=2)
    for number in range(3):
        recent.add("chat", str(number), "you", f"text {number} " + "x" * 300)
    assert recent.quote("chat", "0") == Quote("an earlier message", "")
    assert [recent.quote("chat", key).text[:6] for key in "12"] == ["text 1", "text 2"]
    assert len(recent.quote("chat", "2").text) == len("text 2 ") + 300


def test_many_long_texts_have_a_bound_together() -> None:
    recent = RecentTexts()
    count = MAX_REMEMBERED_CHARS // 4000
    for number in range(count + 2):
        recent.add("chat", str(number), "you", "x" * 4000)
        recent.add("chat", str(number), "you", "y" * 4000)  # the same one again takes no more room
    known = [number for number in range(count + 2) if recent.quote("chat", str(number)).text]
    assert known == list(range(2, count + 2))


def test_a_file_without_words_may_refer_to_something_too() -> None:
    assert with_context("", Quote("you", "which one?"), forwarded=False) == "[in reply to you]\n> which one?"
    assert with_context("", None, forwarded=True) == "[forwarded]"
    assert with_context("", None, forwarded=False) == ""
