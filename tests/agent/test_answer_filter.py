"""From an answer's deltas to its events: the same text, whether it came whole or in pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.agent.answer_filter import AnswerFilter
from tailrace.agent.safety.redact import Redactor
from tailrace.events import AnyEvent, MessageChunk, ReasoningChunk
from tailrace.messages import TextDelta

SECRET = "sk-very-secret"
BITS = ["<think>", "</think>", "The <think> tag", "\n", "  ", "`", "```", SECRET[:5], SECRET[5:], "word", "<thought>"]


def texts(events: list[AnyEvent]) -> tuple[str, str]:
    shown = "".join(event.text for event in events if isinstance(event, MessageChunk))
    thought = "".join(event.text for event in events if isinstance(event, ReasoningChunk))
    return shown, thought


@given(bits=st.lists(st.sampled_from(BITS), max_size=20), sizes=st.lists(st.integers(1, 9), max_size=40))
def test_C42_M150_a_streamed_answer_is_the_whole_one(bits: list[str], sizes: list[int]) -> None:
    text = "".join(bits)
    whole = AnswerFilter(Redactor([SECRET]))
    expected = texts([*whole.events_of([TextDelta(text)]), *whole.close()])
    streamed = AnswerFilter(Redactor([SECRET]))
    events: list[AnyEvent] = []
    at = 0
    for size in [*sizes, len(text)]:
        events += streamed.events_of([TextDelta(text[at : at + size])])
        at += size
    events += streamed.close()
    assert texts(events) == expected
    assert streamed.message(expected[0]) == whole.message(expected[0])


def test_what_an_attempt_left_in_the_filter_goes_when_it_is_discarded() -> None:
    """A copy of the filter holds no part of the other: a discarded attempt leaves neither a thought nor a mention."""
    answer = AnswerFilter(Redactor())
    events = answer.events_of([TextDelta("So:\n")])
    answer.begin_attempt()
    answer.events_of([TextDelta("a <think> b\n<think>c\n```")])
    answer.discard_attempt()
    events += [*answer.events_of([TextDelta("<think>d</think>e</think>")]), *answer.close()]
    assert texts(events) == ("So:\ne", "d")
