"""The arguments of a tool call while the model writes them: from the provider's deltas to the run's log."""

from __future__ import annotations

import cProfile
import json
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.turns import stage
from tailrace.agent import answer_filter, model_call, tool_runner
from tailrace.agent.answer_filter import AnswerFilter
from tailrace.agent.safety.redact import LONG_CHARS, REDACTED, STEP_CHARS, ArgumentsStream, Redactor
from tailrace.events import (
    AnyEvent,
    AttemptDiscarded,
    AttemptStarted,
    CallSoFar,
    Entry,
    MessageChunk,
    MessageRecorded,
    ToolArgumentsChunk,
    ToolCallChunk,
    ToolOutputRecorded,
)
from tailrace.journal.fold import Fold, fold
from tailrace.journal.viewed_lines import in_short
from tailrace.messages import AnyDelta, Dialect, Message, TextDelta, ToolCall, ToolCallDelta
from tailrace.testing.provider import Break, Offset, Scenario, call, reply

SECRET = "sk/live-0123"
ESCAPED = r"sk\/li\u0076e-01\u00323"
ARGUMENTS = f'{{"a":"{SECRET}","b":"x{ESCAPED}\\n{SECRET}","c":"sk/live-9"}}'
BITS = [SECRET, ESCAPED, SECRET[:5], SECRET[5:], r"\u", "0076", "\\", r"\n", "q", "ghp_ab", '"', " ", "é"]
IN_THE_CALL = Scenario(
    reply=reply("Let me.", call("note", {"text": "a" * 200})), broken=Break("cut", Offset(70, per_cent=True))
)


def pieces_of(answer: AnswerFilter, deltas: list[ToolCallDelta]) -> list[ToolArgumentsChunk]:
    events = [event for delta in deltas for event in answer.events_of([delta])]
    return [event for event in events if isinstance(event, ToolArgumentsChunk)]


@given(text=st.lists(st.sampled_from(BITS), max_size=12).map("".join), cuts=st.lists(st.integers(0, 99)))
def test_J113_joined_pieces_are_the_whole(text: str, cuts: list[int]) -> None:
    redactor = Redactor([SECRET, "\\nq"], ["ghp_[a-z]+"])
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    stream = ArgumentsStream(redactor)
    pieces = [stream.feed(text[start:end]) for start, end in pairwise(places)]
    joined = "".join(pieces) + stream.close()
    assert joined == redactor.redact_arguments(text)
    assert SECRET not in joined


@given(cuts=st.lists(st.integers(0, len(ARGUMENTS))))
def test_J113_no_split_of_the_arguments_shows_a_secret(cuts: list[int]) -> None:
    redactor = Redactor([SECRET])
    places = [0, *sorted(cuts), len(ARGUMENTS)]
    deltas = [
        ToolCallDelta(0, "c", "note" if not start else "", ARGUMENTS[start:end]) for start, end in pairwise(places)
    ]
    text = "".join(chunk.text for chunk in pieces_of(AnswerFilter(redactor), deltas))
    whole = redactor.redact_arguments(ARGUMENTS)
    assert whole.startswith(text)
    assert json.loads(whole) == {"a": REDACTED, "b": f"x{REDACTED}\n{REDACTED}", "c": "sk/live-9"}


def test_J113_every_split_in_two_gives_the_same_text() -> None:
    """Also behind an escape that is cut, and with a pattern."""
    redactor = Redactor([SECRET], [r"sk/live-\d+"])
    for cut in range(len(ARGUMENTS)):
        answer = AnswerFilter(redactor)
        chunks = pieces_of(
            answer, [ToolCallDelta(0, "c", "note", ARGUMENTS[:cut]), ToolCallDelta(0, arguments=ARGUMENTS[cut:])]
        )
        assert redactor.redact_arguments(ARGUMENTS).startswith("".join(chunk.text for chunk in chunks))


def test_calls_begin_in_order_and_by_their_names() -> None:
    answer = AnswerFilter(Redactor(), first_call=3)
    batches: list[list[AnyDelta]] = [
        [ToolCallDelta(1, "b", "second", "{")],
        [ToolCallDelta(0, "a", "", "[")],
        [
            TextDelta("Well."),
            ToolCallDelta(0, name="first"),
            ToolCallDelta(0, arguments="]"),
            ToolCallDelta(1, arguments="}"),
        ],
        [ToolCallDelta(2, "c", "third"), ToolCallDelta(0, arguments="x", choice=1)],
        [ToolCallDelta(2, arguments="{}", replaces=True)],
    ]
    assert [answer.events_of(batch) for batch in batches] == [
        [],
        [],
        [MessageChunk("Well."), ToolArgumentsChunk("first", 3, "[]"), ToolArgumentsChunk("second", 4, "{}")],
        [ToolArgumentsChunk("third", 5, "")],
        [],
    ]


@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
async def test_the_log_has_the_arguments_before_the_call_is_whole(tmp_path: Path, dialect: Dialect) -> None:
    calls = reply("Look.", call("note", {"text": "a" * 40}), call("note", {"text": "b"}))
    async with stage(tmp_path, calls, reply("Done."), dialect=dialect) as s:
        played = await s.play()
    written = [event for event in played.events if isinstance(event, ToolArgumentsChunk)]
    recorded = next(e for e in played.events if isinstance(e, MessageRecorded) and e.message.tool_calls)
    for index, made in enumerate(recorded.message.tool_calls):
        assert "".join(chunk.text for chunk in written if chunk.index == index) == made.arguments
    assert played.events.index(written[0]) < played.events.index(recorded)


@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
async def test_B34_a_call_that_broke_off_is_made_anew(tmp_path: Path, dialect: Dialect) -> None:
    again = reply("Let me.", call("note", {"text": "b"}))
    async with stage(tmp_path, IN_THE_CALL, again, reply("Done."), dialect=dialect) as s:
        played = await s.play()
    assert s.note.notes == ["b"]
    state = Fold()
    seen: list[tuple[CallSoFar, ...]] = []
    for seq, event in enumerate(played.events, 1):
        state.apply(Entry(seq, event))
        seen.append(state.snapshot().calls)
        if isinstance(event, AttemptStarted | AttemptDiscarded | MessageRecorded | ToolCallChunk):
            assert state.snapshot().calls == ()
    assert any(calls and "aaa" in calls[0].arguments for calls in seen)


def test_a_snapshot_has_the_calls_that_are_being_written() -> None:
    events: list[AnyEvent] = [
        ToolArgumentsChunk("note", 0, '{"te'),
        ToolArgumentsChunk("note", 0, 'xt":'),
        ToolArgumentsChunk("note", 1, ""),
        MessageRecorded(Message("assistant", (ToolCall("c", "note"),))),
    ]
    entries = [Entry(seq, event) for seq, event in enumerate(events, 1)]
    for cut in range(1, len(entries) + 1):
        later = fold([fold(entries[:cut]).entry(), *entries[cut:]])
        assert later.snapshot() == fold(entries).snapshot()
    assert [call.arguments for call in fold(entries[:3]).snapshot().calls] == ['{"text":', ""]


def test_the_command_line_prints_calls_when_they_are_whole() -> None:
    entries = [Entry(1, ToolArgumentsChunk("note", 0, "{")), Entry(2, ToolCallChunk("note"))]
    assert list(in_short(entries)) == entries[1:]


def test_O177_arguments_are_read_in_linear_time() -> None:
    """In C: what is looked at one by one are escapes, not characters."""
    redactor = Redactor([SECRET])

    def calls(text: str) -> int:
        profile = cProfile.Profile()
        profile.runcall(redactor.redact_arguments, text)
        return sum(entry.callcount for entry in profile.getstats())

    for unit in ("a", r"a\n", r"\"", "\\\\"):
        assert calls(unit * 200_000) < 1000, unit
    assert calls(r"\u00e9" * 100_000) < 2.2 * calls(r"\u00e9" * 50_000)


@given(
    before=st.lists(st.sampled_from(BITS), max_size=4),
    after=st.lists(st.sampled_from(BITS), max_size=4),
    at=st.integers(0, 2 * LONG_CHARS),
)
def test_O177_long_arguments_are_redacted_as_short_pieces_are(before: list[str], after: list[str], at: int) -> None:
    redactor = Redactor([SECRET, "\\nq"], ["ghp_[a-z]+"])
    text = "".join([*before, r"x\n\\\\" * LONG_CHARS, *after])
    at = len(text) - at
    in_two, in_many = ArgumentsStream(redactor), ArgumentsStream(redactor)
    two = [in_two.feed(text[:at]), in_two.feed(text[at:]), in_two.close()]
    many = [in_many.feed(text[start : start + 1000]) for start in range(0, len(text), 1000)]
    assert "".join(two) == "".join([*many, in_many.close()]) == redactor.redact_arguments(text)


async def test_O177_long_arguments_are_redacted_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, longest = threading.get_ident(), 0
    redact = Redactor.redact_arguments

    def noting(self: Redactor, arguments: str) -> str:
        nonlocal longest
        if threading.get_ident() == loop:
            longest = max(longest, len(arguments))
        return redact(self, arguments)

    monkeypatch.setattr(Redactor, "redact_arguments", noting)
    async with stage(tmp_path, reply(call("note", {"text": "a" * 2 * STEP_CHARS})), reply("Done.")) as s:
        played = await s.play()
    assert played.finished.status == "completed"
    assert longest <= STEP_CHARS


async def test_O177_arguments_that_are_too_long_are_told_to_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (answer_filter, model_call, tool_runner):
        monkeypatch.setattr(module, "MAX_ARGUMENT_CHARS", 20_000)
    long = call("note", {"text": "a" * 20_000})
    async with stage(tmp_path, reply("Let me.", long), reply("Done.")) as s:
        played = await s.play()
    assert s.note.notes == []
    assert sum(len(event.text) for event in played.events if isinstance(event, ToolArgumentsChunk)) <= 20_000
    (told,) = [event for event in played.events if isinstance(event, ToolOutputRecorded)]
    assert not told.ok
    assert "longer than 20,000 characters; the call was not executed" in told.output


async def test_O178_an_answer_of_the_agent_that_is_too_long_is_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other attempt goes on from it."""
    monkeypatch.setattr(model_call, "MAX_ANSWER_BYTES", 2000)
    async with stage(tmp_path, reply("word " * 2000), reply("Another.")) as s:
        played = await s.play()
    assert played.finished.status == "incomplete"
    assert played.finished.output.startswith("word word")
    assert "longer than one answer may be, and was cut. Ask me to continue" in played.finished.output
    assert len([event for event in played.events if isinstance(event, AttemptStarted)]) == 1


async def test_O178_an_answer_that_comes_whole_and_is_too_long_is_incomplete_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_call, "MAX_ANSWER_BYTES", 2000)
    async with stage(tmp_path, Scenario(reply=reply("word " * 2000), instead="json")) as s:
        played = await s.play()
    assert played.finished.status == "incomplete"
    assert "longer than one answer may be" in played.finished.output
    assert len([event for event in played.events if isinstance(event, AttemptStarted)]) == 1
