"""What the events of a turn are to a callback that takes text: each piece of the answer, and the end of each response.

Values only: who calls the callback, and in which thread, is `blocking_agent`'s affair.
"""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.events import AnyEvent, Entry
from tailrace.runs.view import RunView, changes


class CallbackText:
    """What a `stream_callback` is called with: the text as it comes, and None when a response of the model has ended,
    also one that only called tools. A turn ends with None in any case."""

    def __init__(self) -> None:
        self._view = RunView()
        self._is_open = True  # None is still to come

    def of_event(self, event: AnyEvent) -> Iterator[str | None]:
        for change in self._view.apply(Entry(0, event)):
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
                case changes.Ended():
                    yield from self._end()
                case _:
                    pass

    def _end(self) -> Iterator[None]:
        if self._is_open:
            self._is_open = False
            yield None
