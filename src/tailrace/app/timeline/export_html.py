"""A run as one HTML file that needs nothing else: the page's inspector with the run's timeline and events in it.

The file opens from a disk and fetches nothing: its own policy allows the two scripts and the style that are in it, by
their hashes, and no connection. What the run says stands in it as data, in which no markup can end or begin.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

from tailrace.app.timeline.items import Timeline
from tailrace.app.timeline.read import read_log, timeline_in
from tailrace.app.timeline.web_bundle import bundled
from tailrace.events import Entry, entry_to_json
from tailrace.journal.viewed_lines import without_reasoning
from tailrace.messages import Dialect
from tailrace.ports import Journal

_ENTRY: Final = "inspector/exported.js"
_STYLES: Final = (
    "style/base.css",
    "style/answer.css",
    "style/approvals.css",
    "style/inspector.css",
    "style/inspector_lanes.css",
    "style/inspector_items.css",
)
_PAGE: Final = """<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta http-equiv="Content-Security-Policy" content="{policy}">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <meta name="color-scheme" content="light dark">
    <title>Tailrace</title>
    <link rel="icon" href="data:,">
    <style>{style}</style>
  </head>
  <body data-view="inspector">
    <noscript>This file shows a run with scripts of its own: allow them to see it.</noscript>
    <script type="application/json" id="runs">{data}</script>
    <script>{script}</script>
  </body>
</html>
"""


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
    return _PAGE.format(policy=policy, style=style, script=script, data=_inert(data.decode()))


async def read_export(
    journal: Journal, run_id: str, *, reasoning: bool = False, dialects: Mapping[str, Dialect] | None = None
) -> str:
    """The file of a run in a journal. Raises `RunNotFound`. `dialects` as of `timeline_of`."""
    run = await journal.get(run_id)
    entries = await read_log(journal, run)  # once: the timeline and the events are of the same moment
    timeline = await timeline_in(journal, run, entries, reasoning=reasoning, dialects=dialects)
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
