"""The turns of a session that lead to its newest one, where answers were regenerated and questions edited."""

from __future__ import annotations

import pytest

from tailrace.agent.context import with_summary
from tailrace.agent.session import history_of
from tailrace.events import AnyEvent, HistoryCompressed, MessageRecorded, RunFailure, RunFinished
from tailrace.journal.memory import MemoryJournal
from tailrace.messages import Image, Message, Text, assistant, user
from tailrace.ports import NewRun


async def add_turn(journal: MemoryJournal, question: str, previous_run: str | None = None) -> str:
    run, lease = await journal.start(
        NewRun("agent", {} if previous_run is None else {"previous_run": previous_run}, session="s"), "me"
    )
    assert lease is not None
    journal.append(lease, [MessageRecorded(user(question)), MessageRecorded(assistant(f"to {question}"))])
    await journal.seal(lease, RunFinished("completed"))
    return run.id


async def questions(journal: MemoryJournal, **where: str) -> list[str]:
    return [message.text for message in await history_of(journal, "s", **where) if message.role == "user"]


async def test_a_turn_that_replaces_others_follows_the_one_before_them() -> None:
    journal = MemoryJournal()
    first = await add_turn(journal, "one")
    second = await add_turn(journal, "two")
    await add_turn(journal, "three")
    assert await questions(journal, previous_run=first) == ["one"], "of a turn that is about to begin"
    again = await add_turn(journal, "two again", previous_run=first)
    assert await questions(journal) == ["one", "two again"]
    await add_turn(journal, "four")
    assert await questions(journal) == ["one", "two again", "four"]
    assert await questions(journal, before=again) == ["one", "two", "three"], "as it was before"
    await add_turn(journal, "two for the third time", previous_run=second)
    assert await questions(journal) == ["one", "two", "two for the third time"], "any earlier turn can be followed"
    await add_turn(journal, "anew", previous_run="")
    await add_turn(journal, "more")
    assert await questions(journal) == ["anew", "more"]


async def test_a_turn_that_is_no_longer_kept_is_followed_by_those_before_it() -> None:
    journal = MemoryJournal()
    await add_turn(journal, "one")
    second = await add_turn(journal, "two")
    await add_turn(journal, "three")
    await add_turn(journal, "four", previous_run=second)
    await journal.delete(second)
    assert await questions(journal) == ["one", "four"]


TOO_LONG = RunFailure("context_length_exceeded", "the maximum context length is 8192 tokens", status=400)
LONG = "long " * 99
BROKEN = RunFailure("retryable", "overloaded", status=500)


async def add_refused(journal: MemoryJournal, *facts: AnyEvent, failure: RunFailure = TOO_LONG) -> None:
    _, lease = await journal.start(NewRun("agent", session="s"), "me")
    assert lease is not None
    journal.append(lease, facts)
    await journal.seal(lease, RunFinished("failed", error=failure))


@pytest.mark.parametrize(("failure", "kept"), [(TOO_LONG, ["one", "three"]), (BROKEN, ["one", LONG, "three"])])
async def test_a_question_that_was_refused_as_too_long_is_not_asked_again(failure: RunFailure, kept: list[str]) -> None:
    journal = MemoryJournal()
    await add_turn(journal, "one")
    await add_refused(journal, MessageRecorded(user(LONG)), failure=failure)
    await add_turn(journal, "three")
    assert await questions(journal) == kept


async def test_a_short_question_that_was_refused_for_the_history_before_it_stays() -> None:
    journal = MemoryJournal()
    await add_turn(journal, LONG)
    await add_refused(journal, MessageRecorded(user("two")))
    await add_refused(journal, MessageRecorded(user("three")))
    assert await questions(journal) == [LONG, "two", "three"]


IMAGE = Message("user", (Text("what is this?"), Image(data="aGk=", media_type="image/png")))
ASKED = user("two")


@pytest.mark.parametrize(
    ("failure", "question", "stays"),
    [
        (RunFailure("invalid_request_error", "unknown field", status=400), IMAGE, False),
        (RunFailure("permanent", "No endpoints found that support image input", status=404), IMAGE, False),
        (RunFailure("retryable", "image input is not supported", status=500), IMAGE, False),
        (BROKEN, IMAGE, True),
        (RunFailure("permanent", "Incorrect API key", status=401), IMAGE, True),
        (RunFailure("invalid_request_error", "unknown field", status=400), ASKED, True),
        (RunFailure("content_filter", "the prompt triggered a policy", status=400), ASKED, False),
        (RunFailure("permanent", "your input was flagged", status=403), ASKED, False),
    ],
)
async def test_a_question_that_was_refused_for_what_it_is_does_not_stop_those_after_it(
    failure: RunFailure, question: Message, stays: bool
) -> None:
    journal = MemoryJournal()
    await add_turn(journal, "one")
    await add_refused(journal, MessageRecorded(question), failure=failure)
    await add_turn(journal, "three")
    assert (question in await history_of(journal, "s")) is stays


async def test_what_a_turn_has_done_before_it_grew_too_long_stays() -> None:
    journal = MemoryJournal()
    await add_refused(journal, MessageRecorded(user("two")), MessageRecorded(assistant("I will look.")))
    assert await questions(journal) == ["two"]


async def test_a_fork_whose_question_was_refused_goes_on_from_what_it_inherited() -> None:
    journal = MemoryJournal()
    inherited = HistoryCompressed((user("one"), assistant("to one")))
    await add_refused(journal, inherited, MessageRecorded(user(LONG)))
    await add_turn(journal, "three")
    assert await questions(journal) == ["one", "three"]


@pytest.mark.parametrize(("question", "kept"), [("two", ["two"]), (LONG, [])])
async def test_what_was_summarised_before_a_refused_question_stays(question: str, kept: list[str]) -> None:
    journal = MemoryJournal()
    compressed = HistoryCompressed(with_summary("They spoke of one.", (user(question),)))
    await add_refused(journal, MessageRecorded(user(question)), compressed)
    (message,) = await history_of(journal, "s")
    summary, *rest = (part.text for part in message.parts if isinstance(part, Text))
    assert ("They spoke of one." in summary, rest) == (True, kept)
