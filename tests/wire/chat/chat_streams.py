"""Chat completion streams, written down chunk by chunk."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tailrace.config.quirks import NONE, WireQuirks
from tailrace.messages import AnyDelta, Completion, ErrorDelta, JsonObject, TextDelta, ToolCallDelta
from tailrace.wire.chat.completion import completion_from_body
from tailrace.wire.chat.decode import ChatDecoder

DONE = b"data: [DONE]\n\n"
HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1700000000, "model": "m"}


def event(payload: object) -> bytes:
    return b"data: %b\n\n" % json.dumps(payload, ensure_ascii=False).encode()


def chunk(delta: JsonObject | None = None, finish: str | None = None, *, index: int = 0, **fields: Any) -> bytes:
    """One chunk with one choice; `fields` stand at the top."""
    choice = {"index": index, "delta": delta if delta is not None else {}, "finish_reason": finish}
    return event({**HEAD, "choices": [choice], **fields})


def calls(*items: JsonObject) -> bytes:
    return chunk({"tool_calls": list(items)})


def piece(arguments: Any = None, *, name: str | None = None, **fields: Any) -> JsonObject:
    """One element of a delta's `tool_calls`: only what is given is there."""
    function = {k: v for k, v in (("name", name), ("arguments", arguments)) if v is not None}
    return {**fields, "function": function}


@dataclass(frozen=True)
class Said:
    """What a decoder made of a stream."""

    deltas: list[AnyDelta]
    body: JsonObject
    complete: bool

    @property
    def completion(self) -> Completion:
        return completion_from_body(self.body)

    @property
    def text(self) -> str:
        return "".join(d.text for d in self.deltas if isinstance(d, TextDelta))

    @property
    def errors(self) -> list[ErrorDelta]:
        return [d for d in self.deltas if isinstance(d, ErrorDelta)]

    @property
    def calls(self) -> list[tuple[str, str, str]]:
        """Id, name and arguments of the calls as the body has them."""
        return [(c.id, c.name, c.arguments) for c in self.completion.tool_calls]

    @property
    def streamed_calls(self) -> list[tuple[str, str, str]]:
        """The same, put together from the deltas by somebody who knows nothing but their contract."""
        growing: dict[int, tuple[str, str, str]] = {}
        for d in self.deltas:
            if isinstance(d, ToolCallDelta):
                id_, name, arguments = growing.get(d.index, ("", "", ""))
                growing[d.index] = (id_ or d.id, name or d.name, arguments + d.arguments)
        return [growing[index] for index in sorted(growing)]


class LongWayDecoder(ChatDecoder):
    """Parses and folds every chunk in full: no templates, no short way of plain chunks."""

    def __init__(self, quirks: WireQuirks = NONE, *, keep_events: bool = False) -> None:
        super().__init__(quirks, keep_events=keep_events)
        self._samples_left = 0

    def _add_plain(self, _chunk: JsonObject, _deltas: list[AnyDelta]) -> bool | None:
        return None


def decoded(
    pieces: Iterable[bytes] | bytes, quirks: WireQuirks = NONE, *, templates: bool = True, cut: bool = False
) -> Said:
    """Feeds the pieces and ends the input. Without `templates` every chunk goes the long way."""
    decoder = ChatDecoder(quirks) if templates else LongWayDecoder(quirks)
    deltas: list[AnyDelta] = []
    for data in [pieces] if isinstance(pieces, bytes) else pieces:
        deltas += decoder.feed(data)
    deltas += decoder.close(cut=cut)
    return Said(deltas, decoder.rebuilt_body(), decoder.complete)
