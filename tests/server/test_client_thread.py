"""A front end's list of messages beside a session: what is new in it, and what it has left out."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

import pytest

from agent.test_service import opened
from tailrace.agent.session import history_of
from tailrace.agent.turn_spec import ClientTurn, TurnSpec
from tailrace.events import MessageRecorded, RunFinished
from tailrace.journal.memory import MemoryJournal
from tailrace.messages import JsonObject, Message, assistant, user
from tailrace.ports import NewRun, Run, RunFilter
from tailrace.server.frontends.client_thread import (
    message_id,
    place_in_thread,
    question_ids,
    request_key,
    run_of_message,
)
from tailrace.testing.provider import reply


async def turn(journal: MemoryJournal, question: str, previous_run: str | None = None) -> Run:
    """A turn that has ended: the question has the id `id of <question>`."""
    spec: JsonObject = {"client": {"request_id": question, "message_ids": [f"id of {question}"]}}
    if previous_run is not None:
        spec["previous_run"] = previous_run
    run, lease = await journal.start(NewRun("agent", spec, session="s"), "me")
    assert lease is not None
    journal.append(lease, [MessageRecorded(user(question)), MessageRecorded(assistant(f"{question}!"))])
    await journal.seal(lease, RunFinished("completed"))
    return await journal.get(run.id)


def said(*questions: str) -> tuple[Message, ...]:
    return tuple(message for question in questions for message in (user(question), assistant(f"{question}!")))


async def test_a_session_without_turns_has_nothing_to_repeat() -> None:
    place = await place_in_thread(MemoryJournal(), "s", ["a", "b"])
    assert (place.new_from, place.previous_run, place.is_first) == (0, None, True)


async def test_what_comes_after_the_last_known_message_is_new() -> None:
    journal = MemoryJournal()
    one, two = await turn(journal, "one"), await turn(journal, "two")
    ids = ["id of one", message_id(one.id, 0), "id of two", message_id(two.id, 0), "new"]
    whole = await place_in_thread(journal, "s", ids)
    window = await place_in_thread(journal, "s", ids[2:])
    unseen = await place_in_thread(journal, "s", ["id of one", message_id(one.id, 0), "id of two", "new"])
    nothing = await place_in_thread(journal, "s", ["new"])
    assert [whole.new_from, window.new_from, unseen.new_from, nothing.new_from] == [4, 2, 3, 0]
    places = (whole, window, unseen, nothing)
    assert {place.previous_run for place in places} == {None}, "all that the session has"
    assert (whole.repeated, nothing.repeated, nothing.is_first) == (two, None, False)


async def test_turns_that_the_list_leaves_out_are_forgotten() -> None:
    journal = MemoryJournal()
    one = await turn(journal, "one")
    await turn(journal, "two")
    place = await place_in_thread(journal, "s", ["id of one", message_id(one.id, 0), "edited"])
    assert (place.new_from, place.previous_run, place.asks_again) == (2, one.id, False)


async def test_a_list_that_ends_with_a_known_question_asks_it_anew() -> None:
    journal = MemoryJournal()
    one = await turn(journal, "one")
    await turn(journal, "two")
    edited = await turn(journal, "three", previous_run=one.id)
    four = await turn(journal, "four")
    again = await place_in_thread(journal, "s", ["id of one", message_id(one.id, 0), "id of three"])
    first = await place_in_thread(journal, "s", ["id of one"])
    last = await place_in_thread(journal, "s", ["id of four"])
    assert [place.asks_again for place in (again, first, last)] == [True] * 3
    assert (again.new_from, again.previous_run, again.repeated) == (2, one.id, edited)
    assert (first.new_from, first.previous_run, first.repeated) == (0, "", one)
    assert (last.new_from, last.previous_run, last.repeated) == (0, edited.id, four)


async def test_a_known_message_in_an_old_page_is_found() -> None:
    journal = MemoryJournal()
    turns = [await turn(journal, f"q{number}") for number in range(25)]
    place = await place_in_thread(journal, "s", ["id of q2", "edited"])
    assert (place.previous_run, place.repeated) == (turns[2].id, turns[2])


async def test_a_turn_that_no_front_end_began_has_an_id_too() -> None:
    journal = MemoryJournal()
    run = await journal.create(NewRun("agent", session="s"))
    assert question_ids(run) == (f"{run.id}-q0",)
    assert run_of_message(f"{run.id}-q0") == run.id
    assert run_of_message("run_x-q0") == run_of_message("mine") == ""


@pytest.mark.parametrize("stopped", [False, True])
async def test_a_replaced_history_holds_for_later_turns(tmp_path: Path, stopped: bool) -> None:
    async with opened(tmp_path, *map(reply, ("one!", "two!", "three!", "four!"))) as (app, server):
        for text in ("one", "two"):
            await app.agents.finished((await app.agents.submit(TurnSpec(user(text)), session="s")).id)
        client = ClientTurn("r3", ("m3",), {"page": 1})
        spec = TurnSpec(user("three"), history=said("one"), replaces_history=True, client=client)
        third = await app.agents.submit(spec, session="s")
        if stopped:
            await app.agents.stop(third.id)
        await app.agents.finished(third.id)
        await app.agents.finished((await app.agents.submit(TurnSpec(user("four")), session="s")).id)
        history = await history_of(app.journal, "s")
        asked = [message["content"] for message in server.requests[-1].json()["messages"][1:]]
    assert user("two") not in history
    assert history[:3] == (*said("one"), user("three"))
    assert asked[:3] == ["one", "one!", "three"]
    assert asked[-1] == "four"


def test_no_two_requests_have_one_key() -> None:
    """A name may have any character, the one between names as well."""
    assert request_key("ag-ui", "ann", "a:b", "c") != request_key("ag-ui", "ann", "a", "b:c")
    assert request_key("ag-ui", "ann:a", "b") != request_key("ag-ui", "ann", "a:b")
    assert request_key("ag-ui", "ann", "\0") == request_key("ag-ui", "ann", "\0")


class CountingJournal(MemoryJournal):
    """Counts how often it is asked for runs."""

    listed = 0

    async def runs(self, **wanted: Unpack[RunFilter]) -> list[Run]:
        self.listed += 1
        return await super().runs(**wanted)


async def test_a_long_thread_is_read_in_few_steps() -> None:
    """Each request of a front end without a memory of it looks through all of it."""
    journal = CountingJournal()
    for number in range(200):
        await turn(journal, str(number))
    place = await place_in_thread(journal, "s", ["unknown"])
    assert (place.new_from, place.repeated, journal.listed) == (0, None, 5)
    journal.listed = 0
    await turn(journal, "anew", previous_run="")
    assert [message.text for message in await history_of(journal, "s")] == ["anew", "anew!"]
    assert journal.listed == 1, "nothing before the turn that follows none is looked at"
