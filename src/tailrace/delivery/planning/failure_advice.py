"""What a person in a chat can do about a run that failed, in one line below the error.

Pure. A chat may hold people who do not run the bot: the line names no variable and no address of its machine, and says
what is left to whoever runs it. The terminal and the page, whose reader can change the config, have other words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tailrace.events import RunFailure
from tailrace.providers.transport.port import CANNOT_CONNECT
from tailrace.runs.failures import is_media_refused, is_out_of_quota, is_too_long


def failure_advice(failure: RunFailure) -> str:
    """Empty where nothing is known. Commands are written with "/"."""
    if failure.kind == CANNOT_CONNECT:
        return "The model cannot be reached. Ask again later; if it stays so, tell whoever runs this bot."
    if is_too_long(failure):
        return "This is too long for the model: send less, or begin a new conversation with /new."
    if is_media_refused(failure):
        return "This model does not take the image or file: ask without it, or choose another model with /model."
    advice = _BY_STATUS.get(failure.status)
    return advice(failure) if advice is not None else ""


def _refused(_failure: RunFailure) -> str:
    return "The provider refused this bot's key. Whoever runs the bot has to change that; /model chooses another model."


def _forbidden(_failure: RunFailure) -> str:
    return (
        "The provider does not let this bot do that. Whoever runs the bot may change it; /model chooses another model."
    )


def _not_found(_failure: RunFailure) -> str:
    return "The provider does not have this model, or not at this address: /model chooses another one."


def _malformed(_failure: RunFailure) -> str:
    return "The same would be refused again: ask in another way, begin anew with /new, or choose another /model."


def _limited(failure: RunFailure) -> str:
    if is_out_of_quota(failure):
        return "The account of this bot has no quota left. Whoever runs it can add some; /model chooses another model."
    wait = f"in {failure.retry_after_s:.0f} s" if failure.retry_after_s else "in a moment"
    return f"The provider has too many requests: ask again {wait}, or choose another model with /model."


def _broken(_failure: RunFailure) -> str:
    return "The fault is at the provider: ask again later, or choose another model with /model."


_BY_STATUS: Final[dict[int, Callable[[RunFailure], str]]] = {
    401: _refused,
    403: _forbidden,
    **dict.fromkeys((402, 429), _limited),
    404: _not_found,
    **dict.fromkeys((400, 422), _malformed),
    **dict.fromkeys((500, 502, 503, 504, 529), _broken),
}
