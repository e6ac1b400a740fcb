from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.agent.safety.redact import REDACTED, Redactor

KEY = "sk-aaab-aaac"
REDACTOR = Redactor([KEY, "aaac-zz", "x"], [r"ghp_\w{4,}"])


def streamed(parts: list[str], redactor: Redactor = REDACTOR) -> str:
    stream = redactor.stream()
    return "".join([*(stream.feed(part) for part in parts), stream.close()])


def test_J113_a_secret_split_across_chunks_is_redacted() -> None:
    text = f"the key is {KEY}, and ghp_abcd1234 too"
    expected = f"the key is {REDACTED}, and {REDACTED} too"
    for cut in range(len(text)):
        assert streamed([text[:cut], text[cut:]]) == expected
    assert streamed(list(text)) == expected


BITS = [KEY, KEY[:5], KEY[3:], "a", "sk-", " ", "aaac-zz", "ghp_", "1234", "-zz", "é"]


@given(bits=st.lists(st.sampled_from(BITS), max_size=20), step=st.integers(1, 7))
def test_J113_any_split_gives_what_the_whole_gives(bits: list[str], step: int) -> None:
    text = "".join(bits)
    out = streamed([text[i : i + step] for i in range(0, len(text), step)])
    assert KEY not in out
    assert out == REDACTOR.redact(text)


@pytest.mark.parametrize("text", ["hello", "task-", "x y"])
def test_short_values_and_ordinary_words_pass(text: str) -> None:
    assert streamed([text]) == text


def test_only_the_possible_beginning_of_a_secret_is_held_back() -> None:
    stream = Redactor([KEY]).stream()
    assert stream.feed("say sk") == "say "
    assert stream.feed("ip it") == "skip it"
