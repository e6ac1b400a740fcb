"""Every mistake in the structure of a definition, and the definition that was probably meant.

For the author of a file, who wants all mistakes at once. Pure. What is misspelt is taken for what it resembles and what
cannot be read is left out, so that the rest of the file can be checked too: what comes of it is never run.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, get_args

import msgspec

from tailrace.flows.definition.definition import (
    BLOCK_TYPES,
    Block,
    BlockId,
    Budget,
    Case,
    Definition,
    DefinitionError,
    Retry,
)
from tailrace.flows.definition.spelling import did_you_mean
from tailrace.values.validation_words import validation_mistake

UNKNOWN_HANDLER: Final = "\0unknown"  # of a block that cannot be read: nothing more is said of it
_BLOCKS: Final = {str(block.__struct_config__.tag): block for block in get_args(Block)}
_LISTS_OF_BLOCKS: Final = frozenset({"blocks", "body", "default", "try_block", "catch_block", "finally_block"})
_PARTS: Final[dict[str, type[msgspec.Struct]]] = {"retry": Retry, "budget": Budget}


@cache
def fields_of(kind: type[msgspec.Struct]) -> Mapping[str, msgspec.structs.FieldInfo]:
    """By the name in a definition. Cached: to evaluate type hints takes longer than to check a whole definition."""
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


class Structure:
    """`mistakes` in the order of the text; `repaired` is the definition that is left, None where there is none."""

    def __init__(self, value: Any) -> None:
        self.mistakes: list[DefinitionError] = []
        repaired = self._struct(value, Definition, "$")
        try:
            self.repaired: Definition | None = msgspec.convert(repaired, Definition)
        except (msgspec.ValidationError, RecursionError):
            self.repaired = None

    def _note(self, path: str, message: str) -> None:
        self.mistakes.append(DefinitionError(path, message))

    def _struct(self, value: Any, kind: type[msgspec.Struct], path: str, *, skip: str = "") -> dict[str, Any]:
        """What can be read of a struct; `skip` is its tag's field."""
        if not isinstance(value, Mapping):
            self._note(path, f"expected keys and values, found {_shown(value)}")
            return {}
        fields = fields_of(kind)
        found: dict[str, Any] = {}
        for key, inner in value.items():
            if key == skip:
                continue
            name: str | None = key
            if key not in fields:
                hint, name = did_you_mean(str(key), [other for other in fields if other not in value] or list(fields))
                self._note(f"{path}.{key}", f"unknown key{hint}")
            if name is None or name in found:
                continue
            before = len(self.mistakes)
            read = self._field(inner, name, fields[name].type, f"{path}.{key}")
            if len(self.mistakes) == before or isinstance(read, list | dict):
                found[name] = read
        missing = [name for name, field in fields.items() if field.required and name not in value and name not in found]
        if missing:
            self._note(path, "missing: " + ", ".join(missing))
        return found

    def _field(self, value: Any, name: str, kind: Any, path: str) -> Any:
        if name in _LISTS_OF_BLOCKS:
            return self._blocks(value, path)
        if name == "branches" and isinstance(value, list):
            return [self._blocks(branch, f"{path}[{number}]") for number, branch in enumerate(value)]
        if name == "routes" and isinstance(value, list):
            return [self._struct(case, Case, f"{path}[{number}]") for number, case in enumerate(value)]
        if name in _PARTS and value is not None:
            return self._struct(value, _PARTS[name], path)
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError as exc:
            place, message = validation_mistake(exc, kind)
            self._note(path + place, message)
            return None
        return value

    def _blocks(self, value: Any, path: str) -> list[Any]:
        if not isinstance(value, list):
            self._note(path, f"expected a list of blocks, found {_shown(value)}")
            return []
        if not value and path == "$.blocks":
            self._note(path, "there is no block")
        return [self._block(block, f"{path}[{number}]") for number, block in enumerate(value)]

    def _block(self, value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            self._note(path, f"expected keys and values, found {_shown(value)}")
            return _unread(None, path)
        tag = value.get("type")
        if tag is None:
            self._note(path, f"missing: type, one of {', '.join(BLOCK_TYPES)}")
            return _unread(value.get("id"), path)
        meant: str | None = tag if isinstance(tag, str) and tag in _BLOCKS else None
        if meant is None:
            hint, meant = did_you_mean(str(tag), BLOCK_TYPES)
            self._note(f"{path}.type", f"unknown type {str(tag)[:60]!r}{hint}")
        if meant is None:
            return _unread(value.get("id"), path)
        found = {"type": meant, **self._struct(value, _BLOCKS[meant], path, skip="type")}
        try:
            msgspec.convert(found, _BLOCKS[meant])
        except msgspec.ValidationError as exc:
            if not any(mistake.path.startswith(path) for mistake in self.mistakes):
                place, message = validation_mistake(exc, _BLOCKS[meant])
                self._note(path + place, message)
            return _unread(value.get("id"), path)
        return found


def _unread(name: Any, path: str) -> dict[str, Any]:
    """A block in place of one that cannot be read: its id is known to the others."""
    try:
        known = msgspec.convert(name, BlockId)
    except msgspec.ValidationError:
        known = "_unread" + "".join(c if c.isalnum() else "_" for c in path)[-80:]
    return {"type": "step", "id": known, "handler": UNKNOWN_HANDLER}


def _shown(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case list():
            return "a list"
        case dict():
            return "keys and values"
        case str(text):
            return repr(text[:60])
        case _:
            return str(value)[:60]
