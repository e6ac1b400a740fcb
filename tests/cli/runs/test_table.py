"""The list of runs fits the terminal, whatever is in it."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from rich.text import Text

from tailrace.app.costs import dollars
from tailrace.app.timeline.run_overview import RunOverview
from tailrace.cli.runs.table import cells_of, table
from tailrace.cli.screen.fitted_table import padded
from tailrace.cli.words import count, duration, spent_words, tokens
from tailrace.messages import Usage

NOW = 1_763_258_400.0


def plain(lines: list[Text]) -> str:
    return "".join(f"{line.plain}\n" for line in lines)


def row(question: str, **changes: object) -> list[str]:
    fields: dict[str, object] = {
        "id": "run_1",
        "public_id": "run_1",
        "kind": "agent",
        "state": "completed",
        "models": ("openrouter/minimax-m2.7-preview-with-a-long-name",),
        "created_at": NOW - 120.0,
        "duration_s": 12.4,
        "usage": Usage(12_345, 678),
        "spent": (),
    }
    overview = RunOverview(question=question, **(fields | changes))  # type: ignore[arg-type]
    return cells_of(overview, name="06605b88b", cost=0.0021, now=NOW)


ROWS = [
    row("How do rivers form deltas? Explain it in one paragraph, please, and name three of them"),
    row("请删除构建目录，然后告诉我结果，谢谢。这个问题很长很长很长很长", state="incomplete", problem="cut"),
    row("a\x1b[31mred\x1b[0m\nline", state="asking"),
]


HEADER = ["run", "when", "question", "model", "status", "time", "tokens", "cost"]


@pytest.mark.parametrize("width", [60, 61, 80, 100, 120, 200])
def test_no_line_is_longer_than_the_terminal_and_columns_stand_below_each_other(width: int) -> None:
    lines = table(ROWS, width)
    assert max(cell_len(line.plain) for line in lines) <= width
    header = lines[0].plain
    assert header.split() == [title for title in HEADER if title in header.split()]
    for title in ("question", "status", "time"):
        assert title in header
    states = zip(lines[1:], ("completed", "incomplete", "asking"), strict=True)
    starts = {cell_len(line.plain[: line.plain.index(state)]) for line, state in states}
    assert len(starts) == 1, "the states begin in one column"


def test_the_question_gets_the_room_that_is_left() -> None:
    assert table(ROWS, 60)[0].plain.split() == ["run", "when", "question", "status", "time"]
    assert table(ROWS, 100)[0].plain.split() == HEADER
    wide = table(ROWS, 200)
    assert "and name three of them" in wide[1].plain
    assert "这个问题很长很长很长很长 · cut" in wide[2].plain


def test_what_no_run_has_has_no_column() -> None:
    bare = [row("hi", models=(), usage=Usage())]
    bare[0][-1] = ""
    assert table(bare, 200)[0].plain.split() == ["run", "when", "question", "status", "time"]


def test_a_pipe_gets_whole_lines() -> None:
    piped = plain(table(ROWS, None)).splitlines()
    assert piped[1].endswith("$0.0021")
    assert "Explain it in one paragraph, please, and name three of them" in piped[1]
    assert "ared line" in piped[3]


def test_in_a_pipe_a_long_question_widens_no_line_without_end() -> None:
    short, long = row("How deep is it?"), row("How deep is it? " * 20)
    for line in plain(table([short, long], None)).splitlines():
        assert cell_len(line) == cell_len(plain(table([row("x" * 100)], None)).splitlines()[1])
    assert "How deep is it? How…  openrouter" in plain(table([long], None))


def test_J122_a_question_moves_no_cursor() -> None:
    assert "\x1b" not in plain(table(ROWS, 100))


def test_a_cut_says_so_and_never_halves_a_wide_character() -> None:
    assert padded("abcdef", 4) == "abc…"
    assert padded("漢字漢字", 4) == "漢… "
    assert padded("ab", 4, right=True) == "  ab"
    assert padded("abc", 0) == ""


def test_numbers_as_people_read_them() -> None:
    given = (0.04, 9.94, 9.96, 59.4, 59.6, 125.0, 3600.0, 100_000.0, None)
    assert [duration(each) for each in given] == [
        *("0.0s", "9.9s", "10s", "59s", "1m 00s", "2m 05s", "1h 0m", "1d 3h", "")
    ]
    assert [count(each) for each in (0, 999, 1_000, 9_949, 9_950, 123_456, 999_600, 4_500_000)] == [
        *("0", "999", "1.0k", "9.9k", "10k", "123k", "1.0M", "4.5M")
    ]
    assert (tokens(Usage(1_200, 88)), tokens(Usage())) == ("1.2k/88", "")
    assert [dollars(each) for each in (None, 0.0, 0.00001, 0.0021, 0.5, 12.3)] == [
        *("", "$0.00", "<$0.0001", "$0.0021", "$0.50", "$12.30")
    ]


def test_what_no_provider_has_counted_is_marked_as_an_estimate() -> None:
    counted, estimated = Usage(1_204, 88), Usage(1_204, 88, estimated_tokens=1_292)
    assert (tokens(counted), tokens(estimated)) == ("1.2k/88", "~1.2k/88")
    assert spent_words(counted, None) == "1,204 in, 88 out"
    assert spent_words(estimated, None) == "~1,204 in, ~88 out"
