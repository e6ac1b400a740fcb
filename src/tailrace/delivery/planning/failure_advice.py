"""What a person can do about a run that failed: one table (`failure_advice.toml`), for two readers.

The operator reads it in the terminal and on the page, and can change the config: `app/error_advice.py` fills in what
the config says of the provider. A guest reads it in a chat and may not run the bot: those words name no variable and
no address of its machine. Pure.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

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


class Advice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`operator`: one line without a full stop; `error_advice` fills in what is in braces. `guest`: sentences, with
    commands after "/"."""

    operator: str
    guest: str
    statuses: tuple[int, ...] = ()  # of a provider's answer, where it says nothing else


ADVICE: Final = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=dict[Problem, Advice])
_BY_STATUS: Final = {status: problem for problem, advice in ADVICE.items() for status in advice.statuses}


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
