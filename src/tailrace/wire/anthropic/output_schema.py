"""A JSON schema in the subset that the API's structured outputs take.

Objects are closed. A constraint outside the subset becomes part of the description: the model still reads it, and the
caller validates the answer against the original schema.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tailrace.messages import JsonObject

_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"})
_PLAIN = frozenset(
    {"type", "enum", "const", "description", "title", "default", "required", "$ref", "additionalProperties"}
)
_NAMED_SCHEMAS = frozenset({"properties", "$defs", "definitions"})
_SCHEMAS = {"anyOf": "anyOf", "oneOf": "anyOf", "allOf": "allOf"}


def output_schema(schema: JsonObject) -> JsonObject:
    """The nearest schema that the API accepts."""
    kept: JsonObject = {}
    loose: JsonObject = {}  # constraints that go into the description
    for name, value in schema.items():
        if name in _NAMED_SCHEMAS and isinstance(value, dict):
            kept[name] = {key: _schema(item) for key, item in value.items()}
        elif name in _SCHEMAS and isinstance(value, list):
            kept[_SCHEMAS[name]] = [_schema(item) for item in value]
        elif name == "items" and isinstance(value, dict):
            kept[name] = output_schema(value)
        elif _supported(name, value):
            kept[name] = value
        elif not name.startswith("$"):  # "$schema", "$id", "$comment" constrain nothing
            loose[name] = value
    if kept.get("type") == "object" or "properties" in kept:
        kept["additionalProperties"] = False
    if loose:
        said = msgspec.json.encode(loose).decode()
        kept["description"] = f"{kept['description']}\n\n{said}" if kept.get("description") else said
    return kept


def _supported(name: str, value: Any) -> bool:
    if name == "format":
        return value in _FORMATS
    if name == "minItems":
        return value in (0, 1)
    return name in _PLAIN


def _schema(value: Any) -> Any:
    return output_schema(value) if isinstance(value, dict) else value  # `true` and `false` are schemas, too
