"""The JSON in a model's answer: where it begins, where it ends, and whether it is what the schema asks for.

Pure. Models put fences and words around JSON although they were asked not to. Where the schema wants an object or a
list, the answer is what stands between the first bracket and the one that closes it; where it may be anything else,
it is the whole text.
"""

from __future__ import annotations

import json
from typing import Any, Final

from tailrace.flows.schema.schema import Schema, types_of

BRACKETS: Final = {"{": "}", "[": "]"}
MAX_NUMBER_CHARS: Final = 400


def may_be_wrapped(schema: Schema) -> bool:
    """Whether nothing but an object or a list can satisfy it, so that words around it cannot be part of it."""
    root = schema.root
    for _ in range(10):
        if "type" in root or "$ref" not in root:
            break
        target = schema.resolve(root["$ref"])
        if not isinstance(target, dict):
            return False
        root = target
    return set(types_of(root)) <= {"object", "array"}


def beginning_of(text: str) -> int:
    """Where the first bracket stands; the length of the text where there is none."""
    return min((at for at in (text.find("{"), text.find("[")) if at >= 0), default=len(text))


def read_answer(text: str, schema: Schema) -> tuple[Any, list[str]]:
    """The value in the answer and what is wrong with it; nothing is where the list is empty."""
    value, problems = json_in(text, schema)
    return value, problems or schema.errors(value)


def json_in(text: str, schema: Schema) -> tuple[Any, list[str]]:
    """The value in the answer, and why there is none; it is not checked yet."""
    if may_be_wrapped(schema):
        start = beginning_of(text)
        if start == len(text):
            return None, ["there is no JSON in the answer"]
        text = text[start:]
    try:
        value, end = DECODER.raw_decode(text.lstrip())
        if not may_be_wrapped(schema) and text.lstrip()[end:].strip():
            return None, ["there is more than JSON in the answer"]
    except (ValueError, RecursionError) as exc:
        return None, [f"not valid JSON: {exc}"]
    return value, []


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A name that comes twice makes the answer two answers."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is given twice in one object")
    return found


def _short(digits: str) -> str:
    if len(digits) > MAX_NUMBER_CHARS:
        raise ValueError(f"a number of more than {MAX_NUMBER_CHARS} characters")
    return digits


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_once,
    parse_constant=_no_constant,
    parse_int=lambda digits: int(_short(digits)),
    parse_float=lambda digits: float(_short(digits)),
)
