"""Templates: `{{expression}}` inside the texts of JSON values.

Pure. A text that is one template and nothing else becomes the value itself, with its type; inside a longer text a
value becomes text, and JSON where it is neither text nor number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from tailrace.flows.language.expressions import Expression, ExpressionError, Scope, evaluate, parse_expression

MAX_TEXT_CHARS: Final = 10_000_000  # of a text once its templates are filled in: a few lines could ask for any length
_CACHED_CHARS: Final = 2000


def parts_of(text: str) -> tuple[str | Expression, ...]:
    """Plain text and expressions, in turns. Raises `ExpressionError`."""
    return _short_parts_of(text) if len(text) <= _CACHED_CHARS else _parts_of(text)


@lru_cache(maxsize=4096)
def _short_parts_of(text: str) -> tuple[str | Expression, ...]:
    return _parts_of(text)


def _parts_of(text: str) -> tuple[str | Expression, ...]:
    parts: list[str | Expression] = []
    at = 0
    while (start := text.find("{{", at)) >= 0:
        end = text.find("}}", start + 2)
        if end < 0:
            raise ExpressionError("'{{' is never closed")
        if start > at:
            parts.append(text[at:start])
        parts.append(parse_expression(text[start + 2 : end].strip()))
        at = end + 2
    if at < len(text):
        parts.append(text[at:])
    return tuple(parts)


def resolved(value: Any, scope: Scope, *, strict: bool = True) -> Any:
    """The same JSON value with every template in it replaced. Raises `ExpressionError`; where it is not `strict`,
    what is not there is null."""
    if isinstance(value, str):
        return _text(value, scope, strict=strict) if "{{" in value else value
    if isinstance(value, Mapping):
        return {key: resolved(inner, scope, strict=strict) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [resolved(inner, scope, strict=strict) for inner in value]
    return value


def _text(text: str, scope: Scope, *, strict: bool) -> Any:
    parts = parts_of(text)
    if len(parts) == 1 and not isinstance(parts[0], str):
        return evaluate(parts[0], scope, strict=strict)
    pieces: list[str] = []
    length = 0
    for part in parts:
        pieces.append(part if isinstance(part, str) else as_text(evaluate(part, scope, strict=strict)))
        length += len(pieces[-1])
        if length > MAX_TEXT_CHARS:
            raise ExpressionError(f"the text grows past {MAX_TEXT_CHARS} characters")
    return "".join(pieces)


def as_text(value: Any) -> str:
    """A value inside a text: texts as they are, everything else as JSON."""
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def has_template(value: Any) -> bool:
    if isinstance(value, str):
        return "{{" in value
    if isinstance(value, Mapping):
        return any(map(has_template, value.values()))
    return isinstance(value, list | tuple) and any(map(has_template, value))


def expressions_in(value: Any, path: str = "") -> Iterator[tuple[str, Expression]]:
    """Every expression in a JSON value, with its place. Raises `ExpressionError` with `path` in front."""
    if isinstance(value, str) and "{{" in value:
        try:
            found = [part for part in parts_of(value) if not isinstance(part, str)]
        except ExpressionError as exc:
            raise Misplaced(path, str(exc)) from exc
        yield from ((path, expression) for expression in found)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from expressions_in(inner, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from expressions_in(inner, f"{path}[{index}]")


class Misplaced(ExpressionError):
    """A mistake in the template at `path`."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path
