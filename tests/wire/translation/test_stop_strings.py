"""Stop strings in a text that arrives in pieces: the same cut, wherever it is split."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.wire.translation.stop_strings import StopMatcher


def cut(stops: list[str], pieces: list[str]) -> tuple[str, str]:
    matcher = StopMatcher(stops)
    shown: list[str] = []
    for piece in pieces:
        text, stop = matcher.feed(piece)
        shown.append(text)
        if stop:
            return "".join(shown), stop
    return "".join([*shown, matcher.release()]), ""


def expected(stops: list[str], text: str) -> tuple[str, str]:
    """The stop string that ends first; of two that end together, the longer one."""
    for end in range(len(text) + 1):
        if found := [stop for stop in stops if stop and text[:end].endswith(stop)]:
            stop = max(found, key=len)
            return text[: end - len(stop)], stop
    return text, ""


@pytest.mark.parametrize(
    ("stops", "text", "shown", "stop"),
    [
        (["END"], "One ENEND two", "One EN", "END"),
        (["abcX", "bc"], "abcX", "a", "bc"),
        (["bc", "abc"], "xabc", "x", "abc"),
        (["\n\n", "\nUser:"], "Hi.\nUser: you", "Hi.", "\nUser:"),
        (["aab"], "aaab", "a", "aab"),
        ([""], "any text", "any text", ""),
        (["END"], "no EN", "no EN", ""),
    ],
)
def test_the_text_ends_before_the_stop_string(stops: list[str], text: str, shown: str, stop: str) -> None:
    for split in range(len(text) + 1):
        assert cut(stops, [text[:split], text[split:]]) == (shown, stop)
    assert cut(stops, list(text)) == (shown, stop)


@given(
    stops=st.lists(st.text("ab\n", max_size=4), min_size=1, max_size=4),
    text=st.text("ab\n", max_size=30),
    cuts=st.lists(st.integers(0, 30)),
)
def test_any_split_cuts_at_the_same_place(stops: list[str], text: str, cuts: list[int]) -> None:
    at = [0, *sorted(min(each, len(text)) for each in cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(at)]
    assert cut(stops, pieces) == expected(stops, text)
