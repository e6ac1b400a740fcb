"""How a turn ends: the text that ends an answer whose stream broke for good, and what of it was not done.

Pure. Earlier attempts are the call's part; this module decides what the user, the transcript and the next turn's model
read. It names what was cut off, and never presents an action as done that was not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from tailrace.errors import Permanent, ProviderError
from tailrace.events import Entry, GatewayNotice, NotExecuted, RunFailure, ToolOutputRecorded
from tailrace.messages import Stop, ToolCall
from tailrace.runs.failures import failure_of

_STALLED = "⚠ Stream stalled mid tool-call "
_LIMIT = "⚠ I "


class Ending(msgspec.Struct, frozen=True):
    """How an answer ended for the turn. `suffix` is added to the text, live and on record; `failure` fails the run."""

    stop: str
    suffix: str = ""
    failure: RunFailure | None = None


def stalled_warning(open_calls: Sequence[str], text: str) -> str:
    """Names the actions that were not executed (B38)."""
    names = ", ".join(dict.fromkeys(open_calls))
    gap = "" if not text or text.endswith("\n\n") else "\n\n"
    return f"{gap}{_STALLED}({names}); the action was not executed. Ask me to retry if you want to continue."


def without_warning(text: str) -> str:
    """The answer itself, where it ends in a warning of this module."""
    found = max(text.rfind(beginning) for beginning in (_STALLED, _LIMIT))
    return text[:found].rstrip("\n") if found >= 0 else text


def ending_of_cut(error: ProviderError, open_calls: Sequence[str], text: str) -> Ending:
    """Attempts are exhausted. With a call open the warning is part of the answer; bare text stands as it is."""
    suffix = stalled_warning(open_calls, text) if open_calls else ""
    failure = failure_of(error) if isinstance(error, Permanent) else None
    return Ending("cut", suffix, failure)


def ending_of(stop: Stop, calls: Sequence[ToolCall]) -> Ending:
    """A stream that ended as it should. Calls win over what the provider calls the reason (B36)."""
    return Ending("tools" if calls else stop)


def stall_notice(provider: str, silent_s: float) -> GatewayNotice:
    """While a stalled stream is being replaced: a notice, never part of the answer."""
    text = f"⚠️ No response from provider for {silent_s:.0f}s … Reconnecting…"
    return GatewayNotice("stalled", text, {"provider": provider, "silent_s": round(silent_s, 1)})


def limit_warning(reason: str, text: str) -> str:
    """A budget ran out before the model was done: said in the answer itself."""
    gap = "" if not text or text.endswith("\n\n") else "\n\n"
    return f"{gap}{_LIMIT}{reason} and did not finish. Ask me to continue if you want me to go on."


def not_executed_in(facts: Iterable[Entry]) -> tuple[NotExecuted, ...]:
    """What a turn's model wanted to do and was denied or refused, in order; what it tried again is named once."""
    found = (entry.event.not_executed for entry in facts if isinstance(entry.event, ToolOutputRecorded))
    return tuple(dict.fromkeys(action for action in found if action is not None))
