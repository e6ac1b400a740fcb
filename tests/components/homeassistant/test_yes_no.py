"""An approval is given by a plain yes, denied by a plain no, and never guessed."""

from __future__ import annotations

import pytest
from custom_components.tailrace.yes_no import _NO, _YES, FILLERS, said_yes


@pytest.mark.parametrize(
    ("text", "language", "meant"),
    [
        ("Yes", "en", True),
        ("yes, please.", "en-GB", True),
        ("Okay, do it!", "en", True),
        ("No thanks", "en", False),
        ("don’t", "en", False),
        ("Forget it.", "en", False),
        ("no, not now", "en", False),
        ("Nein, vergiss es", "de", False),
        ("Ja, bitte", "de", True),
        ("Auf keinen Fall!", "de-AT", False),
        ("yes", "de", True),  # English is understood everywhere
        ("Sí", "es", True),
        ("si", "it", True),
        ("D'accord", "fr", True),
        ("Nei", "no", False),
        ("yes", "xx", True),
        ("", "en", None),
        ("please", "en", None),
        ("yes and no", "en", None),
        ("yes no", "en", None),
        ("What does it do?", "en", None),
        ("yes but not in that directory", "en", None),
        ("no idea", "en", None),
        ("know", "en", None),
        ("ja", "en", None),
    ],
)
def test_what_an_utterance_means(text: str, language: str, meant: bool | None) -> None:
    assert said_yes(text, language) is meant


@pytest.mark.parametrize("language", sorted(_YES))
def test_each_phrase_of_a_language_means_one_thing(language: str) -> None:
    assert set(_YES) == set(_NO) == set(FILLERS)
    assert {said_yes(phrase, language) for phrase in _YES[language].split("|")} == {True}
    assert {said_yes(phrase, language) for phrase in _NO[language].split("|")} == {False}
    assert {said_yes(phrase, language) for phrase in FILLERS[language].split("|")} == {None}
