"""Names and commands as people type them."""

from __future__ import annotations

import pytest

from tailrace.integrations.matrix.inbound import BotNames, with_slash

NAMES = BotNames("@tailrace:example.org", "House Helper")


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("!stop", "/stop"),
        ("!Stop", "/Stop"),
        ("!STOP", "/STOP"),
        ("  !stop ", "/stop"),
        ("//stop", "/stop"),
        ("/stop", "/stop"),
        ("!approve session", "/approve session"),
        ("!aprove", "/aprove"),
        ("!weather Bern", "!weather Bern"),
        ("!important: read this", "!important: read this"),
        ("!!! wow", "!!! wow"),
        ("/shrug", "/shrug"),
        ("// a comment", "// a comment"),
        (" a question ", " a question "),
    ],
)
def test_a_command_has_its_slash_and_nothing_else_changes(typed: str, read: str) -> None:
    assert with_slash(typed, to_us=False) == read


@pytest.mark.parametrize(
    ("typed", "read"), [("!undo", "/undo"), ("!stop", "/stop"), ("!weather Bern", "!weather Bern"), ("!!!", "!!!")]
)
def test_a_word_behind_the_mark_that_is_for_the_bot_alone_is_a_command_that_there_is_none_of(
    typed: str, read: str
) -> None:
    assert with_slash(typed, to_us=True) == read


@pytest.mark.parametrize(
    ("text", "rest", "named"),
    [
        ("tailrace: hello", "hello", True),
        ("Tailrace, hello", "hello", True),
        ("@tailrace hello", "hello", True),
        ("@tailrace", "", True),
        ("@tailrace:example.org: hello", "hello", True),
        ("@tailrace:example.org hello", "hello", True),
        ("House Helper: hello", "hello", True),
        ("tailrace is a word", "tailrace is a word", False),
        ("@tailrace:other.org: hello", "@tailrace:other.org: hello", False),
        ("@tailrace: hello", "hello", True),
        ("@tailracer hello", "@tailracer hello", False),
        ("ask @tailrace:example.org", "ask @tailrace:example.org", True),
        ("hello", "hello", False),
    ],
)
def test_a_name_is_taken_off_and_a_word_is_not(text: str, rest: str, named: bool) -> None:
    assert NAMES.without_name(text, mentioned=False) == rest
    assert NAMES.named_in(text) is named


@pytest.mark.parametrize(
    ("text", "mentions", "to_others"),
    [
        ("can you look?", {"user_ids": ["@ben:example.org"]}, True),
        ("can you look?", {"user_ids": ["@Tailrace:example.org"]}, False),
        ("can you both look?", {"user_ids": ["@tailrace:example.org", "@ben:example.org"]}, True),
        ("lunch!", {"room": True}, True),
        ("@ben:example.org: can you look?", None, True),
        ("@ben:example.org can you look?", {}, True),
        ("what did @ben:example.org say?", {}, False),
        ("@ben can you look?", {}, False),
        ("and then?", {}, False),
        ("and then?", {"user_ids": "@ben:example.org", "room": "no"}, False),
        ("and then?", "nobody", False),
    ],
)
def test_whom_a_client_says_a_message_is_for(text: str, mentions: object, to_others: bool) -> None:
    assert NAMES.speaks_to_others(text, {"m.mentions": mentions}) is to_others


def test_a_name_whose_small_letters_are_longer_takes_nothing_of_the_text_along() -> None:
    assert (
        BotNames("@tailrace:example.org", "İstanbul Bot").without_name("İstanbul Bot:hello", mentioned=False) == "hello"
    )


def test_a_mention_that_the_client_tells_needs_no_colon() -> None:
    assert NAMES.without_name("House Helper hello", mentioned=True) == "hello"
    assert NAMES.without_name("hello", mentioned=True) == "hello"
