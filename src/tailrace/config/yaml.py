"""YAML text to frozen sections, with the file, the line and the key of the first mistake.

Works on composed nodes, which still know their lines, and on the sections' own type hints: a new key is a new
field and nothing here. Knows no section by name.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
import yaml

from tailrace.config.sections import Section
from tailrace.errors import ConfigError

S = TypeVar("S", bound=Section)

MAX_NODES = 100_000  # aliases are expanded: this bounds what a few lines of them can grow to
NULL = "tag:yaml.org,2002:null"
TEXT = "tag:yaml.org,2002:str"
MERGE = "tag:yaml.org,2002:merge"
SECRETS = {"key": "key_env", "api_key": "key_env", "token": "token_env", "password": "password_env"}


def bind(text: str, section: type[S], file: str) -> S:
    """The section that the text describes. An empty text is all defaults. Raises `ConfigError`."""
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        return _Binder(loader, file).struct(root, section, "") if root else section()
    except yaml.reader.ReaderError as exc:
        line = text.count("\n", 0, exc.position) + 1
        raise ConfigError("not YAML: a control character", file=file, line=line) from exc
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        what = ", ".join(part for part in (exc.context, exc.problem) if part)
        raise ConfigError(f"not YAML: {what}", file=file, line=mark.line + 1 if mark else 0) from exc
    except RecursionError as exc:
        raise ConfigError("nested too deeply", file=file) from exc


class _Binder:
    """One pass over one file. `path` is the dotted key so far."""

    def __init__(self, loader: yaml.SafeLoader, file: str) -> None:
        self._loader = loader
        self._file = file
        self._nodes = 0

    def struct(self, node: yaml.Node, section: type[S], path: str) -> S:
        fields = {field.name: field for field in msgspec.structs.fields(section)}
        values: dict[str, Any] = {}
        for key, key_node, value_node in self._items(node, path):
            if key not in fields:
                raise self._error(key_node, _join(path, key), _unknown(key, list(fields)))
            values[key] = self._value(value_node, fields[key].type, _join(path, key))
        for name, field in fields.items():
            if field.required and name not in values:
                raise self._error(node, _join(path, name), "is missing")
        if (lacking := section.lacking(values)) is not None:
            raise self._error(node, _join(path, lacking[0]), lacking[1])
        return section(**values)

    def _value(self, node: yaml.Node, expected: Any, path: str) -> Any:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise self._error(node, path, f"the file grows past {MAX_NODES} values")
        if get_origin(expected) in (Union, UnionType):
            optional = NoneType in get_args(expected)
            expected = next(arg for arg in get_args(expected) if arg not in (NoneType, msgspec.UnsetType))
            # `telegram:` with nothing under it configures Telegram by its defaults; a plain value becomes None.
            if optional and node.tag == NULL and not _is_section(expected):
                return None
        if _is_section(expected):
            return self.struct(node, expected, path)
        origin = get_origin(expected)
        if origin is tuple:
            return self._list(node, get_args(expected)[0], path)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            of = get_args(expected)[1]
            return MappingProxyType(
                {key: self._value(v, of, _join(path, key)) for key, _, v in self._items(node, path)}
            )
        return self._json(node, path) if expected is Any else self._leaf(node, expected, path)

    def _list(self, node: yaml.Node, of: Any, path: str) -> tuple[Any, ...]:
        if not isinstance(node, yaml.SequenceNode):
            raise self._error(node, path, f"expected a list; found {_found(node)}")
        return tuple(self._value(item, of, f"{path}[{number}]") for number, item in enumerate(node.value))

    def _items(self, node: yaml.Node, path: str) -> list[tuple[str, yaml.Node, yaml.Node]]:
        """A mapping's keys, each once and each a text. Nothing at all is the empty mapping."""
        if node.tag == NULL:
            return []
        if not isinstance(node, yaml.MappingNode):
            raise self._error(node, path, f"expected keys and values; found {_found(node)}")
        first: dict[str, int] = {}
        items: list[tuple[str, yaml.Node, yaml.Node]] = []
        for key_node, value_node in node.value:
            key = str(key_node.value)
            if key_node.tag == MERGE or not isinstance(key_node, yaml.ScalarNode):
                raise self._error(key_node, path, "a key must be plain text; merging with << is not supported")
            if key in first:
                raise self._error(key_node, _join(path, key), f"given twice, first on line {first[key]}")
            first[key] = _line(key_node)
            items.append((key, key_node, value_node))
        return items

    def _leaf(self, node: yaml.Node, expected: Any, path: str) -> Any:
        meta = next((arg for arg in get_args(expected)[1:] if isinstance(arg, msgspec.Meta)), msgspec.Meta())
        extra = meta.extra or {}
        if isinstance(node, yaml.ScalarNode) and node.tag != NULL:
            value = node.value if extra.get("verbatim") else self._scalar(node, path)
            try:
                converted = msgspec.convert(value, expected)
            except msgspec.ValidationError:
                pass
            else:
                if not isinstance(converted, float) or math.isfinite(converted):
                    return converted
        found = _found(node) if extra.get("quote", True) else "another text"
        raise self._error(node, path, f"expected {_described(expected, meta)}; found {found}")

    def _json(self, node: yaml.Node, path: str) -> Any:
        """A value that is passed on as JSON, whatever it is."""
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, Any, f"{path}[{number}]") for number, item in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            return {key: self._value(value, Any, _join(path, key)) for key, _, value in self._items(node, path)}
        value = self._scalar(node, path)
        if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
            return value
        raise self._error(node, path, f"{_found(node)} has no JSON form; quote it to send it as text")

    def _scalar(self, node: yaml.Node, path: str) -> Any:
        try:
            return self._loader.construct_object(node)
        except (ValueError, LookupError) as exc:  # what the safe constructors raise for `!!int x` or the 45th of May
            raise self._error(node, path, f"not a value: {_found(node)}") from exc

    def _error(self, node: yaml.Node, path: str, message: str) -> ConfigError:
        return ConfigError(message, file=self._file, line=_line(node), key=path)


def _is_section(expected: Any) -> bool:
    return isinstance(expected, type) and issubclass(expected, msgspec.Struct)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _join(path: str, key: str) -> str:
    shown = _brief(key) if key.isprintable() else repr(_brief(key))
    return f"{path}.{shown}" if path else shown


def _brief(text: str) -> str:
    return text if len(text) <= 60 else text[:60] + "…"


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


def _found(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        if node.tag == NULL:
            return "nothing"
        return _brief(node.value) if node.tag != TEXT else repr(_brief(node.value))
    return "a list" if isinstance(node, yaml.SequenceNode) else "keys and values"
