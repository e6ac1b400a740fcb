"""What `tailrace flow` is given: the file of a sequence, and the values of its input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tailrace.errors import ConfigError
from tailrace.flows.definition.definition import Definition
from tailrace.flows.definition.source import Source, parse_source

MAX_FILE_BYTES = 1 << 20


def read_source(name: str) -> Source:
    """Raises `ConfigError`."""
    try:
        data = Path(name).read_bytes()
    except OSError as exc:
        raise ConfigError(f"cannot be read: {exc.strerror}", file=name) from exc
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"larger than {MAX_FILE_BYTES} bytes", file=name)
    try:
        return parse_source(data.decode("utf-8-sig"), name)
    except UnicodeDecodeError as exc:
        raise ConfigError("not UTF-8 text", file=name, line=data.count(b"\n", 0, exc.start) + 1) from exc


def parse_input(pairs: Sequence[str], schema: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`k=v` each: of the type that the schema names, else JSON where it is JSON, else text. Raises `ConfigError`."""
    given: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise ConfigError(f"expected K=V, found {pair[:60]!r}", key="--input")
        if name in given:
            raise ConfigError(f"{name[:60]!r} is given twice", key="--input")
        given[name] = _input_value(text, _property(schema or {}, name).get("type"))
    return given


def _input_value(text: str, wanted: object) -> Any:
    """A number is one where the schema wants it, or where it reads back as it was typed: `1.10` is a version and
    `1234e56` a commit, and neither is to be rounded."""
    value = json_or_text(text)
    if wanted == "string":
        return value if isinstance(value, str) else text
    if type(value) in (int, float) and not _may_be_number(wanted) and msgspec.json.encode(value).decode() != text:
        return text
    return value


def _may_be_number(wanted: object) -> bool:
    return any(one in ("number", "integer") for one in (wanted if isinstance(wanted, list) else [wanted]))


def json_or_text(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text


def check_required(definition: Definition, given: Mapping[str, Any], file: str) -> None:
    """Raises `ConfigError` where a value is not given that the sequence requires."""
    schema = definition.input_schema or {}
    required = schema.get("required")
    names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    if missing := [name for name in names if name not in given]:
        wanted = " ".join(f"--input {name}=…" for name in missing)
        raise ConfigError(f"needs {wanted}", file=file)


def _property(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """What the schema says of this value of the input; empty where it says nothing."""
    properties = schema.get("properties")
    about = properties.get(name) if isinstance(properties, Mapping) else None
    return about if isinstance(about, Mapping) else {}
