"""The page, opened in a browser that talks to a server of this test."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from server.http_server import RunningServer, running_server
from server.web.chromium import Browser, Tab, browsing
from tailrace.messages import JsonObject
from tailrace.ports import Effect, ToolContext, ToolOutcome
from tailrace.testing.provider import Reply, Scenario
from tailrace.tools.typed import Arguments, TypedTool

# Keeps what the first answer was at each moment, for `seen`.
RECORDER = """
window.seen = [];
new MutationObserver(() => {
  const shown = document.querySelector(".answer")?.textContent ?? "";
  if (shown !== (seen.at(-1) ?? "")) seen.push(shown);
}).observe(document, { subtree: true, childList: true, characterData: true });
"""
# Resolves once what moves has arrived; a mark that blinks for ever does not count.
SETTLED = """Promise.all(document.getAnimations().filter((moving) => moving.effect.getTiming().iterations !== Infinity)
  .map((moving) => moving.finished)).then(() => undefined)"""
# A file that the page saves is kept for the test, which waits for changes of the document.
SAVED_FILE = """
URL.createObjectURL = (blob) => { window.saved = blob; return "blob:none"; };
HTMLAnchorElement.prototype.click = function () {
  window.savedName = document.documentElement.dataset.saved = this.download;
};
"""
ENDED = 'document.querySelector("article:last-child .answer")?.ariaBusy === "false"'
WAITS = "document.querySelector('#waiting button')"  # a question that can be answered is in view


class What(Arguments):
    what: str


class Launch(TypedTool[What]):
    """Acts outside this machine: somebody has to be asked."""

    name = "launch"
    description = "Launch something."
    Args = What

    def effect(self, args: JsonObject) -> Effect:
        return Effect("external", f"launch {args['what']}")

    async def execute(self, args: What, context: ToolContext) -> ToolOutcome:
        return ToolOutcome(f"launched {args.what}")


@asynccontextmanager
async def page(
    devtools: str, home: Path, *script: str | Scenario | Reply, **kwargs: Any
) -> AsyncGenerator[tuple[RunningServer, Browser, Tab], None]:
    async with running_server(home, *script, **kwargs) as server, browsing(devtools) as browser:
        yield server, browser, await browser.tab(server.url + "/", script=RECORDER)


async def in_page(devtools: str, home: Path, script: str, *args: object) -> Any:
    """What the body of a function, run in the page, returns for these `args`. It may import the page's modules."""
    async with page(devtools, home) as (_, _, tab):
        result = await tab.value(f"(async (...args) => {{ {script} }})(...{json.dumps(args)})")
        assert tab.complaints == []
    return result


async def answer(tab: Tab) -> str:
    """The last answer, once it is whole and to be seen."""
    await tab.until(ENDED)
    await tab.drawn()
    return await tab.text("article:last-child .answer")
