"""The config's YAML text to frozen sections, with the file, the line and the key of the first mistake.

Works on the sections' own type hints: a new key is a new field and nothing here. Knows no section by name.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
import yaml

from tailrace.config.sections import Section
from tailrace.config.yaml import NULL, YamlReader, joined, shown, translated_errors

S = TypeVar("S", bound=Section)

SECRETS = {"key": "key_env", "api_key": "key_env", "token": "token_env", "password": "password_env"}


def parse_section(text: str, section: type[S], file: str) -> S:
    """The section that the text describes. An empty text is all defaults. Raises `ConfigError`."""
    with translated_errors(text, file):
        parser = _SectionParser(text, file)
        return section() if parser.root is None else parser.section(parser.root, section, "")


class _SectionParser(YamlReader):
    """`path` is the dotted key so far."""

    def section(self, node: yaml.Node, section: type[S], path: str) -> S:
        fields = _fields(section)
        values: dict[str, Any] = {}
        further: dict[str, Any] = {}
        if isinstance(node, yaml.ScalarNode) and (instead := section.instead_of(str(node.value))):
            raise self.error(node, path, f"expected keys and values: {instead}; found {shown(node)}")
        for key, key_node, value_node in self.items(node, path):
            if key in fields:
                values[key] = self._value(value_node, fields[key].type, joined(path, key))
            elif (kind := section.further_keys().get(key)) is None:
                raise self.error(key_node, joined(path, key), _unknown(key, [*fields, *section.further_keys()]))
            elif (value := self._value(value_node, kind, joined(path, key))) is not None and kind is not Any:
                further[key] = value
        if further:
            values[section.further_field] = MappingProxyType(further)
        for name, field in fields.items():
            if field.required and name not in values:
                raise self.error(node, joined(path, name), "is missing")
        if (missing := section.missing_key(values)) is not None:
            raise self.error(node, joined(path, missing[0]), missing[1])
        return section(**values)

    def _value(self, node: yaml.Node, expected: Any, path: str) -> Any:
        if expected is Any:
            return self.json_value(node, path)
        self.count(node, path)
        if get_origin(expected) in (Union, UnionType):
            optional = NoneType in get_args(expected)
            expected = next(arg for arg in get_args(expected) if arg not in (NoneType, msgspec.UnsetType))
            # `agent:` with nothing under it is a section of defaults; another key with nothing is None.
            if optional and node.tag == NULL and not _is_section(expected):
                return None
        if _is_section(expected):
            return self.section(node, expected, path)
        origin = get_origin(expected)
        if origin is tuple:
            return self._list(node, get_args(expected)[0], path)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            of = get_args(expected)[1]
            return MappingProxyType(
                {key: self._value(v, of, joined(path, key)) for key, _, v in self.items(node, path)}
            )
        return self._leaf(node, expected, path)

    def _list(self, node: yaml.Node, of: Any, path: str) -> tuple[Any, ...]:
        if not isinstance(node, yaml.SequenceNode):
            raise self.error(node, path, f"expected a list; found {shown(node)}")
        return tuple(self._value(item, of, f"{path}[{number}]") for number, item in enumerate(node.value))

    def _leaf(self, node: yaml.Node, expected: Any, path: str) -> Any:
        meta = next((arg for arg in get_args(expected)[1:] if isinstance(arg, msgspec.Meta)), msgspec.Meta())
        extra = meta.extra or {}
        if isinstance(node, yaml.ScalarNode) and node.tag != NULL:
            value = node.value if extra.get("verbatim") else self.scalar(node, path)
            try:
                converted = msgspec.convert(value, expected)
            except msgspec.ValidationError:
                pass
            else:
                if other := extra["expected"](converted) if "expected" in extra else "":
                    raise self.error(node, path, f"expected {other}; found another text")
                if extra.get("only", (converted,)).count(converted) and (
                    not isinstance(converted, float) or math.isfinite(converted)
                ):
                    return converted
        found = shown(node) if extra.get("quote", True) else "another text"
        raise self.error(node, path, f"expected {_described(expected, meta)}; found {found}")


@cache
def _fields(section: type[Section]) -> dict[str, msgspec.structs.FieldInfo]:
    """By name. Cached: a file has many sections of one type, and evaluating type hints takes longer than all else."""
    fields = msgspec.structs.fields(section)
    return {field.name: field for field in fields if field.name != section.further_field}


def _is_section(expected: Any) -> bool:
    return isinstance(expected, type) and issubclass(expected, msgspec.Struct)


def _unknown(key: str, known: list[str]) -> str:
    if (by_env := SECRETS.get(key)) in known:
        return f"secrets come from the environment; name the variable in {by_env}"
    if close := difflib.get_close_matches(key, known, n=1):
        return f"unknown key; did you mean {close[0]}?"
    return f"unknown key; known here: {', '.join(sorted(known))}"


def _described(expected: Any, meta: msgspec.Meta) -> str:
    if meta.description:
        return meta.description
    if get_origin(expected) is Literal:
        return f"one of {', '.join(get_args(expected))}"
    plain = get_args(expected)[0] if get_origin(expected) is Annotated else expected
    return {bool: "true or false", int: "a whole number", float: "a number"}.get(plain, "text")
