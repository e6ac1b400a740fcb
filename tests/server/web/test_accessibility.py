"""Every view of the page under axe-core, in light colours on a desktop and in dark ones on a phone. Skipped where there
is no browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.web import axe, chromium
from server.web.opened_page import ENDED, SETTLED, Launch, page
from server.web.test_instance import started
from tailrace.testing.provider import call, reply, say

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium: apt-get install chromium")
ANSWER = """A **tailrace** is a channel, see [here](https://example.org/).

```python
print("a line that is much longer than the window of a phone, so that it has to be scrolled sideways", end="")
```

| river | km |
|---|---:|
| Danube | 2850 |

| lake | m |
|---|---:|
| Baikal | 1642 |

> It carries the stream on.
"""
REFUSED = ("status-401", "status-401")  # by the model, and by the one that stands in for it
NAP = {"type": "step", "handler": "sleep", "params": {"seconds": 0}}
SEQUENCE = {
    "name": "naps",
    "blocks": [{"type": "parallel", "id": "both", "branches": [[{**NAP, "id": "one"}], [{**NAP, "id": "two"}]]}],
}


async def test_nothing_on_the_page_is_closed_to_anybody(devtools: str, tmp_path: Path) -> None:
    axe.source()
    script = (reply(ANSWER), reply(say("I will."), call("launch", {"what": "it"})), reply("Done."), *REFUSED)
    async with page(devtools, tmp_path, *script, tools=(Launch(),)) as (server, _, tab):
        await tab.until_shown("How can I help?")
        found = await axe.violations_everywhere(tab, "empty")
        await tab.press("Conversations")  # the window is a phone's now
        await tab.value(SETTLED)
        found += await axe.violations(tab, "drawer")
        await tab.key("Escape", 27)
        await tab.size(1280, 800)
        await tab.send("What is a tailrace?")
        await tab.until(ENDED)
        await tab.send("Launch it.")
        await tab.until("document.title.includes('Approval needed')")
        await tab.until("document.querySelector('.row[data-status=waiting]')")
        found += await axe.violations_everywhere(tab, "answer and approval")
        await tab.press("1 waiting")
        found += await axe.violations_everywhere(tab, "inbox")
        await tab.key("Escape", 27)
        await tab.press("Approve once")
        await tab.until_shown("Done.")
        await tab.size(1280, 800)
        await tab.until("document.querySelector('#conversations .badge')?.textContent === ''")
        await tab.value("document.querySelector('#conversations button').click()")
        found += await axe.violations_everywhere(tab, "menu")
        await tab.press("Delete")
        found += await axe.violations_everywhere(tab, "deleting")
        await tab.press("Cancel")
        await tab.send("And now?")
        await tab.until("document.querySelector('.failure .advice')?.textContent")
        found += await axe.violations_everywhere(tab, "failure")
        await tab.go(f"{server.url}/?instance={await started(server, SEQUENCE)}")
        await tab.until("document.querySelector('.instance-badge')?.textContent === 'completed'")
        found += await axe.violations_everywhere(tab, "instance")
        await tab.go(server.url + "/?usage=week")
        await tab.until_shown("By day")
        found += await axe.violations_everywhere(tab, "usage")
        await tab.go(server.url + "/docs")
        await tab.until("document.querySelector('#post_runs')")
        await tab.value("document.querySelector('#post_runs').open = true")
        await tab.until("document.querySelector('#post_runs .schema')")
        found += await axe.violations_everywhere(tab, "API")
        await tab.go(server.url + "/?session=nothing")
        await tab.until_shown("This conversation is not here")
        found += await axe.violations(tab, "no such conversation")
    assert found == []


async def test_the_question_for_a_key_is_open_to_everybody(devtools: str, tmp_path: Path) -> None:
    axe.source()
    async with page(devtools, tmp_path, env={"TAILRACE_API_KEY": "some-key-or-other"}) as (_, _, tab):
        await tab.until("document.querySelector('#key-dialog').open")
        await tab.write("API key", "wrong")
        await tab.press("Continue")
        await tab.until_shown("This key was refused.")
        assert await axe.violations_everywhere(tab, "key") == []
