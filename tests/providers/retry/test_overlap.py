"""The seam between an answer that was cut and its continuation: nothing is lost, and nothing is said twice."""

from __future__ import annotations

import cProfile
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.providers.retry.overlap import Overlap

TEXT = "The mill wheel turns, and the tailrace carries the water on.\n\n- Nothing is lost.\n- Nothing is doubled.\n"
CUTS = st.lists(st.integers(0, 200), max_size=12)
FEEDS = "Brook 5 feeds mill 41. Brook 6 feeds mill 42."


def pieces(text: str, cuts: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[a:b] for a, b in pairwise(edges)]


def through(shown: str, continuation: str, cuts: list[int] | None = None, *, cut: bool = False) -> str:
    seam = Overlap(shown)
    parts = [seam.feed(piece) for piece in pieces(continuation, cuts or [])]
    said = "".join(parts) + seam.close(cut=cut)
    assert said == continuation[seam.removed :]
    return said


@given(at=st.integers(1, len(TEXT) - 1), cuts=CUTS)
def test_an_exact_continuation_is_let_through_whole(at: int, cuts: list[int]) -> None:
    """The model goes on from the shown text without its trailing white space, as it is asked to."""
    shown = TEXT[:at]
    assert shown + through(shown, TEXT[len(shown.rstrip()) :], cuts) == TEXT


@given(at=st.integers(1, len(TEXT) - 1), cuts=CUTS)
def test_an_answer_that_begins_anew_is_let_through_from_where_it_was(at: int, cuts: list[int]) -> None:
    shown = TEXT[:at]
    assert shown + through(shown, TEXT, cuts) == TEXT


@given(at=st.integers(30, len(TEXT) - 1), back=st.integers(20, 29), cuts=CUTS)
def test_a_continuation_that_repeats_the_last_words(at: int, back: int, cuts: list[int]) -> None:
    shown = TEXT[:at]
    assert shown + through(shown, TEXT[len(shown.rstrip()) - back :], cuts) == TEXT


@given(at=st.integers(1, len(TEXT) - 1), second=st.integers(0, len(TEXT)), cuts=CUTS)
def test_an_answer_that_begins_anew_and_is_cut_again_adds_only_what_is_new(
    at: int, second: int, cuts: list[int]
) -> None:
    shown = TEXT[:at]
    assert shown + through(shown, TEXT[:second], cuts, cut=True) == TEXT[: max(at, second)]


@given(second=st.integers(0, len(FEEDS)), cuts=CUTS)
def test_E63_text_that_is_undecided_when_the_next_cut_comes_is_dropped(second: int, cuts: list[int]) -> None:
    """Had more of it come, it might have been a repetition from the middle of what is shown."""
    again = " Brook 6 feeds mill 42. Brook 7"[:second]
    joined = FEEDS + through(FEEDS, again, cuts, cut=True)
    assert joined in (FEEDS, f"{FEEDS} Brook 7"[: len(joined)])


def test_E63_text_that_is_undecided_at_the_end_of_the_answer_is_shown() -> None:
    assert through(FEEDS, " Brook 6") == " Brook 6"
    assert through(FEEDS, "Brook 6 feeds mill 42.") == ""


@pytest.mark.parametrize(
    ("shown", "continuation", "joined"),
    [
        ("It was very", " very good.", "It was very very good."),  # meant: nothing proves otherwise
        ("ha ha", " ha ha!", "ha ha ha ha!"),
        ("quick bro", "brown fox", "quick brown fox"),  # the broken word, from its beginning
        ("x = 10", "100", "x = 10100"),  # digits are no word
        ("----------------", "--------", "------------------------"),
        ("00000000000000000000 1", "0000000000000000", "00000000000000000000 10000000000000000"),
        ("def f():\n", "\n    return 1", "def f():\n    return 1"),  # the white space that is shown already
        ("def f():\n", "    return 1", "def f():\n    return 1"),
        ("One.\n\n", "\n\nTwo.", "One.\n\nTwo."),
        ("Hello", "", "Hello"),
        ("你好世界", "你好世界，再见", "你好世界，再见"),
    ],
)
def test_what_counts_as_said_twice(shown: str, continuation: str, joined: str) -> None:
    for size in (1, 2, 3, 100):
        cuts = list(range(0, len(continuation), size))
        assert shown + through(shown, continuation, cuts) == joined


def test_text_is_held_back_only_while_it_may_be_a_repetition() -> None:
    seam = Overlap("The mill wheel turns, and the")
    assert seam.feed(" tail") == " tail"
    assert seam.feed("race") == "race"


@pytest.mark.parametrize(
    ("shown", "again"),
    [
        pytest.param("abcdefghij" * 100 + ".", "z", id="one long word"),
        pytest.param("a" * 1000 + "bcdefghijklmnop", "a" * 1000, id="every place agrees"),
        pytest.param("ab" * 500 + "cdefghijklmnop", "ab" * 500 + "x", id="every other place agrees"),
    ],
)
def test_L140_time_is_linear_in_both_texts(shown: str, again: str) -> None:
    def seconds(times: int) -> float:
        start = time.thread_time()
        seam = Overlap(shown[:1000] * times + shown[1000:])
        for character in again[:1000] * times + again[1000:]:
            seam.feed(character)
        seam.close(cut=True)
        return time.thread_time() - start

    small = min(seconds(1) for _ in range(3))
    assert min(seconds(20) for _ in range(3)) < 100 * small  # twenty times the text; a quadratic search takes 400 times


def test_O179_only_the_end_of_a_long_text_is_looked_at() -> None:
    """8 MB of one letter took seconds: the cost does not grow with what is before the last 64 kB."""

    def calls(shown: str) -> int:
        profile = cProfile.Profile()
        profile.enable()
        seam = Overlap(shown)
        seam.feed("y" * 1000)
        seam.close()
        profile.disable()
        return sum(entry.callcount for entry in profile.getstats())

    assert calls("y" * 8_000_000) == calls("y" * 100_000)


def test_O179_a_repetition_is_found_at_the_end_of_a_long_text() -> None:
    end = "the last sentence of a long answer"
    seam = Overlap("x. " * 1_000_000 + end)
    assert seam.feed(end + " goes on") + seam.close() == " goes on"
