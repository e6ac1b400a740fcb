"""Which call a piece of a streamed tool call belongs to (B23 to B26), and the calls as they grow. Whether arguments are
valid is decided where they are used."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from tailrace.messages import AnyDelta, JsonObject, ToolCallDelta
from tailrace.wire.peer_json import assign_fields, object_of, text_of

_OUTSIDE = re.compile(r'["{}\[\]]')
_WORD = re.compile(r"\S")
_INSIDE = re.compile(r'["\\]')
CALL_FIELDS = frozenset({"index", "id", "type", "function", "custom"})
_FUNCTION_FIELDS = frozenset({"name", "arguments", "input"})


class ObjectEnd:
    """Finds the end of a top-level JSON object in text that arrives in pieces. Each character is looked at once."""

    __slots__ = ("_depth", "_escaped", "_in_string")

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False  # the last piece ended in a backslash inside a string

    def find(self, text: str, start: int = 0) -> int:
        """The offset just past the object's last brace, or -1 where it goes on beyond `text`."""
        position = start
        if self._escaped and position < len(text):
            position, self._escaped = position + 1, False
        while found := (_INSIDE if self._in_string else _OUTSIDE).search(text, position):
            position = found.end()
            match found[0]:
                case '"':
                    self._in_string = not self._in_string
                case "\\":
                    self._escaped = position == len(text)
                    position += 1
                case "{" | "[":
                    self._depth += 1
                case _:
                    self._depth = max(0, self._depth - 1)
                    if self._depth == 0:
                        return position
        return -1


class GrowingCall:
    """One call under way."""

    def __init__(self, position: int) -> None:
        self.position = position  # among the calls of this answer
        self.id = ""
        self.name = ""
        self.kind = ""
        self.pieces: list[str] = []  # of the arguments' text
        self.extra: JsonObject = {}  # unknown fields of the call (`extra_content`, …)
        self.function: JsonObject = {}  # unknown fields of its `function`
        self.announced = False  # a delta with the name has been handed out
        self._end = ObjectEnd()
        self._scanned = 0  # pieces seen by `_end`
        self._whole = False

    def add(self, arguments: str, start: int) -> int:
        """Adds the next piece, from `start`. Without an id two objects in a row are two calls (B25): returns the offset
        of the rest that belongs to the next call."""
        if self.id:
            self.pieces.append(arguments[start:])
            return len(arguments)
        if self.is_whole():
            return _next_word(arguments, start)
        end = self._end.find(arguments, start)
        self._whole = end >= 0
        self._scanned += 1
        rest = _next_word(arguments, end) if self._whole else len(arguments)
        self.pieces.append(arguments[start:] if rest == len(arguments) else arguments[start:end])
        return rest

    def is_whole(self) -> bool:
        """The arguments so far are a finished object. Linear over the call's life, however often it is asked."""
        while not self._whole and self._scanned < len(self.pieces):
            self._whole = self._end.find(self.pieces[self._scanned]) >= 0
            self._scanned += 1
        return self._whole

    def rebuilt(self) -> JsonObject:
        """The call as the whole message has it: no `index`, which only the stream needs."""
        call: JsonObject = {"id": self.id} if self.id else {}
        arguments = "".join(self.pieces)
        if self.kind == "custom":
            return call | {"type": "custom", "custom": {"name": self.name, "input": arguments}} | self.extra
        function = {"name": self.name, "arguments": arguments} | self.function
        return call | {"type": self.kind or "function", "function": function} | self.extra


class ToolCalls:
    """The calls of one choice, in the order in which they began."""

    def __init__(self, *, choice: int, name_in_pieces: bool) -> None:
        self._choice = choice
        self._name_in_pieces = name_in_pieces
        self.calls: list[GrowingCall] = []
        self._by_index: dict[int, GrowingCall] = {}
        self._by_id: dict[str, GrowingCall] = {}

    def add(self, items: list[Any], deltas: list[AnyDelta]) -> None:
        """Takes in the `tool_calls` of one delta."""
        for position, item in enumerate(items):
            if isinstance(item, dict):
                self._add(item, position if len(items) > 1 else None, deltas)

    def at(self, index: object) -> GrowingCall | None:
        """The call that the server keeps at this index now."""
        return self._by_index.get(index) if isinstance(index, int) else None

    def flush(self, deltas: list[AnyDelta]) -> None:
        """Announces the calls that were held back for more pieces of their names."""
        for call in self.calls:
            if call.name and not call.announced:
                self._announce(call, deltas)

    def rebuilt(self) -> list[JsonObject]:
        return [call.rebuilt() for call in self.calls]

    def _add(self, item: JsonObject, position: int | None, deltas: list[AnyDelta]) -> None:
        function = function_of(item)
        id_, name = text_of(item.get("id")), text_of(function.get("name"))
        arguments = arguments_text(function.get("arguments", function.get("input")))
        index = item.get("index")
        index = index if isinstance(index, int) and not isinstance(index, bool) else None

        call = self._find(index, id_, name, arguments, position)
        if call is None:
            call = self._begin(index)
        late_id = bool(id_ and not call.id and call.announced)
        if id_ and not call.id:
            call.id = id_
            self._by_id[id_] = call
        call.kind = text_of(item.get("type")) or call.kind or ("custom" if "custom" in item else "")
        if name:
            call.name = call.name + name if self._name_in_pieces else name
        assign_fields(call.extra, item, CALL_FIELDS)
        assign_fields(call.function, function, _FUNCTION_FIELDS)
        if late_id:
            deltas.append(ToolCallDelta(call.position, id=id_, choice=self._choice))
        self._grow(call, index, arguments, deltas)

    def _grow(self, call: GrowingCall, index: int | None, arguments: str, deltas: list[AnyDelta]) -> None:
        rest = 0
        while True:
            before = len(call.pieces)
            if arguments:
                rest = call.add(arguments, rest)
            if call.announced:
                if len(call.pieces) > before and call.pieces[-1]:
                    deltas.append(ToolCallDelta(call.position, arguments=call.pieces[-1], choice=self._choice))
            elif call.name and (arguments or not self._name_in_pieces):
                self._announce(call, deltas)  # what came before the name was held, and goes along (B30)
            if rest >= len(arguments):
                return
            name, kind = call.name, call.kind
            call = self._begin(index)
            call.name, call.kind = name, kind

    def _announce(self, call: GrowingCall, deltas: list[AnyDelta]) -> None:
        call.announced = True
        arguments = "".join(call.pieces)
        deltas.append(ToolCallDelta(call.position, call.id, call.name, arguments, self._choice))

    def _begin(self, index: int | None) -> GrowingCall:
        call = GrowingCall(len(self.calls))
        self.calls.append(call)
        if index is not None:
            self._by_index[index] = call
        return call

    def _find(self, index: int | None, id_: str, name: str, arguments: str, position: int | None) -> GrowingCall | None:
        """The call that this piece continues, or None where it begins one."""
        if index is not None:
            call = self._by_index.get(index)
            if call is None:
                return self._by_id.get(id_) if not name else None
            if id_ and call.id and id_ != call.id:
                return self._by_id.get(id_)  # all calls at one index: a new id is a new call (B24)
        elif id_:
            return self._by_id.get(id_)
        elif position is None:
            call = self.calls[-1] if self.calls else None  # a lone piece goes on with what came last
        else:
            call = self.calls[position] if position < len(self.calls) else None
        if call is None or id_:
            return call
        return None if self._begins_another(call, index, name, arguments) else call

    def _begins_another(self, call: GrowingCall, index: int | None, name: str, arguments: str) -> bool:
        """Without an id, only what a piece brings can say that it is not a part of `call`. A name alone does not:
        some servers resend it with every piece (B27), others send it after the arguments (B30)."""
        if not name or self._name_in_pieces or not (call.name or arguments):
            return False
        if index is None and call.name and name != call.name:
            return True
        return (name != call.name or arguments.lstrip().startswith("{")) and call.is_whole()


def _next_word(arguments: str, start: int) -> int:
    """Where the next object begins, or the end where only space follows."""
    found = _WORD.search(arguments, start)
    return found.start() if found else len(arguments)


def function_of(call: JsonObject) -> JsonObject:
    """The name and the input of a call of either kind."""
    return object_of(call.get("function")) or object_of(call.get("custom"))


def arguments_text(value: object) -> str:
    """Arguments as JSON text, also where a server sends them as an object (B31)."""
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()


def made_call_id(answer_id: str, position: int) -> str:
    """An id for a call that came without: a tool's result must name the call it answers."""
    return f"call_{answer_id[-24:]}_{position}" if answer_id else f"call_{position}"
