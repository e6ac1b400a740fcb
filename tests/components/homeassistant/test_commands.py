"""What is a command is never guessed either: a word that may be a question to the model is passed on to it."""

from __future__ import annotations

import pytest
from custom_components.tailrace.commands import _NEW, _STOP, Command, command_in
from custom_components.tailrace.yes_no import _YES

from tailrace.app.slash_commands import CHAT_COMMANDS


@pytest.mark.parametrize(
    ("text", "language", "command"),
    [
        ("/new", "en", Command("new")),
        (" /New What is a weir? ", "de", Command("new", question="What is a weir?")),
        ("/stop", "xx", Command("stop")),
        ("/help", "en", Command("other")),
        ("/approve always", "en", Command("other")),
        ("/etc/hosts", "en", None),
        ("/nwe", "en", Command("other")),
        ("/weir of what?", "en", Command("other")),
        ("Stop.", "en", Command("stop", said=True)),
        ("please stop", "en-GB", Command("stop", said=True)),
        ("stop it, please!", "en", Command("stop", said=True)),
        ("Hör auf, bitte", "de-AT", Command("stop", said=True)),
        ("Slutt", "no", Command("stop", said=True)),
        ("stop", "ja", Command("stop", said=True)),  # English is understood everywhere
        ("New conversation, please.", "en", Command("new", said=True)),
        ("Neue Unterhaltung", "de", Command("new", said=True)),
        ("stop the music", "en", None),
        ("bus stop", "en", None),
        ("new", "en", None),
        ("please", "en", None),
        ("", "en", None),
    ],
)
def test_what_an_utterance_commands(text: str, language: str, command: Command | None) -> None:
    assert command_in(text, language) == command


@pytest.mark.parametrize("language", sorted(_YES))
def test_each_language_has_both(language: str) -> None:
    assert {command_in(phrase, language) for phrase in _STOP[language].split("|")} == {Command("stop", said=True)}
    assert {command_in(phrase, language) for phrase in _NEW[language].split("|")} == {Command("new", said=True)}


def test_every_command_of_the_chats_is_known() -> None:
    assert None not in {command_in(f"/{name} now", "en") for name in CHAT_COMMANDS}
