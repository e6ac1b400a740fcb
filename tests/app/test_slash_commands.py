"""The table of slash commands: what a typed text means, and that each surface handles what the table gives it."""

from __future__ import annotations

import pytest

from tailrace.app.slash_commands import (
    CHAT_COMMANDS,
    CHAT_HELP,
    CHAT_MENU,
    SLASH_COMMANDS,
    ChatCommand,
    command_in,
    command_meant,
    command_suggested,
    is_unknown_command,
    with_command_mark,
    with_mark,
)


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


@pytest.mark.parametrize(
    ("text", "meant"), [("/nwe", "new"), ("/stpo", "stop"), ("/aprove session", "approve"), ("/undo", None)]
)
def test_a_word_behind_the_mark_that_is_no_command_is_known_for_one(text: str, meant: str | None) -> None:
    assert is_unknown_command(text)
    assert command_meant(text) == meant


@pytest.mark.parametrize(("text", "meant"), [("/reset", "new"), ("/Cancel", "stop"), ("/stpo", "stop"), ("/x", None)])
def test_what_other_programs_call_a_command_is_suggested(text: str, meant: str | None) -> None:
    assert command_suggested(text) == meant


@pytest.mark.parametrize(
    "text", ["/new", "/help me", "/usr/bin/env", "/etc or /opt?", "/undo the last step", "/", "undo"]
)
def test_a_command_a_path_and_a_sentence_are_no_unknown_commands(text: str) -> None:
    assert not is_unknown_command(text)


@pytest.mark.parametrize(
    ("typed", "read"),
    [("stop", "/stop"), ("stpo", "/stpo"), ("hello", "hello"), ("stock", "stock"), ("stop words?", "stop words?")],
)
def test_a_word_without_the_mark_is_a_command_only_where_it_is_very_near_to_one(typed: str, read: str) -> None:
    assert with_command_mark(typed) == read


def test_only_commands_get_the_mark_of_the_platform() -> None:
    text = "Back where you asked of /etc/hosts. /new begins, /help helps; /backup is a path."
    assert with_mark(text, "!") == "Back where you asked of /etc/hosts. !new begins, !help helps; /backup is a path."


def test_names_are_unique_and_the_menu_and_the_help_have_each_command_of_a_chat() -> None:
    names = [command.name for command in SLASH_COMMANDS]
    assert len(names) == len(set(names))
    assert {command.name for command in CHAT_MENU} == set(CHAT_COMMANDS) - {"start"}  # Telegram offers that one itself
    assert [line.partition(":")[0] for line in CHAT_HELP.splitlines()] == [f"/{command.name}" for command in CHAT_MENU]
    assert all(len(command.help) <= 100 for command in CHAT_MENU), "Discord's limit of a description"
