"""The type that an agent answers with: its schema, its objects, and an object that is not whole yet.

A msgspec struct, a dataclass, a TypedDict, or what pydantic knows. Any other type stands in an object of one field.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, Generic, TypeVar, cast, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

from tailrace.errors import ConfigError
from tailrace.flows.schema.extract import json_in
from tailrace.flows.schema.schema import Schema, SchemaError
from tailrace.messages import JsonObject

T = TypeVar("T")
_FIELD: Final = "value"  # of the object around any other type
_LISTS: Final = (list, tuple, set, frozenset, Sequence)


class OutputType(Generic[T]):
    def __init__(self, output: type[T]) -> None:
        """Raises `ConfigError` for a type that no JSON schema describes."""
        self._type: Any = output
        self._adapter = _pydantic_adapter(output)
        try:
            written = self._adapter.json_schema() if self._adapter is not None else msgspec.json.schema(output)
            self.schema = _closed(_flat(written))
            self._is_wrapped = self.schema.get("type") != "object"
            if self._is_wrapped:
                defs = {"$defs": self.schema.pop("$defs")} if "$defs" in self.schema else {}
                self.schema = _closed(
                    {"type": "object", "properties": {_FIELD: self.schema}, "required": [_FIELD]} | defs
                )
            self.parsed_schema = Schema(self.schema)
        except (TypeError, SchemaError) as exc:
            raise ConfigError(f"output={output!r} cannot be described to a model: {exc}") from exc

    def problem_in(self, value: Any) -> str:
        """Why a value that satisfies the schema is not one of the type's; empty where it is."""
        try:
            self._object(value)
        except (ValueError, msgspec.ValidationError) as exc:
            return str(exc)
        return ""

    def parse(self, text: str) -> T:
        """The object in an answer. Raises `ValueError` or `msgspec.ValidationError` where it is none."""
        value, problems = json_in(text, self.parsed_schema)
        if problems:
            raise ValueError("; ".join(problems))
        return self._object(value)

    def draft(self, value: Any) -> T:
        """The object as far as it has come, not validated: a field that has not come is None; in a TypedDict it is
        not there."""
        if self._is_wrapped:
            value = value.get(_FIELD) if isinstance(value, dict) else None
        return cast("T", _draft(self._type, value))

    def _object(self, value: Any) -> T:
        if self._is_wrapped:
            value = value[_FIELD]
        if self._adapter is not None:
            return cast("T", self._adapter.validate_json(msgspec.json.encode(value)))
        return cast("T", msgspec.convert(value, self._type, str_keys=True))


def _pydantic_adapter(output: Any) -> Any:
    """For a type that has a pydantic model in it; None for any other, and where pydantic was not imported."""
    if (pydantic := sys.modules.get("pydantic")) is None:
        return None
    parts = [output]
    for part in parts:
        parts += get_args(part)
    is_model = any(isinstance(part, type) and issubclass(part, pydantic.BaseModel) for part in parts)
    return pydantic.TypeAdapter(output) if is_model else None


def _flat(schema: Mapping[str, Any]) -> JsonObject:
    """Without a reference at its top, which some providers do not follow."""
    top = dict(schema)
    if not (name := str(top.pop("$ref", "")).removeprefix("#/$defs/")):
        return top
    named = top.pop("$defs")
    is_recursive = f'"#/$defs/{name}"' in msgspec.json.encode(named).decode()
    rest = {other: schema for other, schema in named.items() if other != name or is_recursive}
    return {**top, **named[name], **({"$defs": rest} if rest else {})}


def _closed(schema: Any) -> Any:
    """Each object without other properties than its own, as strict structured output wants it."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(part) for name, part in schema.items()}
    if isinstance(closed.get("properties"), dict) and closed.get("type") == "object":
        closed.setdefault("additionalProperties", False)
    return closed


def _draft(kind: Any, value: Any) -> Any:
    kinds = (kind, *get_args(kind))  # also those of a union, of which the first that fits is taken
    if isinstance(value, list):
        item = next((get_args(part)[0] for part in kinds if get_origin(part) in _LISTS and get_args(part)), Any)
        return [_draft(item, part) for part in value]
    if isinstance(value, dict) and (known := next(filter(_fields_of, kinds), None)) is not None:
        return _half_made(known, value)
    if isinstance(value, dict):
        inner = next((get_args(part)[1] for part in kinds if get_origin(part) is dict), Any)
        return {name: _draft(inner, part) for name, part in value.items()}
    return value


def _fields_of(kind: Any) -> dict[str, str]:
    """The attributes of a class that stands for an object, by their names in JSON; empty for any other type."""
    if not isinstance(kind, type):
        return {}
    if issubclass(kind, msgspec.Struct):
        return {field.encode_name: field.name for field in msgspec.structs.fields(kind)}
    if dataclasses.is_dataclass(kind):
        return {field.name: field.name for field in dataclasses.fields(kind)}
    if is_typeddict(kind):
        return {name: name for name in kind.__annotations__}
    model_fields: Mapping[str, Any] = getattr(kind, "model_fields", {})
    return {field.alias or name: name for name, field in model_fields.items()}


def _half_made(kind: Any, value: Mapping[str, Any]) -> Any:
    hints, names = get_type_hints(kind), _fields_of(kind)
    come = {names[name]: _draft(hints[names[name]], part) for name, part in value.items() if name in names}
    if is_typeddict(kind):
        return come
    given = dict.fromkeys(names.values()) | come
    if issubclass(kind, msgspec.Struct):
        return kind(**given)
    if hasattr(kind, "model_construct"):
        return kind.model_construct(**given)
    made: object = object.__new__(kind)  # a dataclass, without what it does once it is whole
    for name, part in given.items():
        object.__setattr__(made, name, part)
    return made
