"""JSON of peers to a dict and back. Invalid UTF-8 and lone surrogates are replaced, on the way out as well (A18);
anything else that is not one JSON object is a `PeerError`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from tailrace.errors import PeerError
from tailrace.messages import JsonObject
from tailrace.values.validation_words import decoding_problem

_DECODER = msgspec.json.Decoder()
_ENCODE = msgspec.json.Encoder().encode
# A character beyond ASCII in JSON, as it is or escaped.
find_wide = re.compile(rb"[\x80-\xff]|\\u(?:00[89a-fA-F]|0[1-9a-fA-F]|[1-9a-fA-F])").search
# An escaped surrogate that is not half of a pair. Backslashes are consumed in pairs, so that the "\\ud800" of a
# text that merely mentions the escape is left alone.
_LONE_SURROGATE = re.compile(
    rb"(\\[^u])|(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)


def repaired(data: bytes) -> bytes:
    """The same JSON text in valid UTF-8 and without lone surrogates (A02, A18)."""
    text = data.decode("utf-8", "replace").encode()
    return _LONE_SURROGATE.sub(lambda m: m[1] or m[2] or b"\\ufffd", text)


def without_lone_surrogates(text: str) -> str:
    """Halves that belong together become the character they mean, lone ones U+FFFD."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def encode_object(body: JsonObject) -> bytes:
    """The body as JSON, cleaned where it could not be sent otherwise."""
    try:
        return _ENCODE(body)
    except UnicodeEncodeError:
        return _ENCODE(_cleaned(body))


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return without_lone_surrogates(value)
    if isinstance(value, Mapping):
        return {_cleaned(name): _cleaned(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(item) for item in value]
    return value


GLUED = "glued"  # the code of an error: the data are more than one JSON value


def decode_object(data: bytes) -> JsonObject:
    """The one JSON object that `data` is. Raises `PeerError` for anything else, two glued objects included (A14)."""
    try:
        value = _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = _decode_repaired(data)
    if value.__class__ is not dict:
        raise PeerError(f"expected a JSON object, got {type(value).__name__}", excerpt=data)
    return value


def _decode_repaired(data: bytes) -> object:
    try:
        return _DECODER.decode(repaired(data))
    except msgspec.DecodeError as exc:
        problem = decoding_problem(exc)
        code = GLUED if "trailing characters" in problem else ""
        raise PeerError(f"not a JSON object: {problem}", excerpt=data, code=code) from exc
    except RecursionError as exc:
        raise PeerError("JSON nested too deeply", excerpt=data) from exc


def text_of(value: object) -> str:
    """A field that should be text; empty where it is anything else."""
    return value if value.__class__ is str else ""


def object_of(value: object) -> JsonObject:
    """A field that should be an object; empty where it is anything else."""
    return value if value.__class__ is dict else {}


def objects_of(value: object) -> list[JsonObject]:
    """The objects in a field that should be a list of them."""
    return [item for item in value if item.__class__ is dict] if value.__class__ is list else []


def count_of(value: object) -> int:
    """A field that should be a count, such as one of tokens; 0 where it is anything else."""
    if value.__class__ is int and 0 <= value < 2**63:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value < 2**63 else 0


def assign_fields(target: JsonObject, changes: JsonObject, skip: Collection[str] = ()) -> None:
    """Takes in the fields that are not in `skip`. Null means no news: it replaces nothing."""
    for name, value in changes.items():
        if name not in skip and (value is not None or name not in target):
            target[name] = value


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> JsonObject:
    """Both, objects merged key by key; where they differ `over` wins."""
    result = dict(base)
    for name, value in over.items():
        mine = result.get(name)
        result[name] = merged(mine, value) if isinstance(mine, Mapping) and isinstance(value, Mapping) else value
    return result


def is_object_text(text: str) -> bool:
    """The text is one complete JSON object, as the arguments of a finished call are."""
    try:
        msgspec.json.decode(text, type=dict)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True
