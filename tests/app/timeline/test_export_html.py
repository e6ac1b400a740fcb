"""A run as one HTML file: its scripts are those of the page, its data is inert, its policy allows nothing else."""

from __future__ import annotations

import json
import re

import pytest

from app.timeline.sample_run import sample_log
from tailrace.app.timeline.export_html import NotBundled, bundled, export_html, read_export
from tailrace.events import MessageChunk
from tailrace.journal.memory import MemoryJournal
from tailrace.ports import Batch, Lease, NewRun

HOSTILE = "</script><script>alert(1)</script><!-- <img src=x onerror=alert(1)> \u2028"


def test_the_data_cannot_end_its_element() -> None:
    log = sample_log(question=HOSTILE, answer=HOSTILE)
    page = export_html(log.timeline(), log.entries)
    assert page.count("</script>") == 2
    data = re.search(r'id="runs">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    assert "<" not in data[1]
    (run,) = json.loads(data[1])["runs"]
    assert run["timeline"]["output"] == HOSTILE
    assert [event["type"] for event in run["events"]][0::10_000] == ["run_started"]


def test_thoughts_are_left_out_unless_asked_for() -> None:
    log = sample_log()
    assert "several places" not in export_html(log.timeline(), log.entries)
    assert "several places" in export_html(log.timeline(reasoning=True), log.entries, reasoning=True)


def test_the_policy_allows_what_is_in_the_file_and_nothing_else() -> None:
    log = sample_log()
    page = export_html(log.timeline(), log.entries)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]
    assert "connect-src" not in policy[1]
    assert re.findall(r'(?:src|href)="(?!data:)', page.partition("<script")[0]) == []


MODULES = {
    "a/one.js": 'import { two as d, Three } from "../b/two.js";\nimport { Three as T } from "../b/three.js";\nrun();',
    "b/two.js": 'import { Three } from "./three.js";\nexport const two = 2;\nexport { Three };\nexport let f;\n',
    "b/three.js": "export class Three {}\n",
}


def test_modules_become_one_script_in_the_order_of_their_imports() -> None:
    script = bundled("a/one.js", MODULES.__getitem__)
    assert [line for line in script.splitlines() if line and not line.startswith(("}", '"'))] == [
        "const module1 = (() => {",
        "class Three {}",
        "return { Three };",
        "const module2 = (() => {",
        "const { Three } = module1;",
        "const two = 2;",
        "let f;",
        "return { two, f, Three };",
        "const module3 = (() => {",
        "const { two: d, Three } = module2;",
        "const { Three: T } = module1;",
        "run();",
        "return {  };",
    ]


@pytest.mark.parametrize(
    "source",
    [
        "export default 1;",
        'import one from "./b.js";',
        'import * as all from "./b.js";',
        'export { a as b } from "./b.js";',
        'const late = import("./b.js");',
        "const here = import.meta.url;",
        'import { a } from "./a.js";',
    ],
)
def test_what_cannot_be_bundled_is_refused(source: str) -> None:
    with pytest.raises(NotBundled):
        bundled("a.js", {"a.js": source, "b.js": ""}.__getitem__)


class GrowingJournal(MemoryJournal):
    """Its run goes on whenever its log is read."""

    lease: Lease

    async def read(self, run_id: str, *, after: int = 0) -> Batch:
        entries = await super().read(run_id, after=after)
        self.append(self.lease, [MessageChunk("more ")])
        await self.commit(self.lease)
        return entries


async def test_the_timeline_and_the_events_of_a_live_run_are_of_one_moment() -> None:
    journal = GrowingJournal()
    run, lease = await journal.start(NewRun("agent"), "me")
    assert lease is not None
    journal.lease = lease
    data = re.search(r'id="runs">(.*?)</script>', await read_export(journal, run.id), re.DOTALL)
    assert data is not None
    (exported,) = json.loads(data[1])["runs"]
    assert exported["events"][-1]["seq"] == exported["timeline"]["last_seq"]
