"""The tool calls of the answer under way whose arguments are still coming."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tailrace.events import CallSoFar
from tailrace.messages import ToolCall
from tailrace.runs.view.changes import WrittenCall

_STORED: Final = b'{"type":"tool_arguments_chunk","tool_name":%b,"index":%d,"text":'
_EMPTY: Final = b'""'
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(str).decode


class WrittenCalls:
    """Those of the newest attempt, in order: their indices follow upon each other."""

    def __init__(self, calls: Sequence[CallSoFar] = ()) -> None:
        self._calls = [WrittenCall(call.index, call.tool_name, [call.arguments]) for call in calls]
        self._next_piece = b""  # how the next piece of the newest call begins in storage; empty: not known

    @property
    def calls(self) -> tuple[WrittenCall, ...]:
        return tuple(self._calls)

    def add(self, tool_name: str, index: int, text: str, *, recorded: int) -> bool | None:
        """Whether this piece begins a call; None where the log does not have the calls before it. `recorded`: how many
        calls of the run are whole."""
        place = index - (self._calls[0].index if self._calls else recorded)
        if not 0 <= place <= len(self._calls):
            return None
        begins = place == len(self._calls)
        if begins:
            self._calls.append(WrittenCall(index, tool_name, []))
            self._next_piece = _STORED % (_encode(tool_name), index)
        self._calls[place].pieces.append(text)
        return begins

    def add_stored(self, stored: bytes) -> tuple[int, bytes] | None:
        """As `add`, for a stored event that is the next piece of the newest call: the call's index and the JSON of the
        piece. None, with nothing added, for any other event."""
        if not self._calls or not self._next_piece or not stored.startswith(self._next_piece):
            return None
        piece = stored[len(self._next_piece) : -1]
        if piece == _EMPTY:
            return None
        self._calls[-1].pieces.append(_decode(piece))
        return self._calls[-1].index, piece

    def became(self, calls: Sequence[ToolCall]) -> bool:
        """Whether these are the calls that were written, as far as they had come."""
        return len(self._calls) <= len(calls) and all(
            written.tool_name == call.name and call.arguments.startswith(written.text)
            for written, call in zip(self._calls, calls, strict=False)
        )

    def take_all(self) -> tuple[WrittenCall, ...]:
        """Removes them: they are whole, or broke off."""
        if not self._calls:
            return ()
        calls, self._calls, self._next_piece = tuple(self._calls), [], b""
        return calls
