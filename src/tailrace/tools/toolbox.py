"""The built-in tools by name: what `agent.tools` may list."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, Final

from tailrace.errors import ConfigError
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
    if place := BUILTIN.get(name):
        module, _, class_name = place.partition(":")
        return getattr(import_module(f"tailrace.tools.{module}"), class_name)
    close = difflib.get_close_matches(name, BUILTIN, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(BUILTIN)}"
    raise ConfigError(f"there is no tool named {name!r}; {hint}", key="agent.tools")
