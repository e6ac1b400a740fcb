"""Modules of the page as one script that needs no server: for a file that is opened from a disk.

Each module becomes a function that is run once, in the order in which they import each other. The page's modules keep
to the forms that are read here, which a test holds: imports and exports at the beginning of a line, no circles.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from typing import Final

_IMPORT: Final = re.compile(r'^import\s+(?:(?P<names>[^"\';]+?)\s+from\s+)?["\'](?P<path>[^"\']+)["\'];?', re.MULTILINE)
_EXPORT_FROM: Final = re.compile(r'^export\s+\{(?P<names>[^}]*)\}\s+from\s+["\'](?P<path>[^"\']+)["\'];?', re.MULTILINE)
_EXPORT_LIST: Final = re.compile(r"^export\s+\{(?P<names>[^}]*)\};?", re.MULTILINE)
_EXPORT_ONE: Final = re.compile(
    r"^export\s+(?P<rest>(?:async\s+)?(?:function\*?|class|const|let)\s+(?P<name>[A-Za-z_$][\w$]*))", re.MULTILINE
)
_LEFT_OVER: Final = re.compile(r"^(?:import|export)\b.*|\bimport\s*\(.*|\bimport\.meta\b.*", re.MULTILINE)

ReadModule = Callable[[str], str]


class NotBundled(ValueError):
    """A module uses a form that the bundle does not know."""


def bundled(entry: str, read: ReadModule) -> str:
    """The entry and all that it imports. `read` gives the source at a path below the page's directory."""
    bundle = _Bundle(read)
    bundle.add(entry, ())
    return "\n".join(['"use strict";', *bundle.parts])


class _Bundle:
    def __init__(self, read: ReadModule) -> None:
        self._read = read
        self._names: dict[str, str] = {}  # of the values that hold a module's exports, by path
        self.parts: list[str] = []

    def add(self, path: str, above: tuple[str, ...]) -> str:
        """The name of the module's exports. `above` are the modules that are waiting for it."""
        if path in above:
            raise NotBundled(f"{path} imports itself by way of {' and '.join(above[above.index(path) + 1 :])}")
        if path not in self._names:
            body, exported = self._rewritten(path, (*above, path))
            name = self._names[path] = f"module{len(self._names)}"
            returned = ", ".join(f"{outside}: {inside}" for outside, inside in exported.items())
            self.parts.append(f"const {name} = (() => {{\n{body}\nreturn {{ {returned} }};\n}})();")
        return self._names[path]

    def _rewritten(self, path: str, above: tuple[str, ...]) -> tuple[str, dict[str, str]]:
        """The module's source without imports and exports, and what it exports: the name outside and inside."""
        source = self._read(path)
        exported: dict[str, str] = {}

        def imported(found: re.Match[str]) -> str:
            module = self.add(_resolved(path, found["path"]), above)
            names = found["names"]
            return "" if names is None else f"const {_taken(names, path)} = {module};"

        def passed_on(found: re.Match[str]) -> str:
            module = self.add(_resolved(path, found["path"]), above)
            for inside, outside in _pairs(found["names"]):
                exported[outside] = f"{module}.{inside}"
            return ""

        def listed(found: re.Match[str]) -> str:
            exported.update({outside: inside for inside, outside in _pairs(found["names"])})
            return ""

        def declared(found: re.Match[str]) -> str:
            exported[found["name"]] = found["name"]
            return found["rest"]

        for pattern, replaced in (
            (_IMPORT, imported),
            (_EXPORT_FROM, passed_on),
            (_EXPORT_LIST, listed),
            (_EXPORT_ONE, declared),
        ):
            source = pattern.sub(replaced, source)
        if (left := _LEFT_OVER.search(source)) is not None:
            raise NotBundled(f"{path}: {left[0][:80]}")
        return source, exported


def _resolved(path: str, wanted: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), wanted))


def _pairs(names: str) -> list[tuple[str, str]]:
    """`a, b as c` → (a, a), (b, c)"""
    found = [name.split(" as ") for name in map(str.strip, names.split(",")) if name]
    return [(name[0].strip(), name[-1].strip()) for name in found]


def _taken(names: str, path: str) -> str:
    """What an import takes, as the left side of a declaration."""
    names = names.strip()
    if names.startswith("* as "):
        return names.removeprefix("* as ")
    if not (names.startswith("{") and names.endswith("}")):
        raise NotBundled(f"{path}: import {names}")
    inside = ", ".join(f"{name}: {local}" if name != local else name for name, local in _pairs(names[1:-1]))
    return f"{{ {inside} }}"
