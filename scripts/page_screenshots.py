"""Draws docs/screenshots/page-*.webp: the web page in Chromium, against a provider that answers by script.

python scripts/page_screenshots.py
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

import aiohttp

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from server.web import chromium
from server.web.chromium import Tab, browsing
from server.web.opened_page import ENDED, SETTLED
from tailrace.app import open_app
from tailrace.config.load import Config, load
from tailrace.server.app import serving
from tailrace.testing.provider import FaultyProvider, call, reply, say

TARGET = ROOT / "docs" / "screenshots"
ANSWER = """\
A **tailrace** is the channel that carries water away from the mill.

1. The *headrace* brings the water to the wheel.
2. The wheel takes what it needs.
3. The tailrace carries the stream on, to `wherever` it is needed next.

```python
async def tail(log: Journal, run: str, after: int = 0) -> AsyncIterator[Event]:
    async for batch in log.tail(run, after=after):  # everything new, in one go
        for entry in batch:
            yield entry.event
```

| part     | length |
|----------|-------:|
| headrace |  120 m |
| tailrace |   85 m |
"""
ASKED = {"provider": "scripted", "model": "scripted-1", "prompt": "A card from {{city}}."}
CARD = {"type": "step", "id": "card", "handler": "llm_call", "params": {**ASKED, "stream": True}}
SEQUENCE = {
    "name": "postcards",
    "blocks": [
        {
            "type": "parallel",
            "id": "work",
            "branches": [
                [
                    {
                        "type": "for_each",
                        "id": "cities",
                        "collection": "{{input.cities}}",
                        "item_var": "city",
                        "body": [CARD],
                    }
                ],
                [{"type": "step", "id": "stamps", "handler": "sleep", "params": {"seconds": 1}}],
            ],
        },
        {"type": "step", "id": "post", "handler": "wait_signal", "params": {"signal": "go"}},
    ],
}
GIVEN = {"input": {"cities": ["Bern", "Thun"]}}
CARDS = (
    "Greetings from **Bern**! The Aare carries everybody round the old town; one swims with the stream.",
    "Greetings from **Thun**! Here the Aare leaves the lake, below two wooden bridges with sluices.",
)
PRICES = {"scripted-1": {"input": 3, "output": 15}}
DESKTOP, PHONE = (1280, 800), (390, 844)
FRAMES = "new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))"


async def shoot(tab: Tab, name: str, size: tuple[int, int] = DESKTOP, colours: str = "light") -> None:
    await tab.size(*size)
    await tab.colours(colours)
    await tab.value(FRAMES)
    TARGET.mkdir(parents=True, exist_ok=True)
    (TARGET / f"page-{name}.webp").write_bytes(await tab.picture("webp"))
    print(f"· docs/screenshots/page-{name}.webp")


async def draw(work: Path, home: Path, devtools: str) -> None:
    script = (
        reply("Three files: `danube.csv`, `elbe.csv` and a `README.md` that says where the numbers come from."),
        reply("The Danube: 2,850 km."),
        reply(ANSWER),
        reply(say("The old build is in the way; I would remove it."), call("terminal", {"command": "rm -rf build/"})),
        *map(reply, CARDS),
        reply("Done: `build/` is gone."),
    )
    async with (
        FaultyProvider(script=script) as provider,
        open_app(config_for(provider, home), directory=work) as app,
        serving(app, port=0) as server,
        aiohttp.ClientSession() as client,
        browsing(devtools) as browser,
    ):
        for session, question in (("a", "What is in this directory?"), ("b", "Which river is the longest here?")):
            async with client.post(server.url + "/runs", json={"input": question, "session": session}) as response:
                run_id = (await response.json())["id"]
            async with client.get(f"{server.url}/runs/{run_id}/stream") as response:
                await response.read()  # to its end
        tab = await browser.tab(server.url + "/")
        await tab.size(*DESKTOP)
        await tab.until("document.querySelectorAll('#conversations .row').length === 2")
        await shoot(tab, "empty")
        await tab.size(*DESKTOP)
        await tab.send("What is a tailrace?")
        await tab.until(ENDED)
        await tab.until("document.querySelectorAll('#conversations .row').length === 3")
        await tab.until("!document.querySelector('#conversations .badge:not(:empty)')")
        await shoot(tab, "answer")
        await shoot(tab, "answer-phone", PHONE)
        await tab.size(*DESKTOP)
        await tab.send("Clean up, please.")
        await tab.until("document.querySelector('.row[data-status=waiting]')")
        await shoot(tab, "approval", DESKTOP, "dark")
        await shoot(tab, "approval-phone", PHONE, "dark")
        conversation = await tab.value("location.href")
        await draw_for_operators(tab, server.url, client)
        await tab.size(*PHONE)
        await tab.go(conversation)
        await tab.press("Approve once")
        await tab.until_shown("is gone.")
        await tab.press("Conversations")
        await tab.value(SETTLED)
        await shoot(tab, "list-phone", PHONE)


async def draw_for_operators(tab: Tab, url: str, client: aiohttp.ClientSession) -> None:
    async with client.post(f"{url}/sequences", json=SEQUENCE) as response:
        sequence = (await response.json())["id"]
    async with client.post(f"{url}/instances", json={"sequence_id": sequence, **GIVEN}) as response:
        instance = (await response.json())["id"]
    await tab.size(*DESKTOP)
    for name, address, drawn in (
        ("instance", f"/?instance={instance}", "document.querySelector('.instance-badge')?.textContent === 'waiting'"),
        ("operations", "/?ops", "document.body.innerText.includes('Clean up, please.')"),
        ("runs", "/?runs", "document.querySelectorAll('tbody tr').length >= 5"),
    ):
        await tab.go(url + address)
        await tab.until(drawn)
        if name == "instance":
            await tab.value("document.querySelector('.graph-row').click()")
            await tab.until_shown("two wooden bridges")
            await tab.until("document.querySelector('.instance-facts').textContent.includes('$')")
        await shoot(tab, name)


def config_for(provider: FaultyProvider, home: Path) -> Config:
    settings = {
        "model": {"provider": "scripted", "name": "scripted-1"},
        "providers": {"scripted": {"dialect": "chat", "base_url": provider.openai_url, "prices": PRICES}},
        "store": {"url": "memory://"},
    }
    (home / "config.yaml").write_text(json.dumps(settings), encoding="utf-8")
    return load({}, home)


def main() -> None:
    work = Path.home() / "rivers"  # the pictures show it
    work.mkdir()
    try:
        with tempfile.TemporaryDirectory() as directory, chromium.started(Path(directory) / "browser") as devtools:
            asyncio.run(draw(work, Path(directory), devtools))
    finally:
        work.rmdir()


if __name__ == "__main__":
    main()
