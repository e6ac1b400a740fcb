"""What a message from a chat means."""

from __future__ import annotations

import pytest

from tailrace.delivery.port import MessageReceived, Place, Sender
from tailrace.gateway.chat_settings import is_allowed
from tailrace.gateway.inbound.incoming import is_yes_or_no
from tailrace.gateway.inbound.pastes import Pastes
from tailrace.gateway.inbound.recent_ids import RecentIds


def test_ids_are_compared_as_text_and_numbers_without_their_plus() -> None:
    assert is_allowed(["12345"], "12345")
    assert not is_allowed(["012345"], "12345")
    assert not is_allowed([], "12345")
    assert is_allowed(["*"], "123")
    assert is_allowed(["+4915100"], "4915100")


def test_G88_recent_ids_are_bounded() -> None:
    recent = RecentIds(limit=2)
    assert [recent.add(key) for key in ("a", "b", "a", "c", "b", "a")] == [True, True, False, True, False, True]
    recent.forget("a")
    assert recent.add("a")


def message(text: str, *, at_limit: bool = False, user: str = "1") -> MessageReceived:
    return MessageReceived(f"u-{text[:3]}", Place("telegram", "42"), Sender(user), text, at_limit=at_limit)


def test_G89_only_the_same_sender_in_the_same_place_continues_a_paste() -> None:
    pastes = Pastes()
    assert pastes.add(message("long", at_limit=True), 10.0) is None
    other = message("hello", user="2")
    assert pastes.add(other, 10.5) is other
    assert pastes.take_complete(11.0) == []
    assert pastes.due_at == 11.5
    [whole] = pastes.take_complete(11.5)
    assert whole.text == "long"
    assert pastes.due_at is None


@pytest.mark.parametrize(
    "text", ["yes", "Yes!", " y ", "Ja.", "sí", "да", "はい", "ok, please", "No thanks", "don't", "👍", "❌"]
)
def test_a_word_that_agrees_or_refuses_is_known(text: str) -> None:
    assert is_yes_or_no(text)


@pytest.mark.parametrize("text", ["", "yes, and then list the files", "no idea what that is", "what?", "👍 nice", "42"])
def test_anything_more_is_a_message_like_any_other(text: str) -> None:
    assert not is_yes_or_no(text)
