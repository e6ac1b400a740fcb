"""What a message from a chat means."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.delivery.inbound import ChatCommand, Pastes, RecentIds, command_in, is_allowed
from tailrace.delivery.port import MessageReceived, Place, Sender
from tailrace.errors import ConfigError, TailraceError
from tailrace.platforms.runtime.chat_settings import ChatChoices, Choices, Pairing


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("/new", ChatCommand("new")),
        (" /Stop ", ChatCommand("stop")),
        ("/model@our_bot openrouter/minimax-m2", ChatCommand("model", "openrouter/minimax-m2")),
        ("/approve always", ChatCommand("approve", "always")),
        ("/usr/bin/env", None),
        ("/unknown", None),
        ("stop", None),
        ("see /stop", None),
    ],
)
def test_commands(text: str, command: ChatCommand | None) -> None:
    assert command_in(text) == command


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


def test_choices_are_kept_and_seen_by_another_process(tmp_path: Path) -> None:
    choices, other = Choices(tmp_path), Choices(tmp_path)
    choices.set("telegram:42", ChatChoices(generation=3, model="a/b"))
    assert other.of("telegram:42") == ChatChoices(generation=3, model="a/b")
    assert other.of("telegram:43") == ChatChoices()
    assert not choices.was_hinted("telegram:1")
    other.hint("telegram:1")
    assert choices.was_hinted("telegram:1")
    assert (tmp_path / "chats.json").stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_not_ours_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "pairing.json").write_text("nonsense")
    with pytest.raises(ConfigError, match="mend or remove"):
        Pairing(tmp_path).code_for("telegram:1", "x")


def test_a_pairing_code_works_once_and_runs_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairing = Pairing(tmp_path)
    code = pairing.code_for("telegram:1", "Ada")
    assert code == pairing.code_for("telegram:1", "Ada")
    assert code is not None
    assert pairing.accept(code.lower()).user == "telegram:1"
    assert pairing.is_paired("telegram:1")
    with pytest.raises(TailraceError):
        pairing.accept(code)
    late = pairing.code_for("telegram:2", "")
    assert late is not None
    monkeypatch.setattr("tailrace.platforms.runtime.chat_settings.time.time", lambda: 4e9)
    with pytest.raises(TailraceError):
        pairing.accept(late)
