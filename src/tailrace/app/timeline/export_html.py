"""A run as one HTML file that needs nothing else: the page's inspector with the run's timeline and events in it.

The file opens from a disk and fetches nothing: its own policy allows the two scripts and the style that are in it, by
their hashes, and no connection. What the run says stands in it as data, in which no markup can end or begin.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import posixpath
import re
from collections.abc import Callable, Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

import msgspec

from tailrace.app.costs import Costs
from tailrace.app.timeline.items import Timeline
from tailrace.app.timeline.read import read_log, timeline_in
from tailrace.events import Entry, entry_to_json
from tailrace.journal.viewed_lines import without_reasoning
from tailrace.ports import Journal

_ENTRY: Final = "inspector/exported.js"
_STYLES: Final = (
    "style/variables.css",
    "style/base.css",
    "style/answer.css",
    "style/approvals.css",
    "style/inspector.css",
    "style/inspector_lanes.css",
    "style/inspector_items.css",
)
_PAGE: Final = Path(__file__).with_name("export.html")  # braces as in `str.format`

_IMPORT: Final = re.compile(r'^import\s+(?P<names>\{[^}]*\})\s+from\s+"(?P<path>[^"]+)";', re.MULTILINE)
_EXPORT_LIST: Final = re.compile(r"^export\s+\{(?P<names>[\w$,\s]*)\};", re.MULTILINE)
_EXPORT_ONE: Final = re.compile(
    r"^export\s+(?P<rest>(?:async\s+)?(?:function\*?|class|const|let)\s+(?P<name>[A-Za-z_$][\w$]*))", re.MULTILINE
)
_LEFT_OVER: Final = re.compile(r"^(?:import|export)\b.*|\bimport\s*\(.*|\bimport\.meta\b.*", re.MULTILINE)


class NotBundled(ValueError):
    """A module uses a form that the bundle does not know."""


def bundled(entry: str, read: Callable[[str], str]) -> str:
    """The entry and all that it imports. `read` gives the source at a path below the page's directory."""
    parts = ['"use strict";']
    names: dict[str, str] = {}  # of the values that hold a module's exports, by path; empty while it is being read

    def add(path: str) -> str:
        if path in names:
            if not names[path]:
                raise NotBundled(f"{path} imports itself")
            return names[path]
        names[path] = ""
        source = read(path)
        exported = [found["name"] for found in _EXPORT_ONE.finditer(source)]
        exported += [found["names"].strip() for found in _EXPORT_LIST.finditer(source)]

        def imported(found: re.Match[str]) -> str:
            module = add(posixpath.normpath(posixpath.join(posixpath.dirname(path), found["path"])))
            return f"const {found['names'].replace(' as ', ': ')} = {module};"

        body = _EXPORT_ONE.sub(r"\g<rest>", _EXPORT_LIST.sub("", _IMPORT.sub(imported, source)))
        if (left := _LEFT_OVER.search(body)) is not None:
            raise NotBundled(f"{path}: {left[0][:80]}")
        names[path] = f"module{len(parts)}"
        parts.append(f"const {names[path]} = (() => {{\n{body}\nreturn {{ {', '.join(exported)} }};\n}})();")
        return names[path]

    add(entry)
    return "\n".join(parts)


def export_html(timeline: Timeline, entries: Iterable[Entry], *, reasoning: bool = False) -> str:
    """The file. `entries` is the log of the timeline's run; what the model thought is left out of both unless asked
    for: make the timeline with the same `reasoning`."""
    shown = entries if reasoning else without_reasoning(entries)
    events = b",".join(map(entry_to_json, shown))
    data = b'{"runs":[{"timeline":%b,"events":[%b]}]}' % (msgspec.json.encode(timeline), events)
    script, style = _script(), _style()
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_hash(script)}'",
            f"style-src '{_hash(style)}'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    return _PAGE.read_text(encoding="utf-8").format(
        policy=policy, style=style, script=script, data=_inert(data.decode())
    )


async def read_export(journal: Journal, run_id: str, *, reasoning: bool = False, costs: Costs | None = None) -> str:
    """The file of a run in a journal. Raises `RunNotFound`. `costs` as of `timeline_of`."""
    run = await journal.get(run_id)
    entries = await read_log(journal, run)  # once: the timeline and the events are of the same moment
    timeline = await timeline_in(journal, run, entries, reasoning=reasoning, costs=costs)
    return await asyncio.to_thread(export_html, timeline, entries, reasoning=reasoning)


def _inert(json: str) -> str:
    """JSON that cannot end the element in which it stands, nor begin a comment there."""
    return json.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@cache
def _script() -> str:
    return bundled(_ENTRY, _read).replace("</script", "<\\/script")


@cache
def _style() -> str:
    return "\n".join(map(_read, _STYLES))


def _read(path: str) -> str:
    """A file of the page: data that lies beside the server's code."""
    return (files("tailrace") / "server" / "web" / path).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
