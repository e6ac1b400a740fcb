from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.events.attempt_text import AttemptText

CHUNKS = st.lists(st.tuples(st.integers(1, 3), st.text(max_size=4)))


def written(chunks: list[tuple[int, str]]) -> AttemptText:
    text = AttemptText()
    for attempt, chunk in chunks:
        text.add(chunk, attempt)
    return text


@given(CHUNKS, st.integers(1, 3))
def test_a_withdrawn_attempt_is_as_if_it_had_written_nothing(chunks: list[tuple[int, str]], attempt: int) -> None:
    text = written(chunks)
    kept = written([chunk for chunk in chunks if chunk[0] != attempt])
    assert text.withdraw(attempt) == any(number == attempt for number, _ in chunks)
    assert (text.pieces(), text.lengths(), text.text) == (kept.pieces(), kept.lengths(), kept.text)
    assert bool(text) == bool(kept)
    assert not text.withdraw(attempt)


@given(CHUNKS, CHUNKS)
def test_a_text_goes_on_from_its_lengths(before: list[tuple[int, str]], after: list[tuple[int, str]]) -> None:
    text = written(before)
    copy = AttemptText(text.text, text.lengths())
    for attempt, chunk in after:
        text.add(chunk, attempt)
        copy.add(chunk, attempt)
    assert copy.pieces() == text.pieces()
    assert text.text == "".join(chunk for _, chunk in before + after)


def test_a_text_without_attempts_is_never_withdrawn() -> None:
    text = AttemptText("shown before")
    text.add(" and after", 1)
    text.withdraw(1)
    assert (text.text, bool(text), bool(AttemptText())) == ("shown before", True, False)
