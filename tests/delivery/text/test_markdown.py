"""The one Markdown reader: CommonMark with the habits of chats, no text lost, linear whatever it reads."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delivery.text.plain_text import plain_text
from properties import examples
from tailrace.delivery.text.balance import balance
from tailrace.delivery.text.markdown import (
    Blank,
    Code,
    CodeBlock,
    Heading,
    Item,
    ItemList,
    Link,
    Paragraph,
    Quote,
    Styled,
    Table,
    blocks,
)
from tailrace.integrations.discord.adapter import discord_text
from tailrace.integrations.matrix.markup import matrix_html
from tailrace.integrations.telegram.markup import telegram_text
from tailrace.integrations.whatsapp.adapter import whatsapp_markup


def test_what_an_item_holds_belongs_to_it() -> None:
    text = "1. one\n   - inner\n\n     more\n   ```sh\n   ls\n   ```\n2. two"
    assert blocks(text)[0] == ItemList(
        [
            Item(
                "1.",
                [
                    Paragraph(["one"]),
                    ItemList([Item("-", [Paragraph(["inner"]), Blank(), Paragraph(["more"])])]),
                    CodeBlock("sh", "ls"),
                ],
            ),
            Item("2.", [Paragraph(["two"])]),
        ]
    )
    assert plain_text(text) == "1. one\n  ◦ inner\n\n    more\nls\n2. two"
    assert matrix_html(text) == (
        "<ol><li>one<ul><li>inner<p>more</p></li></ul>"
        '<pre><code class="language-sh">ls\n</code></pre></li><li>two</li></ol>'
    )


def test_a_quote_holds_blocks_and_telegram_shows_one_level_of_it() -> None:
    text = "> said\n>\n> - a\n> > deeper"
    assert blocks(text) == [
        Quote([Paragraph(["said"]), Blank(), ItemList([Item("-", [Paragraph(["a"])])]), Quote([Paragraph(["deeper"])])])
    ]
    assert whatsapp_markup(text) == "> said\n> \n> • a\n> deeper"
    assert [(entity.type, entity.length) for entity in telegram_text(text).entities] == [("blockquote", 16)]


def test_a_line_of_dashes_under_text_makes_it_a_heading() -> None:
    assert blocks("Title\n=====\nText\n---") == [Heading(1, ["Title"]), Heading(2, ["Text"])]


@pytest.mark.parametrize(("partial", "shown"), [("Here:\n-", "Here:"), ("a\n\n-", "a\n\n-"), ("a\n--", "a")])
def test_text_is_no_heading_while_a_list_or_a_rule_begins_under_it(partial: str, shown: str) -> None:
    assert balance(partial) == shown


def test_a_reference_is_a_link_and_a_definition_without_one_is_text() -> None:
    text = "See [the docs][1].\n\n[1]: https://e.org/1\n[2]: https://e.org/2"
    assert blocks(text)[0] == Paragraph(["See ", Link("https://e.org/1", ["the docs"]), "."])
    assert plain_text(text) == "See the docs (https://e.org/1).\n\n[2]: https://e.org/2"


def test_what_only_looks_like_a_definition_is_text() -> None:
    assert plain_text("[Note]: done") == "[Note]: done"
    assert plain_text("[a]\n\n[a]: b") == "a\n\n[a]: b"


def test_a_table_ends_where_its_rows_do() -> None:
    text = "before\na | b\n--|--\n1 | y \\| z\nafter"
    before, table, after = blocks(text)
    assert (before, after) == (Paragraph(["before"]), Paragraph(["after"]))
    assert isinstance(table, Table)
    assert [len(row) for row in table.rows] == [2, 2]


def test_a_row_has_what_is_beyond_the_columns_in_its_last_cell() -> None:
    [table] = blocks("| a | b |\n|---|---|\n| 1 | 2 | **3** |\n| 4 |\n| 5 | `x | y` | \\| | |\n| 6 | 7 ||\n|8|9|")
    assert isinstance(table, Table)
    bold, code = Styled("bold", ["3"]), Code("x | y")
    assert table.rows == [
        [["a"], ["b"]],
        [["1"], ["2 | ", bold]],
        [["4"], []],
        [["5"], [code, " | |"]],
        [["6"], ["7"]],
        [["8"], ["9"]],
    ]


def test_emphasis_may_end_at_punctuation_where_words_have_no_spaces() -> None:
    assert whatsapp_markup("**注意：**请") == "*注意：*请"


def test_code_is_code_at_any_indentation_until_its_closing_line() -> None:
    """As a part that a cut in a list begins with has it (G84)."""
    assert blocks("      ```py\n      x\n        y\n      ```") == [CodeBlock("py", "x\n  y")]
    assert blocks("- a\n  ```\nx\n  ```\nb")[1:] == [Paragraph(["b"])]


def test_a_table_in_a_list_is_fenced_where_it_stands() -> None:
    assert discord_text("- a\n\n  | x |\n  |---|\n  | 1 |\n") == "- a\n\n```\nx\n-\n1\n```\n"


@pytest.mark.parametrize("text", ["<b>x</b>", "<div>\nx\n</div>", "<!-- x -->", "a <img src=x onerror=y> b"])
def test_html_is_text(text: str) -> None:
    assert plain_text(text) == text
    assert "&lt;" in matrix_html(text)


@pytest.mark.parametrize("mark", ["> ", "- ", "1. ", "> - "])
def test_what_is_nested_too_deeply_is_still_shown(mark: str) -> None:
    text = mark * 200 + "word"
    assert plain_text(text).endswith("word")
    assert "word" in matrix_html(text)


PIECES = [
    "\n",
    "\n\n",
    "- ",
    "    ",
    "> ",
    "# ",
    "1. ",
    "| ",
    "|\n|--|\n",
    "**",
    "_",
    "`a",
    "[",
    "]",
    "](https://e.org)",
]


@given(st.lists(st.sampled_from([*PIECES, "word"]), max_size=40))
@settings(max_examples=examples(300))
def test_no_word_is_lost(pieces: list[str]) -> None:
    words = [f"{piece}{number}" if piece == "word" else piece for number, piece in enumerate(pieces)]
    shown = plain_text("".join(words))
    assert [word for word in words if word.startswith("word") and word not in shown] == []


HOSTILE = ["`", "` ``", "[", "[a](", "![", "> ", "****", "*a _b ", "~~~a", "<a", "- ", "|", "[a]: b\n", "a\n-\n", "&#"]


@pytest.mark.parametrize("write", [matrix_html, balance], ids=lambda write: str(write.__name__))
@pytest.mark.parametrize("unit", HOSTILE)
def test_L140_twice_the_text_takes_twice_the_steps(unit: str, write: Callable[[str], object]) -> None:
    once, twice = (_steps(write, unit * (length // len(unit))) for length in (600, 1200))
    assert twice < 2.6 * once + 1000


@pytest.mark.parametrize("write", [matrix_html, balance], ids=lambda write: str(write.__name__))
def test_L140_runs_of_backticks_that_grow_take_no_more_than_their_length(write: Callable[[str], object]) -> None:
    """No run closes another one, so each is looked for to the end of the text."""
    small, large = ("".join("`" * length + " a " for length in range(1, longest)) for longest in (40, 80))
    assert _steps(write, large) < 1.3 * len(large) / len(small) * _steps(write, small) + 1000


@pytest.mark.parametrize("unit", HOSTILE)
def test_thousands_of_marks_are_read(unit: str) -> None:
    text = unit * (20_000 // len(unit))
    assert len(matrix_html(text)) < 20 * len(text)


def test_a_wide_table_does_not_fill_up_short_rows() -> None:
    columns = 400
    text = "|a" * columns + "|\n" + "|-" * columns + "|\n" + "|1|\n" * 1000
    assert len(plain_text(text)) < 2 * len(text)


def _steps(write: Callable[[str], object], text: str) -> int:
    """How many lines of Python it takes."""
    count = 0

    def trace(_frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        write(text)
    finally:
        sys.settrace(before)
    return count
