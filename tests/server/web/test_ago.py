"""How long ago something was, as the list of conversations says it; run by node."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from server.web.node_program import needs_node, node

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC).timestamp()
MINUTE, HOUR, DAY = 60, 3600, 86400
TOLD = {
    -5: "now",  # a clock that is behind
    0: "now",
    MINUTE - 1: "now",
    MINUTE: "1 min",
    HOUR - 1: "59 min",
    HOUR: "1 h",
    DAY - 1: "23 h",
    DAY: "1 d",
    7 * DAY - 1: "6 d",
    7 * DAY: "3 Mar",
    68 * DAY: "1 Jan",
    69 * DAY: "31 Dec 2025",
}


@needs_node
async def test_what_is_longer_ago_is_told_in_larger_units_and_then_by_its_day(tmp_path: Path) -> None:
    script = """
import { ago } from "../sidebar/ago.js";
const [now, ...since] = process.argv.slice(2).map(Number);
console.log(JSON.stringify(since.map((seconds) => ago(now - seconds, now))));
"""
    assert await node(tmp_path, script, str(NOW), *map(str, TOLD)) == [*TOLD.values()]
