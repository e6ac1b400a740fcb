"""A group's conversation on the page, in a real browser: who speaks is shown, and is not part of what is edited."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.shared_chat import ASKED, BEN, SESSION, group_chat, said
from server.web import chromium
from server.web.opened_page import answer, page
from tailrace.testing.provider import reply

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium: apt-get install chromium")

LAST_EDIT = """[...document.querySelectorAll("article:last-of-type button")]
  .find((button) => button.title === "Edit").click()"""


async def test_edit_has_the_question_alone_and_it_is_sent_as_that_persons(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, *(reply(f"Answer {number}.") for number in range(3))) as (server, _, tab):
        await group_chat(server)
        await tab.go(f"{server.url}/?session={SESSION}")
        await tab.until_shown("Answer 1.")
        shown = await tab.value("[...document.querySelectorAll('article > .question')].map((q) => q.textContent)")
        await tab.value(LAST_EDIT)
        edited = await tab.value("document.activeElement.value")
        await tab.write("Edited question, from Ben", ", please")
        await tab.press("Send edited")
        await tab.until_shown("Answer 2.")
        assert await answer(tab) == "Answer 2."
        question = await tab.text("article:last-child > .question")
        sent = said(server)
    assert shown == ["Anna: book it for me", "Ben: for me too"]
    assert edited == "for me too"
    assert sent == [ASKED, f"{BEN.head}\n| for me too, please"]
    assert question == "Ben: for me too, please"
    assert tab.complaints == []


async def test_what_a_fork_has_from_a_shared_chat_says_who_spoke(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, *(reply(f"Answer {number}.") for number in range(3))) as (server, _, tab):
        await group_chat(server)
        await tab.go(f"{server.url}/?session={SESSION}")
        await tab.until_shown("Answer 1.")
        await tab.value(LAST_EDIT.replace("Edit", "Fork from here"))
        await tab.write("Next message", "And the train?")
        await tab.follow(tab.press("Send in a new conversation"))
        await tab.until_shown("Forked from another conversation")
        assert await answer(tab) == "Answer 2."
        said = "[...document.querySelectorAll('details.earlier > .question')].map((each) => each.textContent)"
        shown = await tab.value(said)
    assert shown == ["Anna: book it for me", "Ben: for me too"]
    assert tab.complaints == []
