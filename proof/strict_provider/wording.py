"""How the vendors word the refusals that their APIs have in common."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tailrace.messages import JsonObject
from tailrace.testing.scripted.failures import INVALID, Failure

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def refused(message: str, *, param: str | None = None, code: str | None = None, status: int = 400) -> Failure:
    anthropic_type = "not_found_error" if status == 404 else INVALID
    return Failure(status, message, INVALID, anthropic_type, code, param)


def unknown_parameter(name: str) -> Failure:
    return refused(f"Unknown parameter: '{name}'.", param=name, code="unknown_parameter")


def missing_parameter(name: str) -> Failure:
    return refused(f"Missing required parameter: '{name}'.", param=name, code="missing_required_parameter")


def extra_input(path: str) -> Failure:
    return refused(f"{path}: Extra inputs are not permitted")


def too_long(name: str, value: Any, limit: int) -> Iterator[Failure]:
    if isinstance(value, str) and len(value) > limit:
        yield refused(
            f"Invalid '{name}': string too long. Expected a string with maximum length {limit}, "
            f"but got a string with length {len(value)} instead.",
            param=name,
            code="string_above_max_length",
        )


def bad_name(param: str, name: Any) -> Iterator[Failure]:
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        yield refused(
            f"Invalid '{param}': string does not match pattern. "
            "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
            param=param,
            code="invalid_value",
        )


def loose_schema(form: Any, param: str, path: tuple[str, ...] = ()) -> Iterator[Failure]:
    """What OpenAI's strict mode does not take in a schema: an object that does not say all of itself."""
    if not isinstance(form, Mapping):
        return
    if form.get("type") == "object":
        properties = form.get("properties") or {}
        where = f"In context=({', '.join(map(repr, path))})"
        if form.get("additionalProperties") is not False:
            yield _bad_schema(param, f"{where}, 'additionalProperties' is required to be supplied and to be false.")
        if missing := [name for name in properties if name not in (form.get("required") or [])]:
            yield _bad_schema(
                param,
                f"{where}, 'required' is required to be supplied and to be an array including every key in "
                f"properties. Missing '{missing[0]}'.",
            )
        for name, inner in properties.items():
            yield from loose_schema(inner, param, (*path, "properties", name))
    yield from loose_schema(form.get("items"), param, (*path, "items"))


def _bad_schema(param: str, why: str) -> Failure:
    return refused(f"Invalid schema for '{param}': {why}", param=param, code="invalid_json_schema")


def objects_in(value: Any) -> list[JsonObject]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
