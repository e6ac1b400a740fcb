"""What services do to their own event grammar: each edit takes the right events and returns the wrong ones.

Pure, and named as a scenario names it. Knows nothing of framing and delivery.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from tailrace.messages import Dialect, JsonObject, Value
from tailrace.testing.scripted.failures import FAILURES, Failure, error_events
from tailrace.testing.scripted.request_reader import ScriptedRequest, Sse

Events: TypeAlias = list[Sse]
Run: TypeAlias = Callable[[Events, ScriptedRequest], Events]
ALL: tuple[Dialect, ...] = ("chat", "responses", "anthropic")
TERMINAL = {"response.completed", "response.incomplete", "message_stop"}


class Edit(Value):
    """`needs` names the reply that shows it, where the scenario does not choose one."""

    summary: str
    run: Run
    dialects: tuple[Dialect, ...] = ALL
    needs: str = ""


EDITS: dict[str, Edit] = {}


def edit(name: str, summary: str, *dialects: Dialect, needs: str = "") -> Callable[[Run], Run]:
    def register(run: Run) -> Run:
        EDITS[name] = Edit(summary, run, dialects or ALL, needs)
        return run

    return register


# ── reading an event ─────────────────────────────────────────────────────────────────────────────────────────


def data_of(event: Sse) -> JsonObject:
    return event.data if isinstance(event.data, dict) else {}


def kind_of(event: Sse) -> str:
    return str(data_of(event).get("type", ""))


def finishes(event: Sse) -> bool:
    return any(choice.get("finish_reason") for choice in data_of(event).get("choices") or [])


def _is_terminal(event: Sse) -> bool:
    return event.data == "[DONE]" or kind_of(event) in TERMINAL


def dialect_of(events: Events) -> Dialect:
    """Chat's events bear no type."""
    first = kind_of(events[0]) if events else ""
    return "responses" if first.startswith("response.") else "anthropic" if first else "chat"


# ── the shapes of edits ──────────────────────────────────────────────────────────────────────────────────────


def dropping(is_dropped: Callable[[Sse], bool]) -> Run:
    return lambda events, _request: [event for event in events if not is_dropped(event)]


# ── endings ──────────────────────────────────────────────────────────────────────────────────────────────────

edit("no-terminal", "the terminal event is missing: [DONE], response.completed or message_stop")(dropping(_is_terminal))
edit("no-ending", "neither a finish reason nor the terminal event comes, yet the body ends cleanly")(
    dropping(lambda event: _is_terminal(event) or finishes(event) or kind_of(event) == "message_delta")
)
edit("only-ending", "the terminal event comes and nothing before it")(
    lambda events, _request: [event for event in events if _is_terminal(event)]
)
edit("no-finish-reason", "[DONE] comes without a finish reason before it", "chat")(dropping(finishes))


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────────


def _failing(failure: Failure, *, midway: bool) -> Run:
    def run(events: Events, request: ScriptedRequest) -> Events:
        at = len(events) // 2 if midway else 0
        return [*events[:at], *error_events(dialect_of(events), failure, request, after=at)]

    return run


for _kind_of_failure, _failure in FAILURES.items():
    _said = f"{_kind_of_failure} ({_failure.status})"
    edit(f"error-{_kind_of_failure}", f"half-way the stream says {_said} and ends")(_failing(_failure, midway=True))
    edit(f"first-error-{_kind_of_failure}", f"the first event of the stream says {_said}")(
        _failing(_failure, midway=False)
    )

# ── unreadable things ──────────────────────────────────────────────────────────────────────────────────


@edit("unreadable", "one event in the middle is cut JSON")
def cut_one_event(events: Events, _request: ScriptedRequest) -> Events:
    middle = len(events) // 2
    broken = Sse(msgspec.json.encode(events[middle].data).decode()[:-3], events[middle].event)
    return [*events[:middle], broken, *events[middle + 1 :]]
