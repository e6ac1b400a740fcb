"""Draws docs/screenshots/inspector*.webp: a sample run in the inspector, in a real browser without a window.

python scripts/inspector_screenshots.py
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from app.timeline.sample_run import sample_log
from server.web import chromium
from server.web.chromium import Tab, browsing
from tailrace.app.timeline.export_html import export_html

TARGET = ROOT / "docs" / "screenshots"
OPEN_PATCH = 'document.querySelector(".bar-tool_call[title*=patch]").click()'
AT_APPROVAL = 'const r = document.querySelector(".scrub"); r.value = 720; r.dispatchEvent(new Event("input"))'
# name, width, height, colours, what is done before the picture is taken
PICTURES = (
    ("inspector", 1280, 800, "light", OPEN_PATCH),
    ("inspector-dark", 1280, 800, "dark", AT_APPROVAL),
    ("inspector-phone", 390, 844, "light", ""),
)


async def draw(tab: Tab, page: Path) -> None:
    for name, width, height, colours, action in PICTURES:
        await tab.size(width, height)
        await tab.colours(colours)
        await tab.go(page.as_uri())
        await tab.until_shown("What happened")
        if action:
            await tab.value(f"{{ {action} }} new Promise(requestAnimationFrame)")
        (TARGET / f"{name}.webp").write_bytes(await tab.picture("webp"))
        print(f"· docs/screenshots/{name}.webp")


async def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        log, page = sample_log(), Path(scratch) / "run.html"
        page.write_text(export_html(log.timeline(), log.entries), encoding="utf-8")
        with chromium.started(Path(scratch) / "browser") as devtools:
            async with browsing(devtools) as browser:
                await draw(await browser.tab("about:blank"), page)


if __name__ == "__main__":
    asyncio.run(main())
