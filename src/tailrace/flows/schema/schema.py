"""JSON schema, the part of it that answers of models are described with.

Pure. Owns which keywords are understood (docs/sequences.md lists them) and what each means for a whole value; what can
be said of half a value is `partial`'s. A schema that uses a keyword with a meaning that is not understood is refused
when it is read, never half checked.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tailrace.errors import TailraceError
from tailrace.flows.language.expressions import same
from tailrace.messages import JsonObject

TYPES: Final = ("null", "boolean", "object", "array", "number", "string", "integer")
# Keyword → what its value is made of: "schema", "schemas" (a list), "named" (schemas by name) or "" (plain data).
_KEYWORDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("type", "enum", "const", "required", "pattern", "multipleOf", "uniqueItems", "$ref"), ""),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), ""),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), ""),
    **dict.fromkeys(("properties", "patternProperties", "$defs", "definitions"), "named"),
    **dict.fromkeys(("additionalProperties", "propertyNames", "items", "contains", "not"), "schema"),
    **dict.fromkeys(("if", "then", "else"), "schema"),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), "schemas"),
}
_ANNOTATIONS: Final = frozenset(
    {"$schema", "$id", "$comment", "title", "description", "default", "examples", "format", "deprecated", "readOnly"}
    | {"writeOnly", "contentMediaType", "contentEncoding"}
)
MAX_ERRORS: Final = 5


class SchemaError(TailraceError):
    """This is no schema, or one that cannot be checked here."""


class Schema:
    """A schema that was read and can be checked. `errors` says what is wrong with a value."""

    def __init__(self, root: Any) -> None:
        if not isinstance(root, Mapping):
            raise SchemaError("a schema is an object")
        self.root: Mapping[str, Any] = root
        self._patterns: dict[str, re.Pattern[str]] = {}
        self._read(root, "#", depth=0)
        self._follow_references(root, "#")

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────

    def _read(self, schema: Any, at: str, depth: int) -> None:
        if isinstance(schema, bool):
            return
        if not isinstance(schema, Mapping):
            raise SchemaError(f"{at}: a schema is an object, true or false")
        if depth > 100:
            raise SchemaError(f"{at}: nested too deeply")
        for keyword, value in schema.items():
            kind = _KEYWORDS.get(keyword)
            if kind is None:
                if keyword in _ANNOTATIONS or keyword.startswith("x-"):
                    continue
                raise SchemaError(f"{at}: {keyword!r} is not supported")
            _check_shape(keyword, value, f"{at}/{keyword}")
            for place, inner in _inner(kind, value):
                self._read(inner, f"{at}/{keyword}{place}", depth + 1)
            for pattern in _patterns_of(keyword, value):
                try:
                    self._patterns[pattern] = re.compile(pattern)
                except re.error as exc:
                    raise SchemaError(f"{at}/{keyword}: {pattern!r} is no pattern: {exc}") from exc

    def _follow_references(self, schema: Any, at: str) -> None:
        if not isinstance(schema, Mapping):
            return
        if "$ref" in schema:
            self._chain(schema, at)
        for keyword, value in schema.items():
            for place, inner in _inner(_KEYWORDS.get(keyword, ""), value):
                self._follow_references(inner, f"{at}/{keyword}{place}")

    def _chain(self, schema: Mapping[str, Any], at: str) -> None:
        """Raises `SchemaError` for references that lead nowhere or in a circle with nothing in between."""
        seen: list[str] = []
        pending = [schema]
        while pending:
            inner = pending.pop()
            pending += [some for some in inner.get("allOf", ()) if isinstance(some, Mapping)]
            if "$ref" in inner:
                if inner["$ref"] in seen:
                    raise SchemaError(f"{at}: {inner['$ref']!r} refers to itself")
                seen.append(inner["$ref"])
                target = self.resolve(inner["$ref"])
                pending += [target] if isinstance(target, Mapping) else []

    def resolve(self, reference: str) -> Any:
        """The schema that a reference within this one names. Raises `SchemaError`."""
        if not reference.startswith("#"):
            raise SchemaError(f"$ref {reference!r}: only references within the schema are followed")
        found: Any = self.root
        for part in reference[1:].split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and key in found:
                found = found[key]
            elif isinstance(found, list) and key.isdigit() and int(key) < len(found):
                found = found[int(key)]
            else:
                raise SchemaError(f"$ref {reference!r} leads nowhere")
        return found

    def matches(self, pattern: str, text: str) -> bool:
        return self._patterns[pattern].search(text) is not None

    # ── checking ─────────────────────────────────────────────────────────────────────────────────────────────

    def errors(self, value: Any) -> list[str]:
        """What is wrong with the value, at most a few things; empty when it is valid."""
        found: list[str] = []
        for error in self.check(value, self.root, ""):
            found.append(error)
            if len(found) == MAX_ERRORS:
                break
        return found

    def valid(self, value: Any, schema: Any) -> bool:
        return next(self.check(value, schema, ""), None) is None

    def check(self, value: Any, schema: Any, at: str) -> Iterator[str]:
        """Every mistake of the value by this part of the schema, with its place."""
        if schema is True:
            return
        if schema is False:
            yield f"{at or '/'}: nothing is allowed here"
            return
        if "$ref" in schema:
            yield from self.check(value, self.resolve(schema["$ref"]), at)
        if "type" in schema and not any(is_type(value, name) for name in types_of(schema)):
            yield f"{at or '/'}: expected {' or '.join(types_of(schema))}, found {type_name(value)}"
            return
        if "enum" in schema and not any(same(value, choice) for choice in schema["enum"]):
            yield f"{at or '/'}: expected one of {_shown(schema['enum'])}, found {_shown(value)}"
        if "const" in schema and not same(value, schema["const"]):
            yield f"{at or '/'}: expected {_shown(schema['const'])}, found {_shown(value)}"
        yield from self._combined(value, schema, at)
        if isinstance(value, str):
            yield from self._text(value, schema, at)
        elif isinstance(value, bool) or value is None:
            return
        elif isinstance(value, int | float):
            yield from _number(value, schema, at)
        elif isinstance(value, list):
            yield from self._array(value, schema, at)
        elif isinstance(value, dict):
            yield from self._object(value, schema, at)

    def _combined(self, value: Any, schema: Mapping[str, Any], at: str) -> Iterator[str]:
        for inner in schema.get("allOf", ()):
            yield from self.check(value, inner, at)
        if "anyOf" in schema and not any(self.valid(value, inner) for inner in schema["anyOf"]):
            yield f"{at or '/'}: matches none of the alternatives"
        if "oneOf" in schema and (matched := sum(self.valid(value, inner) for inner in schema["oneOf"])) != 1:
            yield f"{at or '/'}: matches {matched} of the alternatives, not exactly one"
        if "not" in schema and self.valid(value, schema["not"]):
            yield f"{at or '/'}: is what it must not be"
        if "if" in schema:
            branch = "then" if self.valid(value, schema["if"]) else "else"
            if branch in schema:
                yield from self.check(value, schema[branch], at)

    def _text(self, value: str, schema: Mapping[str, Any], at: str) -> Iterator[str]:
        if len(value) < schema.get("minLength", 0):
            yield f"{at or '/'}: shorter than {schema['minLength']} characters"
        if len(value) > schema.get("maxLength", len(value)):
            yield f"{at or '/'}: longer than {schema['maxLength']} characters"
        if "pattern" in schema and not self.matches(schema["pattern"], value):
            yield f"{at or '/'}: does not match {schema['pattern']!r}"

    def _array(self, value: list[Any], schema: Mapping[str, Any], at: str) -> Iterator[str]:
        if len(value) < schema.get("minItems", 0):
            yield f"{at or '/'}: fewer than {schema['minItems']} items"
        if len(value) > schema.get("maxItems", len(value)):
            yield f"{at or '/'}: more than {schema['maxItems']} items"
        if schema.get("uniqueItems") and any(same(a, b) for i, a in enumerate(value) for b in value[:i]):
            yield f"{at or '/'}: two items are the same"
        for index, item in enumerate(value):
            if (inner := item_schema(schema, index)) is not None:
                yield from self.check(item, inner, f"{at}/{index}")
        if "contains" in schema and not any(self.valid(item, schema["contains"]) for item in value):
            yield f"{at or '/'}: no item is what one of them must be"

    def _object(self, value: JsonObject, schema: Mapping[str, Any], at: str) -> Iterator[str]:
        for name in schema.get("required", ()):
            if name not in value:
                yield f"{at or '/'}: {name!r} is missing"
        if len(value) < schema.get("minProperties", 0):
            yield f"{at or '/'}: fewer than {schema['minProperties']} properties"
        if len(value) > schema.get("maxProperties", len(value)):
            yield f"{at or '/'}: more than {schema['maxProperties']} properties"
        for name, inner in value.items():
            if "propertyNames" in schema:
                yield from self.check(name, schema["propertyNames"], f"{at}/{name}")
            for part in self.property_schemas(schema, name):
                if part is False:
                    yield f"{at or '/'}: {name!r} is not allowed"
                else:
                    yield from self.check(inner, part, f"{at}/{name}")

    def property_schemas(self, schema: Mapping[str, Any], name: str) -> list[Any]:
        """What this part of the schema says about the property of that name."""
        found = [schema["properties"][name]] if name in schema.get("properties", ()) else []
        found += [part for pattern, part in schema.get("patternProperties", {}).items() if self.matches(pattern, name)]
        if not found and "additionalProperties" in schema:
            found.append(schema["additionalProperties"])
        return found


def item_schema(schema: Mapping[str, Any], index: int) -> Any:
    """What this part of the schema says about the item at that place; None where it says nothing."""
    prefix = schema.get("prefixItems", ())
    return prefix[index] if index < len(prefix) else schema.get("items")


def types_of(schema: Mapping[str, Any]) -> tuple[str, ...]:
    named = schema.get("type", TYPES)
    return (named,) if isinstance(named, str) else tuple(named)


def is_type(value: Any, name: str) -> bool:
    match name:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            if isinstance(value, bool):
                return False
            return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "string":
            return isinstance(value, str)
        case "array":
            return isinstance(value, list)
        case _:
            return isinstance(value, dict)


def type_name(value: Any) -> str:
    return next(
        name for name in ("null", "boolean", "integer", "number", "string", "array", "object") if is_type(value, name)
    )


_LIMITS: Final[tuple[tuple[str, Callable[[float, float], bool], str], ...]] = (
    ("minimum", operator.lt, "less than"),
    ("maximum", operator.gt, "more than"),
    ("exclusiveMinimum", operator.le, "not more than"),
    ("exclusiveMaximum", operator.ge, "not less than"),
)


def _number(value: float, schema: Mapping[str, Any], at: str) -> Iterator[str]:
    for keyword, fails, word in _LIMITS:
        if keyword in schema and fails(value, schema[keyword]):
            yield f"{at or '/'}: {value} is {word} {schema[keyword]}"
    if "multipleOf" in schema and not _is_multiple(value, schema["multipleOf"]):
        yield f"{at or '/'}: {value} is not a multiple of {schema['multipleOf']}"


def _is_multiple(value: float, of: float) -> bool:
    try:
        quotient = value / of
        return abs(quotient - round(quotient)) <= 1e-9 * max(1.0, abs(quotient))
    except OverflowError:
        return False


def _inner(kind: str, value: Any) -> list[tuple[str, Any]]:
    match kind:
        case "schema":
            return [("", value)]
        case "schemas":
            return [(f"/{number}", part) for number, part in enumerate(value)]
        case "named":
            return [(f"/{name}", part) for name, part in value.items()]
        case _:
            return []


def _patterns_of(keyword: str, value: Any) -> list[str]:
    if keyword == "pattern":
        return [value]
    return list(value) if keyword == "patternProperties" else []


def _check_shape(keyword: str, value: Any, at: str) -> None:
    kind = _KEYWORDS[keyword]
    if kind == "schemas" and not isinstance(value, list):
        raise SchemaError(f"{at}: expected a list of schemas")
    if kind == "named" and not isinstance(value, Mapping):
        raise SchemaError(f"{at}: expected schemas by name")
    if keyword == "type":
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list) or not names or any(name not in TYPES for name in names):
            raise SchemaError(f"{at}: expected one or more of {', '.join(TYPES)}")
    if keyword in ("enum", "required") and not isinstance(value, list):
        raise SchemaError(f"{at}: expected a list")
    if keyword in ("pattern", "$ref") and not isinstance(value, str):
        raise SchemaError(f"{at}: expected text")
    if keyword[:3] in ("min", "max", "mul", "exc") and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise SchemaError(f"{at}: expected a number")
    if keyword == "multipleOf" and value <= 0:
        raise SchemaError(f"{at}: expected a number above 0")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 100 else text[:100] + "…"
