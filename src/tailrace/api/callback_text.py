"""What the events of a turn are to callbacks: each piece of the answer, the end of each response, each tool.

Values only: who calls the callback, and in which thread, is `blocking_agent`'s affair.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from tailrace.events import Entry
from tailrace.messages import JsonObject
from tailrace.runs.view import RunView, changes


class ToolBegan(NamedTuple):
    name: str
    preview: str | None
    args: JsonObject | None


class ToolEnded(NamedTuple):
    name: str
    duration_s: float
    ok: bool


class TextBeforeTools(NamedTuple):
    text: str


ForCallback: TypeAlias = str | ToolBegan | ToolEnded | TextBeforeTools | None


class CallbackText:
    """The text as it comes, and None when a response of the model has ended, also one that only called tools. A turn
    ends with None in any case."""

    def __init__(self) -> None:
        self._view = RunView()
        self._is_open = True  # None is still to come

    def of_entry(self, entry: Entry) -> Iterator[ForCallback]:
        for change in self._view.apply(entry):
            match change:
                case changes.TextGrew(text=text, final=final):
                    if text:
                        self._is_open = True
                        yield text
                    if final:
                        yield from self._end()
                case changes.AttemptBegan():
                    self._is_open = True
                case changes.MessageJoined(message=message) if message.role == "assistant":
                    yield from self._end()
                    if message.text and message.tool_calls:
                        yield TextBeforeTools(message.text)
                case changes.CallRuns(tool_name=name, preview=preview, args=args):
                    yield ToolBegan(name, preview, args)
                case changes.CallEnded(tool_name=name, ok=ok, duration_s=float(duration_s)):
                    yield ToolEnded(name, duration_s, ok)
                case changes.Ended():
                    yield from self._end()
                case _:
                    pass

    def _end(self) -> Iterator[None]:
        if self._is_open:
            self._is_open = False
            yield None
