"""JSON schema, the part of it that answers of models are described with.

Pure. Owns which keywords are understood (docs/sequence-steps.md lists them) and which schemas cost too much to check.
jsonschema-rs checks whole values, with patterns that cannot backtrack and without fetching anything; `incremental`
checks half a value. A keyword that is not understood is refused when the schema is read, never half checked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from tailrace.errors import TailraceError
from tailrace.values.schema_cost import SchemaCost, schema_cost, value_size

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator, ValidationError

TYPES: Final = ("null", "boolean", "object", "array", "number", "string", "integer")
# Keyword → what its value is made of: "schema", "schemas" (a list), "named" (schemas by name) or "" (plain data).
_KEYWORDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("type", "enum", "const", "required", "pattern", "multipleOf", "uniqueItems", "$ref"), ""),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minContains", "maxContains"), ""),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), ""),
    **dict.fromkeys(("properties", "patternProperties", "dependentSchemas", "$defs", "definitions"), "named"),
    **dict.fromkeys(("additionalProperties", "propertyNames", "items", "contains", "not"), "schema"),
    **dict.fromkeys(("if", "then", "else", "unevaluatedProperties", "unevaluatedItems"), "schema"),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), "schemas"),
    "dependentRequired": "",
}
_ANNOTATIONS: Final = frozenset(
    {"$schema", "$id", "$comment", "title", "description", "default", "examples", "format", "deprecated", "readOnly"}
    | {"writeOnly", "contentMediaType", "contentEncoding"}
)
_IN_PLACE: Final = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"})
_ROOT: Final = "urn:tailrace:schema"  # references are made absolute, so that each part can be checked alone
_VALUE: Final = "\0"  # stands for the value in the messages of jsonschema-rs
MAX_ERRORS: Final = 5
MAX_DEPTH: Final = 100
# Bounds of what reading a schema may cost (L140). Parts are counted with each reference written out: doubled
# references grow exponentially. A pattern's program may need this many bytes.
MAX_PARTS: Final = 20_000
MAX_REFERENCES: Final = 200  # one behind the other
MAX_PATTERN_CHARS: Final = 2_500  # of all its patterns together
MAX_PATTERN_BYTES: Final = 1_000_000


class SchemaError(TailraceError):
    """This is no schema, or one that cannot be checked here."""


class Schema:
    """A schema that was read and can be checked. `errors` says what is wrong with a value."""

    def __init__(self, root: Any) -> None:
        from jsonschema_rs import ReferencingError, Registry, ValidationError

        if not isinstance(root, Mapping):
            raise SchemaError("a schema is an object")
        self.source = root  # as it was written: what a model is shown
        if value_size(root, 2 * MAX_PARTS) > 2 * MAX_PARTS:
            raise SchemaError(f"it has more than {MAX_PARTS} parts")
        self.root: Mapping[str, Any] = _absolute(root, "#", 0)
        if _pattern_chars(self.root) > MAX_PATTERN_CHARS:
            raise SchemaError(f"its patterns have more than {MAX_PATTERN_CHARS} characters together")
        self.cost = schema_cost(self.root, prefix=_ROOT)
        self._costs: dict[int, SchemaCost] = {}
        self._sizes: dict[int, int] = {}
        self._measure(self.root, (), ())
        self._validators: dict[int | str, Draft202012Validator] = {}
        try:
            self._registry = Registry([(_ROOT, dict(self.root))])
            self._whole = self._compile(dict(self.root))
        except (ValidationError, ReferencingError, ValueError) as exc:
            raise SchemaError(_one_line(exc)) from exc

    def _compile(self, schema: Any) -> Draft202012Validator:
        from jsonschema_rs import Draft202012Validator, RegexOptions

        return Draft202012Validator(
            schema,
            registry=self._registry,
            pattern_options=RegexOptions(size_limit=MAX_PATTERN_BYTES),
            offline=True,
            mask=_VALUE,
        )

    def _measure(self, schema: Any, above: tuple[int, ...], here: tuple[int, ...]) -> int:
        """How many parts it has with each reference written out. `here` are the schemas that apply to the same value:
        a reference back to one of them would never end. Raises `SchemaError`."""
        if not isinstance(schema, Mapping):
            return 1
        me = id(schema)
        if me in here:
            raise SchemaError(f"$ref {schema.get('$ref', '#').removeprefix(_ROOT)!r} refers to itself")
        if me in above:
            return 1  # each level of the value goes around once
        if len(above) > MAX_REFERENCES:
            raise SchemaError(f"more than {MAX_REFERENCES} references one behind the other")
        if me not in self._sizes:
            size = 1
            for keyword, value in schema.items():
                if keyword in ("$defs", "definitions"):
                    continue  # counted where they are referred to
                same_value = keyword in _IN_PLACE
                for _, part in _inner(_KEYWORDS.get(keyword, ""), value):
                    size += self._measure(part, (*above, me), (*here, me) if same_value else ())
            if "$ref" in schema:
                size += self._measure(self.resolve(schema["$ref"]), (*above, me), (*here, me))
            if size > MAX_PARTS:
                raise SchemaError(f"it has more than {MAX_PARTS} parts when its references are written out")
            self._sizes[me] = size
        return self._sizes[me]

    def resolve(self, reference: str) -> Any:
        """The schema that a reference within this one names. Raises `SchemaError`."""
        found: Any = self.root
        for part in reference.removeprefix(_ROOT).split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and key in found:
                found = found[key]
            elif isinstance(found, list) and key.isdigit() and int(key) < len(found):
                found = found[int(key)]
            else:
                raise SchemaError(f"$ref {reference.removeprefix(_ROOT)!r} leads nowhere")
        return found

    def errors(self, value: Any) -> list[str]:
        """What is wrong with the value, at most a few things; empty when it is valid. `whole_value` decides where a
        value from outside is checked: by some schemas that takes for ever."""
        return _errors(self._whole, value)

    def part_cost(self, part: Mapping[str, Any]) -> SchemaCost:
        """Of one part of this schema."""
        if id(part) not in self._costs:
            self._costs[id(part)] = schema_cost(part, self.root, _ROOT)
        return self._costs[id(part)]

    def part_errors(self, value: Any, part: Mapping[str, Any]) -> list[str]:
        """What is wrong with the value by one part of this schema, without what it refers to or combines with."""
        if id(part) not in self._validators:
            beside = ("allOf", "$ref", "unevaluatedProperties", "unevaluatedItems")
            self._validators[id(part)] = self._compile({key: part[key] for key in part if key not in beside})
        return _errors(self._validators[id(part)], value)

    def valid(self, value: Any, schema: Any) -> bool:
        """Whether the value is valid by a schema within this one."""
        if isinstance(schema, bool):
            return schema
        key = f"whole {id(schema)}"
        if key not in self._validators:
            self._validators[key] = self._compile(schema)
        return not _errors(self._validators[key], value)

    def matches(self, pattern: str, text: str) -> bool:
        key = f"pattern {pattern}"
        if key not in self._validators:
            self._validators[key] = self._compile({"pattern": pattern})
        return not _errors(self._validators[key], text)

    def property_schemas(self, schema: Mapping[str, Any], name: str) -> list[Any]:
        """The schemas that this part of the schema has for the property of that name."""
        found = [schema["properties"][name]] if name in schema.get("properties", ()) else []
        found += [part for pattern, part in schema.get("patternProperties", {}).items() if self.matches(pattern, name)]
        if not found and "additionalProperties" in schema:
            found.append(schema["additionalProperties"])
        return found


def item_schema(schema: Mapping[str, Any], index: int) -> Any:
    """The schema that this part of the schema has for the item at that place; None where it has none."""
    prefix = schema.get("prefixItems", ())
    return prefix[index] if index < len(prefix) else schema.get("items")


def types_of(schema: Mapping[str, Any]) -> tuple[str, ...]:
    names = schema.get("type", TYPES)
    return (names,) if isinstance(names, str) else tuple(names)


def type_name(value: Any) -> str:
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    names = {type(None): "null", bool: "boolean", int: "integer", str: "string", list: "array"}
    return names.get(type(value), "object")


def _absolute(schema: Any, at: str, depth: int) -> Any:
    """A copy whose references name the root, without what would move them (`$id`). Raises `SchemaError`."""
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, Mapping):
        raise SchemaError(f"{at}: a schema is an object, true or false")
    if depth > MAX_DEPTH:
        raise SchemaError(f"{at}: nested too deeply")
    copy: dict[str, Any] = {}
    for keyword, value in schema.items():
        kind = _KEYWORDS.get(keyword)
        if kind is None:
            if keyword not in _ANNOTATIONS and not keyword.startswith("x-"):
                raise SchemaError(f"{at}: {keyword!r} is not supported")
        elif keyword == "$ref":
            if not isinstance(value, str) or not (value == "#" or value.startswith("#/")):
                raise SchemaError(f"{at}: $ref {value!r}: only references within the schema are followed")
            copy[keyword] = f"{_ROOT}{value}"
        elif parts := {
            place: _absolute(part, f"{at}/{keyword}/{place}", depth + 1) for place, part in _inner(kind, value)
        }:
            copy[keyword] = parts[""] if kind == "schema" else parts if kind == "named" else list(parts.values())
        elif (
            keyword in ("required", "type") and isinstance(value, list) and all(isinstance(name, str) for name in value)
        ):
            copy[keyword] = list(dict.fromkeys(value))  # a name given twice is no reason to refuse the schema
        else:
            copy[keyword] = value
    return copy


def _pattern_chars(schema: Any) -> int:
    if not isinstance(schema, Mapping):
        return 0
    count = len(schema["pattern"]) if isinstance(schema.get("pattern"), str) else 0
    count += sum(map(len, schema.get("patternProperties", ())))
    inner = (part for keyword, value in schema.items() for _, part in _inner(_KEYWORDS.get(keyword, ""), value))
    return count + sum(map(_pattern_chars, inner))


def _inner(kind: str, value: Any) -> list[tuple[str, Any]]:
    """The schemas in a keyword's value by their place. jsonschema-rs refuses values of another shape."""
    if kind == "schema":
        return [("", value)]
    if kind == "schemas" and isinstance(value, list):
        return [(str(number), part) for number, part in enumerate(value)]
    return list(value.items()) if kind == "named" and isinstance(value, Mapping) else []


def _errors(validator: Draft202012Validator, value: Any) -> list[str]:
    try:
        return [f"/{_placed(error)}" for error in islice(validator.iter_errors(value), MAX_ERRORS)]
    except ValueError as exc:  # half a surrogate pair
        return [f"/: {exc}"]


def _one_line(exc: Exception) -> str:
    from jsonschema_rs import ValidationError

    if not isinstance(exc, ValidationError):
        return str(exc).partition("\n")[0]
    hint = ": it must be one without lookaround and backreferences" if exc.kind.name == "format" else ""
    return f"#/{_placed(exc)}{hint}"


def _placed(error: ValidationError) -> str:
    return f"{'/'.join(map(str, error.instance_path))}: {error.message.replace(_VALUE, _shown(error.instance))}"


def _shown(value: Any) -> str:
    text = json.dumps(value if value_size(value, 100) <= 100 else _beginning(value), ensure_ascii=False)
    return text if len(text) <= 100 else text[:100] + "…"


def _beginning(value: Any) -> Any:
    """Enough of a large value for its first hundred characters."""
    if isinstance(value, str):
        return value[:101]
    if isinstance(value, Mapping):
        return {str(name)[:101]: _beginning(value[name]) for name in islice(value, 1)}
    return [_beginning(part) for part in islice(value, 50)] if isinstance(value, list) else value
