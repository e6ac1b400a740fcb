"""`@tool` makes a tool of a typed function: its schema from the signature, its words from the docstring.

    @tool(repeatable=True, parallel=True)
    async def forecast(city: str, days: Annotated[int, Meta(ge=1, le=14)] = 3) -> str:
        '''The weather of the days ahead. A section `Args:` describes the parameters.'''

The function stays callable as it was. It is its author's own code and is trusted: it runs without asking unless
`effect="external"` says that the user is asked first.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import re
from collections.abc import Callable, Mapping
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    ParamSpec,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import msgspec
from msgspec import Meta

from tailrace.errors import ConfigError
from tailrace.messages import JsonObject, ToolSpec
from tailrace.ports import Effect, ToolContext, ToolOutcome
from tailrace.tools.context import Context, given_deps
from tailrace.tools.typed import TypedTool, schema_of

P = ParamSpec("P")
R = TypeVar("R")
FunctionEffect = Literal["none", "write", "external"]

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what every provider takes
_SECTION: Final = re.compile(
    r"^(Args|Arguments|Parameters|Returns?|Raises|Yields?|Examples?|Notes?):\s*$", re.MULTILINE
)
_ENTRY: Final = re.compile(r"^(\s*)\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.*)$")
_MUTABLE: Final = (list, dict, set, bytearray)


class FunctionTool(TypedTool[Any], Generic[P, R]):
    """A function as a tool. Call it like the function; hand it to an agent like a tool."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str = "",
        description: str = "",
        repeatable: bool = False,
        parallel: bool = False,
        effect: FunctionEffect = "none",
    ) -> None:
        """Raises `TypeError` for a function that cannot be a tool: a parameter without a type, or of a type that JSON
        cannot bring; and for an effect that there is not."""
        self.__wrapped__ = function
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", name)
        self.repeatable = repeatable
        self.parallel = parallel
        self._function = function
        self._effect: FunctionEffect = effect
        self._name = name or self.__name__
        if not _NAME.fullmatch(self._name):
            raise TypeError(f"{self._name!r} cannot name a tool: letters, digits, _ and -, at most 64")
        if effect not in (effects := get_args(FunctionEffect)):
            raise TypeError(f"{self._name}: effect is one of {', '.join(effects)}; found {effect!r}")
        summary, described = _described(inspect.getdoc(function) or "")
        self._context, self._context_type, self.Args = _signature(function, self._name, described)
        self.spec = ToolSpec(self._name, description or summary, _schema(self.Args, self._name))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self._name}>"

    def effect(self, args: JsonObject) -> Effect:
        if self._effect == "none":
            return Effect()
        return Effect(self._effect, f"{self._name} {msgspec.json.encode(args).decode()}")

    def check_deps(self) -> None:
        """Raises `ConfigError` where the run that is begun lacks the `deps` that this tool's `Context` names."""
        for wanted in get_args(self._context_type):
            kind = get_origin(wanted) or wanted
            if isinstance(kind, type) and not isinstance(found := given_deps(), kind):
                raise ConfigError(f"the tool {self._name} wants deps={kind.__name__}(…), found {found!r}")

    async def execute(self, args: msgspec.Struct, context: ToolContext) -> ToolOutcome:
        values = msgspec.structs.asdict(args)
        if self._context:
            values[self._context] = context if self._context_type is ToolContext else Context(context)
        call: Callable[..., Any] = self._function
        if inspect.iscoroutinefunction(call):
            result = await call(**values)
        else:  # a thread cannot be ended: when the run is stopped, the function goes on and its result is dropped
            result = await asyncio.to_thread(call, **values)
        return _outcome(result)


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...


@overload
def tool(
    *,
    name: str = "",
    description: str = "",
    repeatable: bool = False,
    parallel: bool = False,
    effect: FunctionEffect = "none",
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(
    function: Callable[P, R] | None = None, /, **options: Any
) -> FunctionTool[P, R] | Callable[[Callable[P, R]], FunctionTool[P, R]]:
    """Makes a tool of a function, plain (`@tool`) or with options.

    `repeatable`: running it twice does no more than running it once, so it may run again after a crash.
    `parallel`: it may run beside other tools of the same answer.
    `effect`: "none"; "write" (changes files: a checkpoint is taken first); "external" (the user is asked first).
    """
    if function is not None:
        return FunctionTool(function, **options)
    return lambda f: FunctionTool(f, **options)


def _outcome(result: object) -> ToolOutcome:
    match result:
        case ToolOutcome():
            return result
        case str():
            return ToolOutcome(result)
        case None:
            return ToolOutcome("(done)")
        case _:
            return ToolOutcome(msgspec.json.encode(result, enc_hook=_plain).decode())


def _plain(value: Any) -> object:
    """What JSON does not know: a pydantic model as its fields, any other object as its text."""
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else str(value)


def _signature(
    function: Callable[..., Any], name: str, described: Mapping[str, str]
) -> tuple[str, Any, type[msgspec.Struct]]:
    """The parameter that takes the context, if there is one, its type, and a struct of all the others."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as exc:
        raise TypeError(f"{name}: {exc}; the types of a tool must be known in its module") from exc
    context, context_type = "", None
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD and parameter.kind is not parameter.KEYWORD_ONLY:
            raise TypeError(f"{name}: a tool takes no * and no positional-only parameters ({parameter})")
        if parameter.name not in hints:
            raise TypeError(f"{name}: the parameter {parameter.name} has no type")
        hint = hints[parameter.name]
        if hint is ToolContext or hint is Context or get_origin(hint) is Context:
            context, context_type = parameter.name, hint
            continue
        has_one = any(isinstance(extra, Meta) and extra.description for extra in get_args(hint)[1:])
        if (text := described.get(parameter.name)) and not has_one:
            hint = Annotated[hint, Meta(description=text)]
        fields.append(_field(parameter, hint))
    return context, context_type, msgspec.defstruct(f"{name}_args", fields, forbid_unknown_fields=True, kw_only=True)


def _field(parameter: inspect.Parameter, hint: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
    default = parameter.default
    if default is parameter.empty:
        return parameter.name, hint
    if isinstance(default, _MUTABLE):  # each call gets its own
        return parameter.name, hint, msgspec.field(default_factory=lambda: copy.deepcopy(default))
    return parameter.name, hint, default


def _schema(args: type[msgspec.Struct], name: str) -> JsonObject:
    try:
        return schema_of(args)
    except TypeError as exc:
        reason = str(exc).rpartition("\n")[2]  # before it stand options of msgspec's, which a tool does not have
        raise TypeError(f"{name}: {reason}; take one that JSON has, a dataclass or a msgspec.Struct") from exc


def _described(doc: str) -> tuple[str, dict[str, str]]:
    """What a docstring says of the function, and of each parameter in its `Args:` section."""
    sections = list(_SECTION.finditer(doc))
    summary = doc[: sections[0].start()] if sections else doc
    described: dict[str, str] = {}
    ends = [*(section.start() for section in sections[1:]), len(doc)]
    for section, end in zip(sections, ends, strict=False):
        if section[1] in ("Args", "Arguments", "Parameters"):
            described |= _entries(doc[section.end() : end])
    return summary.strip(), described


def _entries(text: str) -> dict[str, str]:
    """`name: words`, going on over lines that are indented further."""
    entries: dict[str, str] = {}
    indent, current = -1, ""
    for line in text.split("\n"):
        entry = _ENTRY.match(line)
        if entry and (indent < 0 or len(entry[1]) <= indent):
            indent, current = len(entry[1]), entry[2]
            entries[current] = entry[3].strip()
        elif current and line.strip():
            entries[current] = f"{entries[current]} {line.strip()}".strip()
    return entries
