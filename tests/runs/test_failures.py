"""Who stopped a run, in words, and what a provider has refused as too long."""

from __future__ import annotations

import pytest

from tailrace.events import RunFailure
from tailrace.runs.failures import is_too_long, stop_words
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


@pytest.mark.parametrize(
    ("status", "message", "too_long"),
    [
        (400, "This model's maximum context length is 8192 tokens.", True),
        (400, "prompt is too long: 210000 tokens > 200000 maximum", True),
        (400, "Input is too long for requested model.", True),
        (400, "This model's maximum prompt length is 131072 but the request contains 140000 tokens.", True),
        (400, "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", True),
        (400, "the request exceeds the available context size, try increasing it", True),
        (413, "Request Entity Too Large", True),
        (400, "max_tokens is too large", False),
        (500, "context length", False),
    ],
)
def test_what_vendors_say_of_a_request_that_is_too_long(status: int, message: str, too_long: bool) -> None:
    assert is_too_long(RunFailure("invalid_request_error", message, status=status)) is too_long
