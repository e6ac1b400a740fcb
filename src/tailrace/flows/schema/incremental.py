"""Half an answer against its schema: whether what is still to come could make it valid.

Pure, sans-IO: pieces of the text in, a verdict out; any split of the same text gives the same verdict in the end.
Sound: it never rejects the beginning of an answer that `read_answer` would accept. It need not notice everything: what
only the whole value can show is left for the whole value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tailrace.flows.schema.extract import BRACKETS, DECODER, MAX_NUMBER_CHARS, beginning_of, may_be_wrapped, read_answer
from tailrace.flows.schema.schema import Schema, item_schema, type_name, types_of

_SPACE: Final = " \t\n\r"
_TEXT: Final = re.compile(r'[^"\\]+')
_OPEN_ESCAPE: Final = re.compile(r"(?<!\\)((?:\\\\)*)(?:\\u[dD][89abAB]..)?(?:\\(?:u[0-9a-fA-F]{0,3})?)?$")
_SCALAR: Final = re.compile(r"[-+.\w]+")  # a number, true, false or null
_FIRST: Final = {"{": "object", "[": "array", '"': "string", "t": "boolean", "f": "boolean", "n": "null"}
MAX_DEPTH: Final = 200
# What reading along may cost (L140): past these the answer is checked once it is whole.
MAX_PIECE_CHARS: Final = 50_000
MAX_CHARS: Final = 2_000_000
MAX_WORK: Final = 200_000


class _Invalid(Exception):
    """What has come cannot become valid."""


class _Container:
    """An object or a list that is open."""

    __slots__ = ("close", "expects", "key", "parts", "size", "value")

    def __init__(self, opening: str, parts: tuple[Mapping[str, Any], ...]) -> None:
        self.close = BRACKETS[opening]
        self.parts = parts  # what must all hold for it
        self.value: Any = {} if opening == "{" else []
        self.size = 1  # values in it, itself included
        self.key = ""
        self.expects = "first"  # "first", "key", "colon", "value" or "comma"


class PartialAnswer:
    """One answer while it grows. `problem` is empty as long as it can still become valid."""

    def __init__(self, schema: Schema) -> None:
        self.schema = self._schema = schema
        self._wrapped = may_be_wrapped(schema)
        self._text: list[str] = []
        self._begun = False
        self.is_whole = False  # or too much of it has come to be read along
        self._stack: list[_Container] = []
        self._token: list[str] = []  # pieces of a text, number or word that is not complete, as they are written
        self._kind = ""  # of that token: "string", "key" or "scalar"
        self._escaped = False  # the next character of the text is part of an escape
        self._parts: tuple[Mapping[str, Any], ...] = ()  # what must hold for the value that is being read
        self._chars = 0
        self._work = 0  # that the schema has caused so far
        self._value: Any = None  # once it is whole
        self.problem = ""

    def feed(self, piece: str) -> str:
        """The problem, if there is one now."""
        self._text.append(piece)
        self._chars += len(piece)
        if len(piece) > MAX_PIECE_CHARS or self._chars > MAX_CHARS or self._work > MAX_WORK:
            self.is_whole = True  # the rest waits for the whole value, which is not checked on the loop
        if self.problem or self.is_whole:
            return self.problem
        try:
            self._read(self._json_in(piece))
        except _Invalid as exc:
            self.problem = str(exc)
        return self.problem

    @property
    def text(self) -> str:
        """All that has come."""
        return "".join(self._text)

    @property
    def value_so_far(self) -> Any:
        """The value as far as it has come: a text may be half; a number or a word is left out until it is whole."""
        found: list[Any] = [self._half_text()] if self._kind == "string" else []
        for top in reversed(self._stack):
            if isinstance(top.value, dict):
                found = [{**top.value, **dict.fromkeys([top.key][: len(found)], *found)}]
            else:
                found = [[*top.value, *found]]
        return found[0] if found else self._value

    def close(self) -> tuple[Any, list[str]]:
        """The whole answer's value and everything that is wrong with it."""
        return read_answer(self.text, self._schema)

    def _json_in(self, piece: str) -> str:
        if self._begun or not self._wrapped:
            return piece
        start = beginning_of(piece)
        self._begun = start < len(piece)
        return piece[start:]

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────

    def _read(self, piece: str) -> None:
        at = 0
        while at < len(piece) and not self.is_whole and self._work <= MAX_WORK:
            if self._kind in ("string", "key"):
                at = self._in_text(piece, at)
            elif self._kind:
                at = self._in_scalar(piece, at)
            else:
                self._between(piece[at])
                at += 1
        if self.is_whole and not self._wrapped and piece[at:].strip(_SPACE):
            raise _Invalid("there is more than JSON in the answer")

    def _between(self, char: str) -> None:
        if char in _SPACE:
            return
        if not self._stack:
            self._begin_value(char, self._applying((self._schema.root,)))
            return
        top = self._stack[-1]
        if char == top.close and top.expects in ("first", "comma"):
            self._stack.pop()
            self._finish(top.value, top.parts, top.size)
        elif top.expects == "comma":
            if char != ",":
                raise _Invalid(f"expected ',' or {top.close!r}, found {char!r}")
            top.expects = "key" if top.close == "}" else "value"
        elif top.expects == "colon":
            if char != ":":
                raise _Invalid(f"expected ':', found {char!r}")
            top.expects = "value"
        elif top.close == "}" and top.expects in ("first", "key"):
            if char != '"':
                raise _Invalid(f"expected a name in quotes, found {char!r}")
            self._begin_token("key", char)
        else:
            self._begin_value(char, self._parts_of_next(top))

    def _begin_value(self, char: str, parts: tuple[Mapping[str, Any], ...]) -> None:
        kind = _FIRST.get(char, "number" if char in "-0123456789" else "")
        if not kind:
            raise _Invalid(f"{char!r} begins no JSON value")
        self._check_type(kind, parts)
        self._parts = parts
        if char in BRACKETS:
            if len(self._stack) >= MAX_DEPTH:
                raise _Invalid("nested too deeply")
            self._stack.append(_Container(char, parts))
        else:
            self._begin_token("string" if kind == "string" else "scalar", char)

    def _begin_token(self, kind: str, first: str) -> None:
        self._kind, self._token = kind, [first]

    def _in_text(self, piece: str, at: int) -> int:
        char = piece[at]
        if self._escaped or char == "\\":
            self._escaped = not self._escaped
            self._token.append(char)
            return at + 1
        if char != '"':
            plain = _TEXT.match(piece, at)
            self._token.append(plain[0] if plain else "")
            return plain.end() if plain else at
        text, kind, self._kind = self._decoded('"'), self._kind, ""
        if kind == "key":
            self._name(text)
        else:
            self._finish(text, self._parts)
        return at + 1

    def _in_scalar(self, piece: str, at: int) -> int:
        """Numbers and words end where something else begins."""
        if more := _SCALAR.match(piece, at):
            self._token.append(more[0])
            if sum(map(len, self._token)) > MAX_NUMBER_CHARS:
                raise _Invalid(f"a number of more than {MAX_NUMBER_CHARS} characters")
            return more.end()
        self._kind = ""
        self._finish(self._decoded(), self._parts)
        return at  # what ended it is read next

    def _half_text(self) -> str:
        """Of the token, without an escape at its end that is not complete."""
        written = "".join(self._token)
        whole = _OPEN_ESCAPE.sub(r"\1", written)
        return str(DECODER.decode(whole + '"'))

    def _decoded(self, end: str = "") -> Any:
        written = "".join(self._token) + end
        try:
            return DECODER.decode(written)
        except ValueError as exc:
            raise _Invalid(f"{written[:60]!r} is no JSON value") from exc

    # ── what the schema says ─────────────────────────────────────────────────────────────────────────────────

    def _applying(self, schemas: tuple[Any, ...]) -> tuple[Mapping[str, Any], ...]:
        """Everything that must hold, references followed. Alternatives wait for the whole value."""
        found: list[Mapping[str, Any]] = []
        pending = list(schemas)
        self._work += 1
        while pending:
            schema = pending.pop()
            if schema is True:
                continue
            if schema is False:
                raise _Invalid(f"{self._place()}: nothing is allowed here")
            found.append(schema)
            self._work += 1
            pending += schema.get("allOf", ())
            if "$ref" in schema:
                pending.append(self._schema.resolve(schema["$ref"]))
        return tuple(found)

    def _parts_of_next(self, top: _Container) -> tuple[Mapping[str, Any], ...]:
        if top.close == "}":
            return self._applying(
                tuple(inner for part in top.parts for inner in self._schema.property_schemas(part, top.key))
            )
        index = len(top.value)
        for part in top.parts:
            if index >= part.get("maxItems", index + 1):
                raise _Invalid(f"{self._place()}: more than {part['maxItems']} items")
        inner = [item_schema(part, index) for part in top.parts]
        return self._applying(tuple(schema for schema in inner if schema is not None))

    def _name(self, name: str) -> None:
        top = self._stack[-1]
        if name in top.value:
            raise _Invalid(f"{name!r} is given twice in one object")
        for part in top.parts:
            self._work += 5 * len(part.get("patternProperties", ())) + 5 * ("propertyNames" in part)
            if len(top.value) >= part.get("maxProperties", len(top.value) + 1):
                raise _Invalid(f"{self._place()}: more than {part['maxProperties']} properties")
            if False in self._schema.property_schemas(part, name):
                raise _Invalid(f"{self._place()}: {name!r} is not allowed")
            if "propertyNames" in part and not self._schema.valid(name, part["propertyNames"]):
                raise _Invalid(f"{self._place()}: {name!r} is not allowed as a name")
        top.key, top.expects = name, "colon"

    def _check_type(self, kind: str, parts: tuple[Mapping[str, Any], ...]) -> None:
        for part in parts:
            if "type" in part:
                wanted = types_of(part)
                if kind not in wanted and not (kind == "number" and "integer" in wanted):
                    raise _Invalid(f"{self._place(inside=True)}: expected {' or '.join(wanted)}, found {kind}")
            for choices in _choices(part):
                self._work += len(choices)
                if not any(_begins_like(choice, kind) for choice in choices):
                    raise _Invalid(f"{self._place(inside=True)}: {kind} is none of the values that are allowed")

    def _finish(self, value: Any, parts: tuple[Mapping[str, Any], ...], size: int = 1) -> None:
        """A value is whole: now everything that is said of it can be checked, where that is cheap."""
        size += len(value) // 64 if isinstance(value, str) else 0
        for part in parts:
            cost = self._schema.part_cost(part)
            if (cost.recursive and size > 1) or cost.parts * size > MAX_WORK - self._work:
                continue
            self._work += cost.parts * size
            for problem in self._schema.part_errors(value, part):  # what it refers to is a part of its own
                place = self._place(inside=True)
                raise _Invalid(f"{place}{problem[1:]}" if problem.startswith("/:") else place.rstrip("/") + problem)
        if not self._stack:
            self.is_whole, self._value = True, value
            return
        top = self._stack[-1]
        top.size += size
        if isinstance(top.value, dict):
            top.value[top.key] = value
        else:
            top.value.append(value)
        top.expects = "comma"

    def _place(self, *, inside: bool = False) -> str:
        """Where the reading is; `inside` the value that the innermost container is about to get."""
        stack = self._stack if inside else self._stack[:-1]
        return "/" + "/".join(top.key if isinstance(top.value, dict) else str(len(top.value)) for top in stack)


def _choices(part: Mapping[str, Any]) -> Iterator[list[Any]]:
    if "enum" in part:
        yield part["enum"]
    if "const" in part:
        yield [part["const"]]


def _begins_like(choice: Any, kind: str) -> bool:
    found = type_name(choice)
    return found == kind or (kind == "number" and found == "integer")
