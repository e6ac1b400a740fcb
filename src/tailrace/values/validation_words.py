"""What is wrong with a value that a client sent or a user wrote, in plain words, from msgspec's errors.

Owns the words and the place of the mistake. Knows no route, no file and no field by name; the caller adds
those.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final, Literal, get_args, get_origin

import msgspec

_PLACED: Final = re.compile(r"(.*) - at (`key` in )?`\$([^`]*)`", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_NOT_ALLOWED: Final = re.compile(r"Invalid (?:enum )?value (.*)", re.DOTALL)
_PATTERN: Final = re.compile(r"Expected `str` matching regex (.*)", re.DOTALL)
_NOT_JSON: Final = "JSON is malformed: "
_CUT_OFF: Final = "Input data was truncated"
_MAX_SHOWN: Final = 80  # characters of the value

_TYPES: Final = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "bytes": "text in base64",
    "array": "a list",
    "object": "an object",
    "null": "null",
    "datetime": "a date and time as 2026-11-30T12:00:00Z",
}
_FOUND: Final = _TYPES | {"int": "a number", "bytes": "bytes", "datetime": "a date and time"}
_ITEMS: Final = {"str": "character", "bytes": "byte", "array": "item", "object": "key"}
_BOUNDS: Final = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}


def validation_mistake(exc: msgspec.ValidationError, kind: object = None) -> tuple[str, str]:
    """The place and the words. "Expected `int`, got `str` - at `$.n`" gives ".n" and "must be a whole number, not
    text". The place of the whole value is empty; that of a field that is not there is the field's own. `kind` is the
    type that the value should have had: the words then name what it allows."""
    placed = _PLACED.fullmatch(str(exc))
    message, of_key, place = placed.groups() if placed else (str(exc), None, "")
    if of_key:
        return place, f"a key {_worded(message, None, place)}"
    if missing := _MISSING.fullmatch(message):
        return f"{place}.{missing[1]}", "is missing"
    return place, _worded(message, kind, place)


def decoding_problem(exc: Exception, kind: object = None) -> str:
    """What decoding a value has raised, in one text: the place, where there is one, and the words."""
    if not isinstance(exc, msgspec.ValidationError):
        return "it ends too early" if str(exc) == _CUT_OFF else str(exc).removeprefix(_NOT_JSON)
    place, words = validation_mistake(exc, kind)
    return f"{place.removeprefix('.')}: {words}" if place else words


def _worded(message: str, kind: object, place: str) -> str:
    if unknown := _UNKNOWN.fullmatch(message):
        fields = ", ".join(sorted(_fields(kind))) if not place else ""
        return f"there is no field {unknown[1][:_MAX_SHOWN]!r}" + (f"; there are {fields}" if fields else "")
    hint = _type_at(kind, place)
    if other := _NOT_ALLOWED.fullmatch(message):
        allowed = ", ".join(sorted(map(str, _literals(hint))))
        found = other[1][:_MAX_SHOWN]
        return f"must be one of {allowed}, not {found}" if allowed else f"cannot be {found}"
    if pattern := _PATTERN.fullmatch(message):
        return next((f"must be {meaning}" for meaning in _meanings(hint)), f"must match the pattern {pattern[1]}")
    for form, words in _FORMS:
        if parts := form.fullmatch(message):
            return words(*parts.groups())
    return message[:1].lower() + message[1:]


# ── forms of messages ────────────────────────────────────────────────────────────────────────────────────────


def _wrong_type(expected: str, found: str) -> str:
    kinds = expected.split(" | ")
    names = list(dict.fromkeys(_TYPES.get(kind, kind) for kind in kinds))
    fraction = found == "float" and "int" in kinds
    return f"must be {_either(names)}, not {'a fraction' if fraction else _FOUND.get(found, found)}"


def _wrong_size(kind: str, bound: str, count: str) -> str:
    return "must not be empty" if (bound, count) == (">=", "1") else f"must have {_BOUNDS[bound]} {_items(kind, count)}"


def _wrong_count(at_least: str | None, at_most: str | None, count: str, found: str | None) -> str:
    bound = "at least " if at_least else "at most " if at_most else ""
    return f"must have {bound}{_items('array', count)}" + (f", not {found}" if found else "")


def _items(kind: str, count: str) -> str:
    return f"{count} {_ITEMS[kind]}" + ("" if count == "1" else "s")


def _either(names: list[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


_FORMS: Final[tuple[tuple[re.Pattern[str], Callable[..., str]], ...]] = (
    (re.compile(r"Expected `(.+)`, got `(.+)`"), _wrong_type),
    (re.compile(r"Expected `(str|bytes|array|object)` of length ([<>]=) (\d+)"), _wrong_size),
    (re.compile(r"Expected `array` of (at least )?(at most )?length (\d+(?: to \d+)?)(?:, got (\d+))?"), _wrong_count),
    (
        re.compile(r"Expected `(int|float)` ([<>]=?) (\S+)"),
        lambda _, bound, limit: f"must be {_BOUNDS[bound]} {limit.removesuffix('.0')}",
    ),
    (re.compile(r"Expected `(?:int|float)` that's a multiple of (\S+)"), "must be a multiple of {}".format),
    (re.compile(r"Expected `(int|str)`"), lambda kind: f"must be {_TYPES[kind]}"),
    (re.compile(r"(?:Integer value|Number) out of range"), lambda: "is too large or too small a number"),
    (re.compile(r"Invalid base64 encoded string"), lambda: "must be text in base64"),
    (re.compile(r"Invalid RFC3339 encoded datetime"), lambda: f"must be {_TYPES['datetime']}"),
)


# ── of the type ──────────────────────────────────────────────────────────────────────────────────────────────


def _fields(kind: Any) -> dict[str, object]:
    """The types of a struct's fields, by the names that a client writes."""
    return _struct_fields(kind) if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else {}


@cache
def _struct_fields(kind: type[msgspec.Struct]) -> dict[str, object]:
    """Asked for once: msgspec leaves a cycle behind each time (L148)."""
    return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}


def _type_at(kind: object, place: str) -> object:
    """What the type says of this place; None for a place further inside."""
    return _fields(kind).get(place.removeprefix(".")) if place else kind


def _literals(hint: object) -> Iterator[object]:
    """The values of the literals in a type."""
    for part in get_args(hint):
        if get_origin(hint) is Literal:
            yield part
        else:
            yield from _literals(part)


def _meanings(hint: object) -> Iterator[str]:
    """The descriptions in a type."""
    for part in get_args(hint):
        if isinstance(part, msgspec.Meta) and part.description:
            yield part.description
        else:
            yield from _meanings(part)
