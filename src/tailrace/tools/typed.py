"""Tools from typed arguments: the schema, the validation and the defaults of the `Tool` port, from one struct."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from typing import Any, ClassVar, Final, Generic, TypeVar

import msgspec

from tailrace.errors import ToolRefused
from tailrace.messages import JsonObject, ToolSpec
from tailrace.ports import Effect, ToolContext, ToolOutcome
from tailrace.values.validation_words import decoding_problem

ArgsT = TypeVar("ArgsT", bound="Arguments")
_MAX_PREVIEW_CHARS = 80


class Arguments(msgspec.Struct, forbid_unknown_fields=True):
    """Base of a tool's arguments. A misspelt name is an error that the model reads, not a wish that is ignored."""


class TypedTool(ABC, Generic[ArgsT]):
    """A tool whose arguments are a struct. A subclass names itself, its `Args` and what it does. Text for a number is
    taken for the number: models send it, and what they mean is plain."""

    name: ClassVar[str]
    description: ClassVar[str]
    Args: type[ArgsT]
    repeatable: bool = False
    parallel: bool = False

    def __init__(self) -> None:
        self.spec = ToolSpec(self.name, self.description, _own_schema(self.Args))

    def invalid(self, args: JsonObject) -> str:
        return invalid_arguments(args, self.Args)

    def preview(self, args: JsonObject) -> str:
        return preview_of(args)

    def effect(self, _args: JsonObject) -> Effect:
        return Effect()

    async def run(self, args: JsonObject, context: ToolContext) -> ToolOutcome:
        try:
            return await self.execute(msgspec.convert(args, self.Args, strict=False), context)
        except ToolRefused as exc:
            return failed(str(exc))

    @abstractmethod
    async def execute(self, args: ArgsT, context: ToolContext) -> ToolOutcome:
        """What the tool does with its arguments. A failure that the model can act on is an outcome; so is what
        `ToolRefused` says."""


def invalid_arguments(args: JsonObject, expected: type[msgspec.Struct]) -> str:
    """What is wrong with the arguments, in words for the model; empty when nothing is."""
    try:
        msgspec.convert(args, expected, strict=False)
    except msgspec.ValidationError as exc:
        return f"Invalid arguments: {decoding_problem(exc, expected)}"
    return ""


def preview_of(args: JsonObject) -> str:
    """The first text among the arguments: what a call is about, in most tools. Without one, the numbers by name."""
    if text := next((value for value in args.values() if isinstance(value, str)), ""):
        return preview_line(text)
    numbers = {name: value for name, value in args.items() if isinstance(value, int | float)}
    return preview_line(" ".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in numbers.items()))


def preview_line(text: str, max_chars: int = _MAX_PREVIEW_CHARS) -> str:
    """The beginning of a text for a line on a screen."""
    line = " ".join(text.split())
    return line if len(line) <= max_chars else line[: max_chars - 1] + "…"


def schema_of(args: type[msgspec.Struct]) -> JsonObject:
    """A flat JSON schema with no references to definitions: some providers do not follow them at the top."""
    (schema,), components = msgspec.json.schema_components([args], ref_template="#/$defs/{name}")
    top: JsonObject = dict(components.pop(args.__name__, schema))
    top.pop("title", None)
    top.pop("description", None)
    if components:
        top["$defs"] = components
    return {key: _without_titles(value) for key, value in top.items()}


_own_schema: Final = cache(schema_of)  # each agent has tools of its own, of the same few classes


def _without_titles(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_titles(v) for k, v in value.items() if not (k == "title" and isinstance(v, str))}
    if isinstance(value, list):
        return [_without_titles(v) for v in value]
    return value


def failed(message: str) -> ToolOutcome:
    return ToolOutcome(message, ok=False)


def clipped(text: str, max_chars: int) -> str:
    """Head and tail of a text that is too long, with what is missing named in between."""
    if len(text) <= max_chars:
        return text
    head, tail = max_chars * 2 // 3, max_chars // 3
    return f"{text[:head]}\n… {len(text) - head - tail} characters left out …\n{text[-tail:]}"
