"""The chain of messages: by the platform's own count, stable while the text grows, with nothing cut in two."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from properties import examples
from tailrace.delivery.port import Unit
from tailrace.delivery.text.balance import MAX_CLOSING, balance, open_markup
from tailrace.delivery.text.markdown import CodeBlock, Table, blocks
from tailrace.delivery.text.split import CURSOR, MIN_LIMIT, Part, parts, units

UNITS: list[Unit] = ["utf16", "chars", "bytes"]
PIECES = [
    "word ",
    "longer words here, ",
    "\n",
    "\n\n",
    "```python\n",
    "```\n",
    "~~~~\n",
    "| a | b |\n|---|---|\n",
    "| 1 | 2 |\n",
    "**bold** ",
    "**open ",
    "_it_ ",
    "`code span` ",
    "`",
    "[a link](https://example.org/a_(b)) ",
    "[half](https://exa",
    "😀",
    "👩‍👩‍👧‍👦",
    "🇫🇷🇩🇪",
    "漢字、仮名。",
    "שלום ",
    "e\u0301",
    "x" * 40,
    "`" * 30 + "\n",
    "# Heading\n",
    "> quote\n",
    "- item\n",
]
texts = st.lists(st.sampled_from(PIECES), max_size=60).map("".join)


def chain(text: str, limit: int, unit: Unit = "chars") -> list[str]:
    return [part.text(text) for part in parts(text, limit, unit)]


@given(text=texts, limit=st.integers(MIN_LIMIT, 300), unit=st.sampled_from(UNITS))
@settings(max_examples=examples(400))
def test_G82_every_character_is_in_exactly_one_part_within_the_limit(text: str, limit: int, unit: Unit) -> None:
    found = list(parts(text, limit, unit))
    assert "".join(text[part.start : part.end] for part in found) == text
    assert all(part.end > part.start for part in found if text)
    for part in found:
        shown = part.text(text) if part.whole else balance(part.text(text), CURSOR)
        assert units(shown, unit) <= limit


@given(text=texts, more=texts, limit=st.integers(MIN_LIMIT, 300), unit=st.sampled_from(UNITS))
@settings(max_examples=examples(400))
def test_a_part_that_was_cut_never_changes_while_the_text_grows(text: str, more: str, limit: int, unit: Unit) -> None:
    before = [part for part in parts(text, limit, unit) if part.whole]
    after = list(parts(text + more, limit, unit))
    assert after[: len(before)] == before


@given(text=texts, limit=st.integers(MIN_LIMIT, 300))
@settings(max_examples=examples(300))
def test_G84_no_part_leaves_markup_open(text: str, limit: int) -> None:
    for part in parts(text, limit, "chars"):
        if part.whole:
            assert open_markup(part.text(text)).closing == ""


@given(text=texts)
@settings(max_examples=examples(300))
def test_G83_a_growing_text_is_balanced_wherever_it_stands(text: str) -> None:
    for end in range(0, len(text), 7):
        shown = balance(text[:end], CURSOR)
        assert open_markup(shown).closing == ""
        assert len(shown) <= end + len(CURSOR) + MAX_CLOSING


def test_G84_a_fence_is_closed_and_reopened_with_its_language() -> None:
    code = "".join(f"line {number} of the program\n" for number in range(40))
    shown = chain(f"Look:\n\n```python\n{code}```\ndone", 300)
    assert len(shown) > 3
    for message in shown[:-1]:
        [block] = [block for block in blocks(message) if isinstance(block, CodeBlock)]
        assert block.info == "python"
    joined = [
        line for message in shown for b in blocks(message) if isinstance(b, CodeBlock) for line in b.text.split("\n")
    ]
    assert [line for line in joined if line] == code.rstrip("\n").split("\n")


def test_a_table_that_is_too_long_takes_its_head_along() -> None:
    rows = "".join(f"| {number} | value {number} |\n" for number in range(40))
    shown = chain(f"| n | v |\n|---|---|\n{rows}", 200)
    tables = [block for message in shown for block in blocks(message) if isinstance(block, Table)]
    assert len(tables) == len(shown) > 3
    assert all(table.rows[0] == [["n"], ["v"]] for table in tables)
    assert [row[0] for table in tables for row in table.rows[1:]] == [[str(number)] for number in range(40)]


def test_a_cut_prefers_a_paragraph_and_never_runs_through_a_link() -> None:
    first, second = "a" * 80 + ".", "b" * 80 + "."
    assert chain(f"{first}\n\n{second}", 140) == [f"{first}\n\n", second]
    link = "[the documentation of it](https://example.org/a/long/address/that/goes/on)"
    shown = chain("word " * 14 + link + " and more words" * 4, 120)
    assert any(link in message for message in shown)


def test_a_citation_in_brackets_of_its_own_is_not_cut_from_its_address() -> None:
    link = "[[1]](https://e.org/1)"
    for words in range(5, 20):
        assert any(link in message for message in chain("word " * words + link + " and more words" * 9, 120))


def test_a_heading_stands_in_the_message_of_its_text() -> None:
    text = "\n\n".join(f"## Part {number}\n\n{'word ' * 12}\n\n```\ncode\n```" for number in range(20))
    for limit in range(200, 380, 10):
        shown = chain(text, limit)
        assert len(shown) > 5
        assert [part for part in shown if part.rstrip().splitlines()[-1].startswith("## ")] == []
    for words in range(5, 60):
        long = chain(f"{'word ' * words}\n\n## Part\n\n{'more ' * 200}", 300)
        assert [part for part in long if part.rstrip().endswith("## Part")] == []
    titles = "".join(f"# {number}\n" for number in range(200))
    assert all(part.startswith("# ") for part in chain(titles, 200)), "headings alone are cut between lines"


def test_emphasis_that_a_cut_runs_through_is_closed_and_taken_up_again() -> None:
    shown = chain("**" + "many words " * 30 + "end**", 120)
    assert all(message.startswith("**") and message.rstrip().endswith("**") for message in shown)


def test_thirty_thousand_characters_are_split_in_linear_time() -> None:
    text = "".join(PIECES) * 120
    assert len(text) > 30_000
    assert "".join(text[p.start : p.end] for p in parts(text, 4096, "utf16")) == text


def test_a_part_says_what_it_shows() -> None:
    assert list(parts("short", 4096, "utf16")) == [Part(0, 5, "", whole=False)]
    assert list(parts("", 4096, "utf16")) == [Part(0, 0, "", whole=False)]
