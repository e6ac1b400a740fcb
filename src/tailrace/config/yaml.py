"""YAML text to JSON values with the line of each: for the config file and for the files of sequences.

Owns syntax, lines and limits. Knows neither the sections of the config nor the blocks of a sequence. A place in the
text is a dotted path: `blocks[0].retry`, empty for the whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import yaml

from tailrace.errors import ConfigError

MAX_VALUES: Final = 100_000  # aliases are expanded: this bounds what a few lines of them can grow to
NULL: Final = "tag:yaml.org,2002:null"
TEXT: Final = "tag:yaml.org,2002:str"
MERGE: Final = "tag:yaml.org,2002:merge"


def read_yaml(text: str, file: str, *, fast: bool = False) -> tuple[Any, dict[str, int]]:
    """The JSON value of the text, and the line of each value in it by its path. `fast`: by libyaml where there is one;
    it words some mistakes otherwise. Raises `ConfigError`."""
    with translated_errors(text, file):
        reader = YamlReader(text, file, fast=fast)
        return (None if reader.root is None else reader.json_value(reader.root, "")), reader.lines


@contextmanager
def translated_errors(text: str, file: str) -> Iterator[None]:
    """Raises `ConfigError` with the line where PyYAML cannot parse the text."""
    try:
        yield
    except yaml.reader.ReaderError as exc:
        line = text.count("\n", 0, exc.position) + 1
        raise ConfigError("not YAML: a control character", file=file, line=line) from exc
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        what = ", ".join(part for part in (exc.context, exc.problem) if part)
        raise ConfigError(f"not YAML: {what}", file=file, line=mark.line + 1 if mark else 0) from exc
    except RecursionError as exc:
        raise ConfigError("nested too deeply", file=file) from exc


class YamlReader:
    """One pass over one text. `root` is None for an empty text."""

    def __init__(self, text: str, file: str, *, fast: bool = False) -> None:
        fast_loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader) if fast else yaml.SafeLoader
        self._loader: yaml.SafeLoader = fast_loader(text)
        self._file = file
        self._values = 0
        self.root: yaml.Node | None = self._loader.get_single_node()
        self.lines: dict[str, int] = {}

    def json_value(self, node: yaml.Node, path: str) -> Any:
        self.count(node, path)
        self.lines[path] = line_of(node)
        if isinstance(node, yaml.SequenceNode):
            return [self.json_value(item, f"{path}[{number}]") for number, item in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            found = {}
            for key, key_node, value_node in self.items(node, path):
                found[key] = self.json_value(value_node, joined(path, key))
                self.lines[joined(path, key)] = line_of(key_node)
            return found
        value = self.scalar(node, path)
        if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
            return value
        raise self.error(node, path, f"{shown(node)} has no JSON form; quote it to make it text")

    def items(self, node: yaml.Node, path: str) -> list[tuple[str, yaml.Node, yaml.Node]]:
        """The keys of a mapping with their nodes and values, each once and each a text. Null is the empty mapping."""
        if node.tag == NULL:
            return []
        if not isinstance(node, yaml.MappingNode):
            raise self.error(node, path, f"expected keys and values; found {shown(node)}")
        first: dict[str, int] = {}
        items: list[tuple[str, yaml.Node, yaml.Node]] = []
        for key_node, value_node in node.value:
            key = str(key_node.value)
            if key_node.tag == MERGE or not isinstance(key_node, yaml.ScalarNode):
                raise self.error(key_node, path, "a key must be plain text; merging with << is not supported")
            if key in first:
                raise self.error(key_node, joined(path, key), f"given twice, first on line {first[key]}")
            first[key] = line_of(key_node)
            items.append((key, key_node, value_node))
        return items

    def scalar(self, node: yaml.Node, path: str) -> Any:
        try:
            return self._loader.construct_object(node)
        except (ValueError, LookupError) as exc:  # what the safe constructors raise for `!!int x` or the 45th of May
            raise self.error(node, path, f"not a value: {shown(node)}") from exc

    def count(self, node: yaml.Node, path: str) -> None:
        self._values += 1
        if self._values > MAX_VALUES:
            raise self.error(node, path, f"the text grows past the limit: more than {MAX_VALUES} values")

    def error(self, node: yaml.Node, path: str, message: str) -> ConfigError:
        return ConfigError(message, file=self._file, line=line_of(node), key=path)


def line_of(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def joined(path: str, key: str) -> str:
    key = _brief(key) if key.isprintable() else repr(_brief(key))
    return f"{path}.{key}" if path else key


def shown(node: yaml.Node) -> str:
    """The node as an error message shows it."""
    if isinstance(node, yaml.ScalarNode):
        if node.tag == NULL:
            return "nothing"
        return _brief(node.value) if node.tag != TEXT else repr(_brief(node.value))
    return "a list" if isinstance(node, yaml.SequenceNode) else "keys and values"


def _brief(text: str) -> str:
    return text if len(text) <= 60 else text[:60] + "…"
