"""The text of a definition, JSON or YAML, as a JSON value, with the line of every value in it.

Knows nothing of blocks: paths are written as the decoder of definitions writes them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from tailrace.config.yaml import read_yaml
from tailrace.errors import ConfigError
from tailrace.flows.definition.definition import Definition, DefinitionError
from tailrace.flows.definition.orch8 import read_definition
from tailrace.system.child_process import ChildFailed, run_in_child

MAX_BYTES: Final = 1_000_000  # of a definition that a client sends
INLINE_CHARS: Final = 4_000  # of YAML: some tens of milliseconds
PARSE_S: Final = 10.0
MAX_MISTAKES: Final = 50  # that are told of one file


class Source:
    """A parsed text. `value` is plain JSON; `line_of` finds the line of a path, or of what it stands in."""

    def __init__(self, value: Any, lines: Mapping[str, int], file: str) -> None:
        self.value = value
        self._lines = lines
        self._file = file

    def line_of(self, path: str) -> int:
        path = _key(path)
        while path and path not in self._lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self._lines.get(path, 0)

    def definition(self) -> Definition:
        """Raises `ConfigError` with the file, the line and the key of the mistake."""
        try:
            return read_definition(self.value)
        except DefinitionError as exc:
            raise self.located(exc) from exc

    def mistakes(self, check: Callable[[Definition], Iterable[DefinitionError]]) -> list[ConfigError]:
        """Every mistake that `check` finds, in the order of the text, at most `MAX_MISTAKES`; of a text that is no
        definition the first."""
        try:
            found = list(islice(check(read_definition(self.value)), MAX_MISTAKES))
        except DefinitionError as exc:
            found = [exc]
        located = {(mistake.path, mistake.message): self.located(mistake) for mistake in found}
        return sorted(located.values(), key=lambda mistake: mistake.line)

    def located(self, error: DefinitionError) -> ConfigError:
        return ConfigError(error.message, file=self._file, line=self.line_of(error.path), key=_key(error.path))


def parse_source(text: str, file: str = "") -> Source:
    """Raises `ConfigError` with the line where the text is neither JSON nor YAML."""
    if text.lstrip("\ufeff \t\r\n").startswith("{"):
        value = _from_json(text.lstrip("\ufeff"), file)
        try:
            _, lines = read_yaml(text.replace("\t", " "), file)  # for its lines: nearly all JSON is YAML
        except ConfigError:
            lines = {}
        return Source(value, lines, file)
    value, lines = read_yaml(text, file)
    return Source(value, lines, file)


# ── from outside ─────────────────────────────────────────────────────────────────────────────────────────────


async def parse_yaml(text: str) -> Definition:
    """A definition that a client sent. Its text is at most `MAX_BYTES` long; what is longer than a page or two is
    parsed in a process of its own, with a deadline (L142). Raises `ConfigError` with the line and the key of the
    mistake."""
    if len(text) <= INLINE_CHARS:
        return parse_source(text).definition()
    try:
        told = await run_in_child(yaml_to_json, text.encode(), timeout_s=PARSE_S)
    except ChildFailed as exc:
        raise ConfigError(f"the YAML cannot be parsed: {exc}; send it as JSON") from exc
    value, problem = msgspec.json.decode(told, type=tuple[Any, tuple[str, int, str] | None])
    if problem is not None:
        message, line, key = problem
        raise ConfigError(message, line=line, key=key)
    return read_definition(value)


def yaml_to_json(payload: bytes) -> bytes:
    """The child's part: YAML in; the value, and the mistake in it as a definition, where the lines are known."""
    try:
        value, lines = read_yaml(payload.decode(), "", fast=True)
        Source(value, lines, "").definition()
    except ConfigError as exc:
        return msgspec.json.encode((None, (exc.message, exc.line, exc.key)))
    return msgspec.json.encode((value, None))


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


def _key(path: str) -> str:
    """The path of a definition's decoder (`$.blocks[2].id`) as the key that a message shows."""
    return path.removeprefix("$").lstrip(".")
