"""What a person can do about a run that failed: one table, for two readers.

The operator reads it in the terminal and on the page, and can change the config: `app/error_advice.py` fills in what
the config says of the provider. A guest reads it in a chat and may not run the bot: those words name no variable and
no address of its machine. Pure.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

from tailrace.events import RunFailure
from tailrace.providers.transport.port import CANNOT_CONNECT
from tailrace.runs.failures import is_media_refused, is_out_of_quota, is_too_long

Problem: TypeAlias = Literal[
    "unreachable",
    "too_long",
    "media",
    "key",
    "quota",
    "rate",
    "forbidden",
    "not_found",
    "malformed",
    "broken",
    "timeout",
]


class Advice(NamedTuple):
    """`operator`: one line without a full stop; `error_advice` fills in what is in braces. `guest`: sentences, with
    commands after "/"."""

    operator: str
    guest: str


ADVICE: Final[dict[Problem, Advice]] = {
    "unreachable": Advice(
        "{unreachable}",
        "The model cannot be reached. Ask again later; if it stays so, tell the operator of this bot.",
    ),
    "too_long": Advice(
        "too long for this model: send less, begin a new conversation, or choose another model",
        "This is too long for the model: send less, or begin a new conversation with /new.",
    ),
    "media": Advice(
        "this model does not take the image or file: ask without it, or choose another model",
        "This model does not take the image or file: ask without it, or choose another model with /model.",
    ),
    "key": Advice(
        "{key}",
        "The provider refused this bot's key. The operator has to change that; /model chooses another model.",
    ),
    "quota": Advice(
        "the account has no quota left: add credit, or choose another model",
        "The account of this bot has no quota left. The operator can add some; /model chooses another model.",
    ),
    "rate": Advice(
        "too many requests: ask again {wait}, or choose another model",
        "The provider has too many requests: ask again {wait}, or choose another model with /model.",
    ),
    "forbidden": Advice(
        "{account} may not use this model, or not from here",
        "The provider does not let this bot do that. The operator may change it; /model chooses another model.",
    ),
    "not_found": Advice(
        "{not_found}",
        "The provider does not have this model, or not at this address: /model chooses another one.",
    ),
    "malformed": Advice(
        "the same request will be refused again: change it, or choose another model",
        "The same would be refused again: ask in another way, begin anew with /new, or choose another /model.",
    ),
    "broken": Advice(
        "the fault is at {provider}: ask again later, or choose another model",
        "The fault is at the provider: ask again later, or choose another model with /model.",
    ),
    "timeout": Advice(
        "the provider is slow or overloaded: ask again, or raise call.first_token_timeout_s",
        "The fault is at the provider: ask again later, or choose another model with /model.",
    ),
}
_BY_STATUS: Final[dict[int, Problem]] = {
    400: "malformed",
    401: "key",
    403: "forbidden",
    404: "not_found",
    422: "malformed",
    500: "broken",
    502: "broken",
    503: "broken",
    504: "timeout",
    529: "broken",
}


def problem_of(failure: RunFailure) -> Problem | None:
    """None where nothing is known that a person could do."""
    if failure.kind == CANNOT_CONNECT or "cannot connect to" in failure.message:
        return "unreachable"
    if is_too_long(failure):
        return "too_long"
    if is_media_refused(failure):
        return "media"
    if failure.status in (402, 429):
        return "quota" if is_out_of_quota(failure) else "rate"
    return _BY_STATUS.get(failure.status)


def wait_words(failure: RunFailure) -> str:
    return f"in {failure.retry_after_s:.0f} s" if failure.retry_after_s else "in a moment"


def guest_advice(failure: RunFailure) -> str:
    """Empty where nothing is known."""
    problem = problem_of(failure)
    return ADVICE[problem].guest.format(wait=wait_words(failure)) if problem is not None else ""
