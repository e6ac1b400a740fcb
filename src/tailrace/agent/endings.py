"""How a turn ends: the text that ends an answer whose stream broke for good, and what of it was not done.

Pure. Earlier attempts are the call's part; this module decides what the user, the transcript and the next turn's model
read. It names what was cut off, and never presents an action as done that was not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from tailrace.agent.turn import Turn
from tailrace.errors import ANSWER_TOO_LONG, Permanent, ProviderError
from tailrace.events import Entry, GatewayNotice, NotExecuted, RunFailure
from tailrace.runs.failures import failure_of

_STALLED = "⚠ Stream stalled mid tool-call "
_LIMIT = "⚠ I "
# Without the sign: one wide character doubles the memory of megabytes of text, in every copy of it (O178).
_TOO_LONG = "(This is longer than one answer may be, and was cut. Ask me to continue if you want me to go on.)"


class Ending(msgspec.Struct, frozen=True):
    """How an answer ended for the turn. `suffix` is added to the text, live and on record; `failure` fails the run;
    `lost` are the calls that broke off."""

    stop: str
    suffix: str = ""
    failure: RunFailure | None = None
    lost: tuple[NotExecuted, ...] = ()


def stalled_warning(open_calls: Sequence[str], text: str) -> str:
    """Names the actions that were not executed (B38)."""
    names = ", ".join(name or "its name had not arrived" for name in dict.fromkeys(open_calls))
    gap = "" if not text or text.endswith("\n\n") else "\n\n"
    return f"{gap}{_STALLED}({names}); the action was not executed. Ask me to retry if you want to continue."


def without_warning(text: str) -> str:
    """The answer itself, where it ends in warnings of this module."""
    for beginning in (_STALLED, _LIMIT, _TOO_LONG):
        if (found := text.rfind(beginning)) >= 0:
            text = text[:found].rstrip("\n")
    return text


def ending_of_cut(error: ProviderError, open_calls: Sequence[str], text: str) -> Ending:
    """Attempts are exhausted. With a call open the warning is part of the answer; bare text stands as it is."""
    too_long = f"\n\n{_TOO_LONG}" if text else _TOO_LONG
    suffix = too_long if error.code == ANSWER_TOO_LONG else ""
    if open_calls:
        suffix += stalled_warning(open_calls, text + suffix)
    failure = failure_of(error) if isinstance(error, Permanent) else None
    lost = tuple(NotExecuted(name, "", "the stream broke off before the call was whole", "lost") for name in open_calls)
    return Ending("cut", suffix, failure, lost)


def stall_notice(provider: str, silent_s: float) -> GatewayNotice:
    """While a stalled stream is being replaced: a notice, never part of the answer."""
    text = f"⚠️ No response from provider for {silent_s:.0f}s … Reconnecting…"
    return GatewayNotice("stalled", text, {"provider": provider, "silent_s": round(silent_s, 1)})


def limit_warning(reason: str, text: str) -> str:
    """A budget ran out before the model was done: said in the answer itself."""
    gap = "" if not text or text.endswith("\n\n") else "\n\n"
    return f"{gap}{_LIMIT}{reason} and did not finish. Ask me to continue if you want me to go on."


def not_executed_in(facts: Iterable[Entry]) -> tuple[NotExecuted, ...]:
    """The actions of a turn's model that were not executed, in order; a repeated one is named once."""
    turn = Turn()
    turn.replay(facts)
    return turn.not_executed
