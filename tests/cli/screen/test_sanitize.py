"""J122: what a model writes commands no terminal, wherever it is cut into chunks."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.cli.screen.sanitize import Sanitizer, sanitized, sanitized_line

ALPHABET = "ab\n\t \\[];?m01\x07\x08\r\x18\x1b\x7f\x90\x9b\x9c\x9d\u202e日"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\n日本語", "plain\ttext\n日本語"),
        ("a\x1b[31mred\x1b[0m", "ared"),
        ("a\x1b[?1049hb", "ab"),
        ("a\x9b2Jb", "ab"),
        ("a\x1b]52;c;cHduZWQ=\x07b", "ab"),
        ("a\x1b]52;c;cHduZWQ=\x1b\\b", "ab"),
        ("a\x9d0;title\x9cb", "ab"),
        ("\x1b]8;;http://evil\x1b\\good.com\x1b]8;;\x1b\\", "good.com"),
        ("\x1bP+q544e\x1b\\x", "x"),
        ("\x1b_private\x1b\\x\x1b^message\x1b\\y\x1bXstring\x1b\\z", "xyz"),
        ("\x1b(Bq\x1bcz\x1b7", "qz"),
        ("a\r\nb\rc\x08d\x00e\x7f", "a\nbcde"),
        ("never \x1b]0;ended\nnext line", "never \nnext line"),
        ("\x1b[31", ""),
        ("\x1b[31\x18m", "m"),  # CAN ends a sequence
    ],
)
def test_J122_sequences_are_taken_out_whole(text: str, shown: str) -> None:
    assert sanitized(text) == shown


@given(st.text(ALPHABET, max_size=60), st.lists(st.integers(0, 60)))
def test_J122_any_split_gives_the_same_text(text: str, cuts: list[int]) -> None:
    clean = Sanitizer()
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:end] for start, end in pairwise(edges)]
    assert "".join(map(clean.feed, pieces)) == sanitized(text)


@given(st.text(max_size=80) | st.text(ALPHABET, max_size=60))
def test_J122_nothing_but_line_ends_and_tabs_is_left(text: str) -> None:
    assert re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", sanitized(text)) is None


@given(st.text(ALPHABET, max_size=60))
def test_a_line_swallows_no_other(text: str) -> None:
    assert sanitized(f"{text}\nnext") == f"{sanitized(text)}\nnext"


def test_a_line_of_its_own() -> None:
    assert sanitized_line("a\n  b\t\x1b[31mc") == "a b c"
    assert sanitized_line("x" * 300, 10) == "x" * 9 + "…"
