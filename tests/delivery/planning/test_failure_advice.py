"""A person in a chat reads why an answer failed, and below it what they or whoever runs the bot can do."""

from __future__ import annotations

import pytest

from tailrace.delivery.planning.presenter import Presenter
from tailrace.events import RunFailure, RunFinished
from tailrace.runs.failures import is_out_of_quota

REFUSED = RunFailure("permanent", "openai: Incorrect API key provided", status=401)


def shown(failure: RunFailure, mark: str = "/") -> list[str]:
    ending = Presenter(mark=mark).ending(RunFinished("failed", error=failure), shown=False)
    return (ending or "").split("\n")


@pytest.mark.parametrize(
    ("failure", "advice"),
    [
        (REFUSED, "The provider refused this bot's key."),
        (RunFailure("permanent", "no", status=403), "The provider does not let this bot do that."),
        (RunFailure("permanent", "no", status=402), "The account of this bot has no quota left."),
        (RunFailure("insufficient_quota", "no", status=429), "The account of this bot has no quota left."),
        (RunFailure("retryable", "slow down", status=429, retry_after_s=7.0), "ask again in 7 s,"),
        (RunFailure("retryable", "slow down", status=429), "ask again in a moment,"),
        (RunFailure("permanent", "no such model", status=404), "/model chooses another one."),
        (RunFailure("permanent", "prompt is too long", status=400), "begin a new conversation with /new."),
        (RunFailure("permanent", "bad field", status=400), "The same would be refused again:"),
        (RunFailure("permanent", "this model does not support image input", status=400), "ask without it, or choose"),
        (RunFailure("retryable", "overloaded", status=529), "The fault is at the provider: ask again later,"),
        (RunFailure("cannot_connect", "cannot connect to 10.0.0.7:9"), "The model cannot be reached. Ask again later;"),
    ],
)
def test_a_failure_says_in_a_chat_what_can_be_done(failure: RunFailure, advice: str) -> None:
    what_happened, what_to_do = shown(failure)
    assert what_happened == f"⚠️ {failure.message}"
    assert advice in what_to_do


def test_the_advice_names_commands_as_they_are_typed_in_the_chat() -> None:
    assert shown(REFUSED, mark="!")[1].endswith("; !model chooses another model.")


def test_a_failure_that_nothing_is_known_of_has_no_advice() -> None:
    assert shown(RunFailure("internal", "KeyError: 'x'")) == ["⚠️ KeyError: 'x'"]


@pytest.mark.parametrize(
    ("message", "retry_after_s", "is_out"),
    [
        ("You exceeded your current quota", None, True),
        ("You exceeded your current quota. Please retry in 27.9s.", None, False),
        ("Rate limit reached. Please try again in 20s. To raise it, add a payment method under billing", None, False),
        ("You exceeded your current quota", 30.0, False),
        ("slow down", None, False),
    ],
)
def test_an_account_without_credit_is_told_from_one_that_asks_too_often(
    message: str, retry_after_s: float | None, is_out: bool
) -> None:
    assert is_out_of_quota(RunFailure("retryable", message, status=429, retry_after_s=retry_after_s)) is is_out
