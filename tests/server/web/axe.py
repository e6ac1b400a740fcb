"""axe-core in an opened page: what stands in the way of people who do not see, or do not use a mouse.

It is one of the packages that `make clients` installs.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path

import pytest

from server.web.chromium import Tab

ROOT = Path(__file__).parents[3]
TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
_RUN = """axe.run(document, { runOnly: %s, resultTypes: ["violations"] }).then(({ violations }) =>
  violations.map(({ id, impact, nodes }) => `${impact} ${id}: ${nodes.map(({ target, failureSummary }) =>
    `${target} (${failureSummary.split("\\n").slice(1).join(" ").trim()})`).join("; ")}`))"""


@cache
def source() -> str:
    """Skips the test where it is not installed, and fails it in CI."""
    clients = Path(os.environ.get("TAILRACE_CLIENTS_DIR") or ROOT / ".clients")
    script = clients / "node_modules/axe-core/axe.min.js"
    if script.exists():
        return script.read_text(encoding="utf-8")
    reason = f"no {script}; run: make clients"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


async def violations(tab: Tab, view: str) -> list[str]:
    """What axe finds in the page as it is now, each with the elements and the name of the view."""
    if not await tab.value("'axe' in window"):
        await tab.value(source() + "; undefined")
    found: list[str] = await tab.value(_RUN % json.dumps(TAGS))
    return [f"{view}: {line}" for line in found]


async def violations_everywhere(tab: Tab, view: str) -> list[str]:
    """In light colours at the size of a desktop, and in dark ones at that of a phone. No colour depends on width."""
    found: list[str] = []
    for width, height, scheme in ((1280, 800, "light"), (390, 844, "dark")):
        await tab.size(width, height)
        await tab.colours(scheme)
        found += await violations(tab, f"{view}, {width} px, {scheme}")
    return found
