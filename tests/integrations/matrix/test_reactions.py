"""What a reaction says, and which messages of ours it can answer."""

from __future__ import annotations

from typing import Any

import pytest

from integrations.matrix.test_gaps import ADA, BOB, BOT, BROKEN, ROOM, message, silent, talk
from tailrace.delivery.port import Button, ButtonPressed, Place, Sender
from tailrace.errors import PlatformError
from tailrace.integrations.matrix.reactions import ASKS, MAX_QUESTIONS, Questions, Reaction, reaction_in
from tailrace.testing.platforms.collecting_inbox import CollectingInbox, running


def relation(event_id: object, key: object, kind: str = "m.annotation") -> dict[str, Any]:
    return {"m.relates_to": {"rel_type": kind, "event_id": event_id, "key": key}}


def reaction(name: str, event_id: str, key: str, sender: str = ADA) -> dict[str, Any]:
    return {
        "type": "m.reaction",
        "event_id": f"${name}",
        "sender": sender,
        "origin_server_ts": 1,
        "content": relation(event_id, key),
    }


@pytest.mark.parametrize(
    ("key", "decision"),
    [
        ("✅", "once"),
        ("👍", "once"),
        ("👍️", "once"),
        ("👍🏿", "once"),
        ("❌", "deny"),
        ("👎🏻", "deny"),
        ("👎️", "deny"),
    ],
)
def test_reactions_of_every_look_say_the_same(key: str, decision: str) -> None:
    assert reaction_in(relation("$asked", key)) == Reaction("$asked", decision)


@pytest.mark.parametrize(
    "content",
    [
        relation("$asked", "🎉"),
        relation("$asked", ""),
        relation("$asked", "✅✅"),
        relation("$asked", None),
        relation("$asked", ["✅"]),
        relation("$asked", "✅", "m.thread"),
        relation("..", "✅"),
        relation(7, "✅"),
        {"m.relates_to": "✅"},
        {},
    ],
)
def test_any_other_reaction_says_nothing(content: dict[str, Any]) -> None:
    assert reaction_in(content) is None


def test_a_question_that_was_answered_is_open_no_more_and_the_oldest_are_forgotten() -> None:
    questions, buttons = Questions(), (Button("Approve once", "apr:once"), Button("Deny", "apr:deny"))
    questions.note_shown("$answer", "", ())
    assert questions.answered_by(Reaction("$answer", "once")) is None
    questions.note_shown("$asked", "$thread", buttons)
    assert questions.answered_by(Reaction("$asked", "once")) == ("apr", "$thread")
    questions.note_shown("$asked", "$thread", ())
    assert questions.answered_by(Reaction("$asked", "once")) is None
    for number in range(MAX_QUESTIONS + 1):
        questions.note_shown(f"${number}", "", buttons)
    assert questions.answered_by(Reaction("$0", "once")) is None
    assert questions.answered_by(Reaction("$1", "once")) is not None


async def test_J110_a_question_of_an_earlier_process_is_asked_for_and_answered_where_it_stands() -> None:
    in_thread = {"m.relates_to": {"rel_type": "m.thread", "event_id": "$root"}}
    closed = {"m.relations": {"m.replace": {"content": {"m.new_content": {"body": "Approved once"}}}}}
    async with silent() as (homeserver, platform):
        asked = ["$bobs", "$ours", "$closed", "$ours"]
        reactions = [reaction(f"r{number}", event_id, "👍") for number, event_id in enumerate(asked)]
        talk(homeserver, *reactions, reaction("own", "$ours", "✅", BOT), reaction("fun", "$fun", "🎉"))
        homeserver.senders["$closed"] = BOT
        homeserver.found = {
            "$ours": message("x", "May I?", **{ASKS: "apr_1"}, **in_thread),
            "$closed": message("x", "May I?", **{ASKS: "apr_2"}) | {"unsigned": closed},
            "$bobs": message("x", "May I?", **{ASKS: "apr_3"}),
        }
        async with running(platform) as inbox:
            heard = await inbox.wait_for(2)
    place = Place("matrix", ROOM, "$root", "group")
    assert heard == [ButtonPressed(f"${name}", place, Sender(ADA), "apr_1:once", "$ours") for name in ("r1", "r3")]
    assert homeserver.asked == ["$bobs", "$ours", "$closed"]
    assert homeserver.senders["$bobs"] == BOB


async def test_J110_a_reaction_whose_question_cannot_be_asked_for_now_is_heard_by_the_next_connection() -> None:
    async with silent() as (homeserver, platform):
        talk(homeserver, reaction("r", "$ours", "✅"))
        homeserver.found = {"$ours": message("x", "May I?", **{ASKS: "apr_1"})}
        homeserver.refusals = [BROKEN]
        with pytest.raises(PlatformError, match="is for us could not be asked"):
            await platform.run(CollectingInbox())
        async with running(platform) as inbox:
            [heard] = await inbox.wait_for(1)
    assert heard == ButtonPressed("$r", Place("matrix", ROOM, "", "group"), Sender(ADA), "apr_1:once", "$ours")


async def test_J110_what_people_who_are_not_served_react_to_is_not_asked_for() -> None:
    async with silent() as (homeserver, platform):
        strange = [reaction(f"r{number}", f"${number}", "✅", BOB) for number in range(9)]
        talk(homeserver, *strange, message("m", "!stop"))
        async with running(platform, strangers=[BOB]) as inbox:
            await inbox.wait_for(1)
        assert homeserver.asked == []
