"""The inspector's axis and lanes, run by node: where moments stand, what is cut, which items share a row."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

NODE = shutil.which("node")
WEB = Path(__file__).parents[3] / "src/tailrace/server/web/inspector"
pytestmark = pytest.mark.skipif(NODE is None, reason="needs node")
SCRIPT = """
import {{ Scale, hasLongPauses, momentsOf }} from "{web}/scale.js";
import {{ lanesOf, pace, placed }} from "{web}/placed.js";
import {{ moment, tickLabel }} from "{web}/words.js";
console.log(JSON.stringify({expression}));
"""


def value(expression: str) -> Any:
    """What the expression is, with the inspector's pure modules at hand."""
    assert NODE is not None
    script = SCRIPT.format(web=WEB.as_uri(), expression=expression)
    done = subprocess.run(
        [NODE, "--input-type=module", "-e", script], capture_output=True, text=True, check=True, timeout=30
    )
    return json.loads(done.stdout)


def item(kind: str, start: float | None, end: float | None, seq: int, **more: object) -> dict[str, object]:
    times = {name: at for name, at in (("start", start), ("end", end)) if at is not None}
    return {"kind": kind, "seq": seq, "end_seq": seq + 1, **times, **more}


BUSY = [0, 0.5, 1, 1.5, 2, 62, 62.5, 63, 64]


def test_a_long_pause_is_cut_and_the_way_back_is_the_same() -> None:
    found = value(
        f"(() => {{ const whole = new Scale({BUSY}, false), cut = new Scale({BUSY}, true);"
        f"return {{ long: hasLongPauses({BUSY}), short: hasLongPauses([0, 1, 2, 3]), gaps: cut.gaps,"
        "length: cut.length, whole: whole.length, there: [0, 1.3, 30, 62.25, 64].map((t) => cut.moment(cut.x(t))),"
        "ends: [cut.x(-1), cut.x(0), cut.x(64), cut.x(99)] }; })()"
    )
    assert (found["long"], found["short"]) == (True, False)
    assert found["gaps"] == [{"from": 2, "to": 62}]
    assert found["whole"] == 64
    assert found["length"] == 2 + 2 + 2  # the pause is as long as four usual ones
    assert found["there"] == pytest.approx([0, 1.3, 30, 62.25, 64])
    assert found["ends"] == [0, 0, 1, 1]


def test_the_axis_has_round_moments_and_none_inside_a_cut() -> None:
    ticks = value(f"new Scale({BUSY}, true).ticks(6).map(({{ at }}) => at)")
    assert ticks
    assert all(not 2 < at < 62 for at in ticks)
    assert all(float(at).is_integer() for at in ticks)


def test_no_two_labels_of_the_axis_read_the_same() -> None:
    """After an approval that took minutes the axis goes on in tenths of a second."""
    moments = [0, 0.1, 0.2, 0.3, 204.1, 204.2, 204.3, 204.45]
    ticks = value(f"new Scale({moments}, true).ticks(12).map(({{ at, step }}) => tickLabel(at, step))")
    assert ticks[:2] == ["0 s", "0.1 s"]
    assert "3:24.3" in ticks
    assert len(set(ticks)) == len(ticks)
    labels = "[[28.45, 0.05], [59.5, 0.5], [60, 0.5], [60, 60], [204, 2], [3800, 300], [3599.99, 0.01]]"
    told = value(f"{labels}.map(([at, step]) => tickLabel(at, step))")
    assert told == ["28.45 s", "59.5 s", "1:00.0", "1:00", "3:24", "1:03:20", "59:59.99"]
    assert value("[0, 28.4, 59.999, 204.37, 3800].map(moment)") == [
        "+0.00",
        "+28.40",
        "+1:00.0",
        "+3:24.4",
        "+1:03:20.0",
    ]


def test_items_that_overlap_take_a_row_each() -> None:
    timeline = {
        "times": [[1, 0]],
        "duration_s": 9,
        "last_seq": 9,
        "items": [
            item("tool_call", 1, 5, 2, state="done"),
            item("tool_call", 2, 3, 4, state="done"),
            item("tool_call", 6, 7, 6, state="done"),
            item("attempt", 0, None, 1, outcome="running"),
        ],
    }
    lanes = value(
        f"lanesOf(placed({json.dumps(timeline)}, {{ now: 9 }}).items)"
        ".map(({ id, rows }) => [id, rows.map((row) => row.map(({ from, to }) => [from, to]))])"
    )
    assert lanes == [["attempt", [[[0, 9]]]], ["tool", [[[1, 5], [6, 7]], [[2, 3]]]]]


def test_a_log_without_times_is_drawn_by_its_events() -> None:
    timeline = {"last_seq": 9, "items": [item("question", 0, 0, 2), item("attempt", None, None, 4)]}
    shown = value(f"placed({json.dumps(timeline)})")
    assert (shown["timed"], shown["end"]) == (False, 9)
    assert [(each["from"], each["to"]) for each in shown["items"]] == [(2, 3), (4, 5)]


def test_the_pace_of_a_text_is_told_by_when_its_pieces_were_committed() -> None:
    text = {**item("text", 0, 10, 1, chunks=12), "end_seq": 12, "from": 0, "to": 10}
    times = [[1, 0], [9, 6], [12, 10]]
    shares = value(f"pace({json.dumps(text)}, {times}, 2)")
    assert shares == [1, 0.5]
