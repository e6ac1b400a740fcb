from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tailrace.errors import Unavailable
from tailrace.events import AnyEvent, AttemptDiscarded, AttemptStarted, MessageChunk, ToolArgumentsChunk, UsageRecorded
from tailrace.messages import AnyDelta, TextDelta, Usage
from tailrace.providers.call_listener import AttemptOutcome
from tailrace.providers.open_attempt import ResumableAnswer
from tailrace.runs.delta_log import MAX_REASON_CHARS, PENDING_DELTAS, DeltaLog
from tailrace.testing.clock import driven

SPENT = Usage(3, 5)


class Written:
    """A log that keeps what is written to it."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, AnyEvent]] = []

    def __call__(self, attempt: int, events: Sequence[AnyEvent]) -> None:
        self.entries += [(attempt, event) for event in events]


class TextLog(DeltaLog):
    def to_events(self, deltas: list[AnyDelta]) -> list[AnyEvent]:
        text = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
        return [MessageChunk(text)] if text else []


async def test_attempts_are_numbered_within_the_run_and_withdrawn_by_that_number() -> None:
    log = TextLog(written := Written(), attempts=2, shown="Once ")
    log.attempt_started(1, "a", "m")
    log.deltas([TextDelta("upon")])
    log.attempt_ended(AttemptOutcome(1, "a", "m", SPENT))
    log.attempt_started(2, "b", "m")
    log.deltas([TextDelta(" a")])
    log.attempt_ended(AttemptOutcome(2, "b", "m"))
    assert log.text == "Once upon a"
    log.attempt_discarded(1, "x" * 2 * MAX_REASON_CHARS)
    assert written.entries == [
        (3, AttemptStarted("a", "m")),
        (3, MessageChunk("upon")),
        (3, UsageRecorded(SPENT, "a", "m")),
        (4, AttemptStarted("b", "m")),
        (4, MessageChunk(" a")),
        (3, AttemptDiscarded("x" * MAX_REASON_CHARS)),
    ]
    assert (log.text, log.usage) == ("Once  a", SPENT)


async def test_an_attempt_says_why_the_one_before_it_ended() -> None:
    log = TextLog(written := Written())
    log.attempt_started(1, "a", "m")
    log.attempt_ended(AttemptOutcome(1, "a", "m", error=Unavailable("503: overloaded")))
    log.attempt_started(2, "b", "m")
    log.attempt_ended(AttemptOutcome(2, "b", "m"))
    log.attempt_started(1, "b", "m")  # of the next call
    assert [event for _, event in written.entries] == [
        AttemptStarted("a", "m"),
        AttemptStarted("b", "m", previous_failure="503: overloaded"),
        AttemptStarted("b", "m"),
    ]


async def test_arguments_that_the_log_has_of_a_kept_answer_are_not_written_twice() -> None:
    resumed = ResumableAnswer("a", "m", "resp_1", arguments={0: 3, 1: 0})
    log = TextLog(written := Written(), attempts=1, resumed=resumed)
    log.attempt_started(1, "a", "m")
    log.add(ToolArgumentsChunk("note", 0, ""), ToolArgumentsChunk("note", 0, '{"a":'))
    log.add(ToolArgumentsChunk("note", 0, "1}"), ToolArgumentsChunk("note", 1, ""), ToolArgumentsChunk("note", 2, ""))
    assert [event for _, event in written.entries] == [
        ToolArgumentsChunk("note", 0, '":'),
        ToolArgumentsChunk("note", 0, "1}"),
        ToolArgumentsChunk("note", 2, ""),
    ]


async def test_the_next_call_goes_on_with_the_numbers() -> None:
    log = TextLog(written := Written(), block_id="b")
    for number in (1, 2, 1):
        log.attempt_started(number, "a", "m")
    log.attempt_discarded(1, "why")
    assert [attempt for attempt, _ in written.entries] == [1, 2, 3, 3]
    assert written.entries[-1][1] == AttemptDiscarded("why", "b")


@driven
async def test_deltas_are_buffered_until_the_interval_has_passed_or_the_attempt_ends() -> None:
    log = TextLog(written := Written(), flush_every_s=1.0)
    log.attempt_started(1, "a", "m")
    for text in "abc":
        log.deltas([TextDelta(text)])
    await asyncio.sleep(1.0)
    log.deltas([TextDelta("d")])
    log.deltas([TextDelta("e")])
    log.attempt_ended(AttemptOutcome(1, "a", "m"))
    assert [event.text for _, event in written.entries if isinstance(event, MessageChunk)] == ["a", "bcd", "e"]


@driven
async def test_O178_many_deltas_are_written_before_their_interval_has_passed() -> None:
    """At full speed all of a long answer would be held, and joined at its end."""
    log = TextLog(written := Written(), flush_every_s=1.0)
    log.attempt_started(1, "a", "m")
    for _ in range(3 * PENDING_DELTAS):
        log.deltas([TextDelta("x")])
    shown = [len(event.text) for _, event in written.entries if isinstance(event, MessageChunk)]
    assert max(shown) <= PENDING_DELTAS + 1
    assert sum(shown) > 2 * PENDING_DELTAS
