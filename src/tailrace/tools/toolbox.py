"""The built-in tools by name: what `agent.tools` may list."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from tailrace.errors import ConfigError
from tailrace.ports import Tool


class Supplies(msgspec.Struct, frozen=True):
    """What tools are made with. `environment` is what commands get to see: the user's, without the keys that we hold.
    `allow_hosts` are hosts that `web_fetch` may reach although they are not public."""

    environment: Mapping[str, str]
    allow_hosts: tuple[str, ...] = ()


def _terminal(supplies: Supplies) -> Tool:
    from tailrace.tools.terminal import Terminal

    return Terminal(supplies.environment)


def _read_file(_: Supplies) -> Tool:
    from tailrace.tools.read_file import ReadFile

    return ReadFile()


def _write_file(_: Supplies) -> Tool:
    from tailrace.tools.write_file import WriteFile

    return WriteFile()


def _patch(_: Supplies) -> Tool:
    from tailrace.tools.patch import Patch

    return Patch()


def _search_files(_: Supplies) -> Tool:
    from tailrace.tools.search.search_files import SearchFiles

    return SearchFiles()


def _web_fetch(supplies: Supplies) -> Tool:
    from tailrace.tools.web.web_fetch import WebFetch

    return WebFetch(allow_hosts=supplies.allow_hosts)


# Each is imported when it is asked for: a run without tools pays for none.
BUILTIN: Final[Mapping[str, Callable[[Supplies], Tool]]] = {
    "terminal": _terminal,
    "read_file": _read_file,
    "write_file": _write_file,
    "patch": _patch,
    "search_files": _search_files,
    "web_fetch": _web_fetch,
}


def builtin_tools(
    names: Iterable[str], *, environment: Mapping[str, str], allow_hosts: Iterable[str] = ()
) -> dict[str, Tool]:
    """The tools of these names, in their order. Raises `ConfigError` for a name that is none."""
    supplies = Supplies(environment, tuple(allow_hosts))
    return {name: _maker(name)(supplies) for name in names}


def _maker(name: str) -> Callable[[Supplies], Tool]:
    if maker := BUILTIN.get(name):
        return maker
    close = difflib.get_close_matches(name, BUILTIN, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(BUILTIN)}"
    raise ConfigError(f"there is no tool named {name!r}; {hint}", key="agent.tools")
