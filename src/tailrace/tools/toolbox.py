"""The tools of an agent: the built-in ones by name, which `agent.tools` may list, and those that a program gives."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, cast

from tailrace.errors import ConfigError
from tailrace.messages import ToolSpec
from tailrace.ports import Tool

# Each is imported when it is asked for: a run without tools pays for none.
BUILTIN: Final[Mapping[str, str]] = {
    "terminal": "terminal:Terminal",
    "read_file": "read_file:ReadFile",
    "write_file": "write_file:WriteFile",
    "patch": "patch:Patch",
    "search_files": "search.search_files:SearchFiles",
    "web_fetch": "web.web_fetch:WebFetch",
}


def builtin_tools(
    names: Iterable[str], *, environment: Mapping[str, str], allow_hosts: Iterable[str] = ()
) -> dict[str, Tool]:
    """The tools of these names, in their order. `environment` is what commands get to see: the user's, without the keys
    that we hold. `allow_hosts` are hosts that `web_fetch` may reach although they are not public. Raises `ConfigError`
    for a name that is none."""
    settings: dict[str, dict[str, Any]] = {
        "terminal": {"environment": environment},
        "web_fetch": {"allow_hosts": tuple(allow_hosts)},
    }
    return {name: _tool_class(name)(**settings.get(name, {})) for name in names}


def _tool_class(name: str) -> Any:
    check_name(name, "agent.tools")
    module, _, class_name = BUILTIN[name].partition(":")
    return getattr(import_module(f"tailrace.tools.{module}"), class_name)


def check_name(name: str, key: str) -> None:
    """Raises `ConfigError` where no tool of ours has this name."""
    if name in BUILTIN:
        return
    close = difflib.get_close_matches(name, BUILTIN, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(BUILTIN)}"
    raise ConfigError(f"there is no tool named {name!r}; {hint}", key=key)


_PARTS: Final = ("spec", "repeatable", "parallel", "invalid", "preview", "effect", "run")  # of `Tool`


def _missing(tool: object) -> list[str]:
    return [part for part in _PARTS if not hasattr(tool, part)]


def _remedy(tool: object) -> str:
    if callable(tool) or isinstance(tool, str):
        return "give a typed function, or name one of ours in builtin="
    if missing := _missing(tool):
        return f"it lacks {', '.join(missing)} of tailrace.ports.Tool"
    return "its spec is no ToolSpec"


def given_tools(tools: Sequence[Tool | Callable[..., object]]) -> Sequence[Tool]:
    """With a plain function as `@tool` makes it. Raises `ConfigError` for what is no tool, and where two have one
    name."""
    given = tuple(map(_given_tool, tools))
    names = set[str]()
    for tool in given:
        if tool.spec.name in names:
            raise ConfigError(f"tools: two have the name {tool.spec.name!r}")
        names.add(tool.spec.name)
    return given


def _given_tool(tool: Any) -> Tool:
    if inspect.isfunction(tool) or inspect.ismethod(tool):
        from tailrace.tools.function import FunctionTool

        try:
            return FunctionTool(tool)
        except TypeError as exc:
            raise ConfigError(f"tools: {exc}") from exc
    spec = getattr(tool, "spec", None)
    if not isinstance(spec, ToolSpec):
        raise ConfigError(f"tools: {getattr(tool, '__name__', tool)!r} is no tool: {_remedy(tool)}")
    if missing := _missing(tool):
        raise ConfigError(f"tools: {spec.name!r} is no tool: it lacks {', '.join(missing)} of tailrace.ports.Tool")
    return cast("Tool", tool)
