"""The fixtures are logs with the changes of each entry; the page's own view is held to the same ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from tailrace import events
from tailrace.events import Entry, event_type, from_json
from tailrace.journal.fold import fold
from tailrace.runs.view import RunView, changes
from tailrace.runs.view.changes import Change

FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("*.json"))


def log_of(fixture: Path) -> list[tuple[Entry, list[Any]]]:
    log = json.loads(fixture.read_text(encoding="utf-8"))["log"]
    return [(_entry(line["entry"]), line["changes"]) for line in log]


def _entry(line: dict[str, Any]) -> Entry:
    return Entry(line["seq"], from_json(json.dumps(line)), line.get("attempt", 1))


def as_json(made: list[Change]) -> list[Any]:
    decoded: list[Any] = msgspec.json.decode(msgspec.json.encode(made))
    return decoded


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.stem)
def test_each_entry_gives_its_changes(fixture: Path) -> None:
    view = RunView()
    for entry, expected in log_of(fixture):
        assert as_json(view.apply(entry)) == expected


def test_the_fixtures_have_every_event() -> None:
    recorded = {event_type(entry.event) for fixture in FIXTURES for entry, _ in log_of(fixture)}
    assert recorded == {str(kind.__struct_config__.tag) for kind in get_args(events.AnyEvent)}


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.stem)
def test_a_viewer_that_begins_with_a_snapshot_sees_the_same_texts_and_end(fixture: Path) -> None:
    log = log_of(fixture)
    shown = (changes.TextGrew, changes.Ended)
    for cut in range(1, len(log)):
        view = RunView()
        view.apply(fold([entry for entry, _ in log[:cut]]).entry())
        for entry, expected in log[cut:]:
            texts = [change for change in view.apply(entry) if isinstance(change, shown)]
            assert as_json([*texts]) == [each for each in expected if each["change"] in ("TextGrew", "Ended")]


def test_a_chunk_on_its_own_is_applied_without_changes() -> None:
    view = RunView()
    assert view.text_of_chunk([Entry(1, events.MessageChunk("Hel"))]) == "Hel"
    view.apply(Entry(2, events.ReasoningChunk("hm")))
    assert view.text_of_chunk([Entry(3, events.MessageChunk("lo"))]) == ""  # the thought's end is a change
    view.apply(Entry(3, events.MessageChunk("lo"), 2))
    (withdrawn,) = view.apply(Entry(4, events.AttemptDiscarded("cut"), 2))
    assert withdrawn == changes.TextWithdrawn(4, 2, reason="cut", shown=True, kept=((1, "Hel"),))


def test_an_open_question_is_known_until_its_answer_or_the_end() -> None:
    view = RunView()
    asked = events.ApprovalAsked("apr_1", "terminal", "rm a", "d")
    view.apply(Entry(1, asked))
    assert view.questions == {"apr_1": asked}
    view.apply(Entry(2, events.RunFinished("stopped")))
    assert view.questions == {}
