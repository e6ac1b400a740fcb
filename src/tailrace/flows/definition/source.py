"""The text of a definition, JSON or YAML, as a JSON value, with the line of every value in it.

Owns syntax and lines. Knows nothing of blocks: paths are written as the decoder of definitions writes them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

import yaml

from tailrace.errors import ConfigError
from tailrace.flows.definition.definition import Definition, DefinitionError, parsed

MAX_VALUES: Final = 100_000  # aliases are expanded: this bounds what a few lines of them can grow to


class Source:
    """A parsed text. `value` is plain JSON; `line_of` finds the line of a path, or of what it stands in."""

    def __init__(self, value: Any, lines: Mapping[str, int], file: str) -> None:
        self.value = value
        self._lines = lines
        self._file = file

    def line_of(self, path: str) -> int:
        while path and path not in self._lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self._lines.get(path, 0)

    def definition(self) -> Definition:
        """Raises `ConfigError` with the file, the line and the key of the mistake."""
        try:
            return parsed(self.value)
        except DefinitionError as exc:
            raise self.located(exc) from exc

    def located(self, error: DefinitionError) -> ConfigError:
        key = error.path.removeprefix("$").lstrip(".")
        return ConfigError(error.message, file=self._file, line=self.line_of(error.path), key=key)


def read(text: str, file: str = "") -> Source:
    """Raises `ConfigError` with the line where the text is neither JSON nor YAML."""
    if text.lstrip("\ufeff \t\r\n").startswith("{"):
        value = _from_json(text.lstrip("\ufeff"), file)
        try:
            _, lines = _from_yaml(text.replace("\t", " "), file)  # for its lines: nearly all JSON is YAML
        except ConfigError:
            lines = {}
        return Source(value, lines, file)
    value, lines = _from_yaml(text, file)
    return Source(value, lines, file)


def _from_json(text: str, file: str) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise ConfigError(f"{twice!r} is given twice in one object", file=file)
        return found

    try:
        return json.loads(text, object_pairs_hook=once, parse_constant=_no_constant)
    except json.JSONDecodeError as exc:
        raise ConfigError(f"not JSON: {exc.msg.lower()}", file=file, line=exc.lineno) from exc
    except (RecursionError, ValueError) as exc:
        raise ConfigError(f"not JSON: {exc}", file=file) from exc


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _from_yaml(text: str, file: str) -> tuple[Any, dict[str, int]]:
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        reader = _Reader(loader, file)
        return (reader.value(root, "$") if root is not None else None), reader.lines
    except yaml.reader.ReaderError as exc:
        raise ConfigError("not YAML: a control character", file=file) from exc
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        what = ", ".join(part for part in (exc.context, exc.problem) if part)
        raise ConfigError(f"not YAML: {what}", file=file, line=mark.line + 1 if mark else 0) from exc
    except RecursionError as exc:
        raise ConfigError("nested too deeply", file=file) from exc


class _Reader:
    """YAML nodes to JSON values, with their lines."""

    def __init__(self, loader: yaml.SafeLoader, file: str) -> None:
        self._loader = loader
        self._file = file
        self._values = 0
        self.lines: dict[str, int] = {}

    def value(self, node: yaml.Node, path: str) -> Any:
        self._values += 1
        if self._values > MAX_VALUES:
            raise self._error(node, path, f"more than {MAX_VALUES} values")
        self.lines[path] = int(node.start_mark.line) + 1
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, f"{path}[{number}]") for number, item in enumerate(node.value)]
        try:
            found = self._loader.construct_object(node)
        except (ValueError, LookupError) as exc:
            raise self._error(node, path, f"not a value: {node.value[:60]!r}") from exc
        if found is None or isinstance(found, str | bool | int) or (isinstance(found, float) and math.isfinite(found)):
            return found
        raise self._error(node, path, f"{node.value[:60]} has no JSON form; quote it to make it text")

    def _mapping(self, node: yaml.MappingNode, path: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == "tag:yaml.org,2002:merge":
                raise self._error(key_node, path, "a key must be plain text; merging with << is not supported")
            key = str(key_node.value)
            if key in found:
                raise self._error(key_node, f"{path}.{key}", "given twice")
            found[key] = self.value(value_node, f"{path}.{key}")
            self.lines[f"{path}.{key}"] = int(key_node.start_mark.line) + 1
        return found

    def _error(self, node: yaml.Node, path: str, message: str) -> ConfigError:
        key = path.removeprefix("$").lstrip(".")
        return ConfigError(message, file=self._file, line=int(node.start_mark.line) + 1, key=key)
