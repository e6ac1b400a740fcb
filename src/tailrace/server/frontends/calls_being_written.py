"""Tool calls of the answer under way whose arguments are still coming: what both front ends show of them.

Pure. A call has the same id while it is written and once it is whole, and a call that is made anew takes the id of the
one that broke off: what names a call is its place in the run, which the recorded messages alone tell too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from tailrace.agent.client_calls import client_call_id
from tailrace.events import ToolArgumentsChunk
from tailrace.messages import ToolCall

_STORED: Final = b'{"type":"tool_arguments_chunk","tool_name":%b,"index":%d,"text":'
_EMPTY: Final = b'""'
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(str).decode


def own_call_id(run_id: str, index: int) -> str:
    """The id by which front ends know a call of one of our tools: providers use theirs again."""
    return f"tool_{run_id.removeprefix('run_')}_{index}"


class CallBeingWritten:
    """One call, as far as it has come."""

    def __init__(self, tool_name: str, shown_id: str, *, foreign: bool, stored: bytes) -> None:
        self.tool_name, self.shown_id, self.foreign = tool_name, shown_id, foreign
        self.pieces: list[str] = []
        self._stored = stored  # how the next piece of it begins in storage

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def stored_piece(self, line: bytes) -> bytes | None:
        """The JSON of the next piece's text, where this stored event has one; None where it has not."""
        piece = line[len(self._stored) : -1] if line.startswith(self._stored) else _EMPTY
        if piece == _EMPTY:
            return None
        self.pieces.append(_decode(piece))
        return piece


class CallsBeingWritten:
    """Those of the newest attempt, in order."""

    def __init__(self) -> None:
        self.calls: list[CallBeingWritten] = []

    @property
    def newest(self) -> CallBeingWritten | None:
        return self.calls[-1] if self.calls else None

    def take_chunk(
        self, chunk: ToolArgumentsChunk, run_id: str, foreign: Collection[str], *, recorded: int, recorded_foreign: int
    ) -> tuple[CallBeingWritten, bool] | None:
        """The call that grows, and whether it has just begun. `recorded` calls of the run are whole, and among them
        `recorded_foreign` of the client's tools. None where the calls before it are not known."""
        place = chunk.index - recorded
        if not 0 <= place <= len(self.calls):
            return None
        begins = place == len(self.calls)
        if begins:
            name = chunk.tool_name
            number = recorded_foreign + sum(call.foreign for call in self.calls)
            shown_id = client_call_id(run_id, number) if name in foreign else own_call_id(run_id, chunk.index)
            stored = _STORED % (_encode(name), chunk.index)
            self.calls.append(CallBeingWritten(name, shown_id, foreign=name in foreign, stored=stored))
        self.calls[place].pieces.append(chunk.text)
        return self.calls[place], begins

    def became(self, calls: Sequence[ToolCall]) -> bool:
        """Whether these are the calls that were written, as far as they had come."""
        return len(self.calls) <= len(calls) and all(
            written.tool_name == call.name and call.arguments.startswith(written.text)
            for written, call in zip(self.calls, calls, strict=False)
        )

    def take_all(self) -> list[CallBeingWritten]:
        """Removes them: they are whole, or broke off."""
        calls, self.calls = self.calls, []
        return calls
