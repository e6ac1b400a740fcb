"""Times, numbers and states of runs as people read them. Pure."""

from __future__ import annotations

import time
from typing import Any, Final

import msgspec

from tailrace.app.costs import dollars
from tailrace.messages import Usage

STYLES: Final[dict[str, str]] = {  # of a state
    "completed": "green",
    **dict.fromkeys(("running", "stopping", "scheduled", "pending"), "cyan"),
    **dict.fromkeys(("waiting", "paused", "incomplete", "stopped", "cancelled"), "yellow"),
    "asking": "bold yellow",
    "failed": "red",
    **dict.fromkeys(("parked", "orphaned"), "bold red"),
}
_DAY_S = 86_400.0


def when(at: float, now: float) -> str:
    """`14:02` today, `Mon 14:02` within the last six days, else `2025-11-15`; of the local time zone."""
    then, today = time.localtime(at), time.localtime(now)
    if then[:3] == today[:3]:
        return time.strftime("%H:%M", then)
    if 0 <= now - at < 6 * _DAY_S:
        return time.strftime("%a %H:%M", then)
    return time.strftime("%Y-%m-%d", then)


def duration(seconds: float | None) -> str:
    """`0.3s`, `12s`, `4m 05s`, `3h 12m`, `2d 4h`."""
    if seconds is None:
        return ""
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3_600:
        return f"{whole // 60}m {whole % 60:02}s"
    unit, below = ((86_400, "d"), (3_600, "h")) if whole >= 86_400 else ((3_600, "h"), (60, "m"))
    return f"{whole // unit[0]}{unit[1]} {whole % unit[0] // below[0]}{below[1]}"


def count(number: int) -> str:
    """`950`, `1.2k`, `31k`, `4.5M`."""
    if number < 1_000:
        return str(number)
    for size, unit in ((1_000, "k"), (1_000_000, "M")):
        if number < size * 9.95:
            return f"{number / size:.1f}{unit}"
        if number < size * 999.5:
            return f"{number / size:.0f}{unit}"
    return f"{number / 1e9:.1f}G"


def tokens(usage: Usage) -> str:
    """In and out; empty where none were counted. `~`: a provider has not counted all, as of a stopped answer."""
    if usage == Usage():
        return ""
    return f"{_about(usage)}{count(usage.input_tokens)}/{count(usage.output_tokens)}"


def _about(usage: Usage) -> str:
    return "~" if usage.estimated_tokens else ""


def spent_words(usage: Usage | None, cost: float | None) -> str:
    """`1,204 in, 88 out · $0.0021`, or `~1,204 in, ~88 out`: an estimate. Empty where nothing was counted."""
    if usage is None or usage == Usage():
        return ""
    about = _about(usage)
    counted = f"{about}{usage.input_tokens:,} in, {about}{usage.output_tokens:,} out"
    return f"{counted} · {dollars(cost)}" if cost is not None else counted


def output_text(output: Any) -> str:
    """What a step gave, as a person reads it: the answer of a model, a text, or JSON."""
    match output:
        case {"message": {"content": str(content)}} if content:
            return content
        case {"text": str(text), "run_id": str()}:  # of an agent's turn
            return text
        case {"output": str(text), "ok": bool()}:  # of a tool
            return text
        case str(text):
            return text
        case _:
            return msgspec.json.format(msgspec.json.encode(output)).decode()
