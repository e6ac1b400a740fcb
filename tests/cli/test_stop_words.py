"""Who stopped a run, in words."""

from __future__ import annotations

import pytest

from tailrace.cli.stop_words import stop_words
from tailrace.events import RunFailure
from tailrace.runs.signals import stop_failure, stop_signal


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (None, "interrupted"),
        (stop_failure(stop_signal()), "interrupted"),
        (stop_failure(stop_signal(newer=True)), "interrupted by a newer message"),
        (stop_failure(stop_signal(by="telegram:7")), "stopped by telegram:7"),
        (stop_failure(stop_signal(by="editor")), "stopped by an editor"),
        (stop_failure(stop_signal(by="mcp", newer=True)), "interrupted by a newer message from an MCP host"),
        (RunFailure("cancelled", "cancelled"), "cancelled"),
    ],
)
def test_a_stop_names_who_it_was_as_far_as_the_signal_says(failure: RunFailure | None, words: str) -> None:
    assert stop_words(failure) == words


def test_another_terminal_is_told_as_such_in_a_terminal() -> None:
    failure = stop_failure(stop_signal(by="cli"))
    assert stop_words(failure) == "stopped by a terminal"
    assert stop_words(failure, viewer="cli") == "stopped by another terminal"
    assert stop_words(failure, viewer="editor") == "stopped by a terminal"
