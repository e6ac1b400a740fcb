"""A part of a message that waits for the next one is lost by nothing: not by a kill, not by a failure of storage."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.fake_gateways import Town, town
from tailrace.app import open_app
from tailrace.config.load import load
from tailrace.delivery.port import MessageReceived, Place, Sender
from tailrace.errors import JournalError
from tailrace.gateway.chats.held_parts import NAMESPACE, HeldPart, HeldParts, Joined
from tailrace.gateway.inbound import PASTE_GAP_S, part_ids
from tailrace.gateway.registry import account_of
from tailrace.journal.key_values import KeyValues
from tailrace.runs.processes import Processes
from tailrace.testing.clock import driven
from tailrace.testing.provider import Scenario, reply

FIRST, SECOND = "the first part", "the second part"
LOOK_S = 60.0  # longer than between two looks


async def held(here: Town) -> dict[str, HeldPart]:
    return await KeyValues(here.app.journal, NAMESPACE, HeldPart).all()


def part(update_id: str, text: str, *, user: str = "1", at_limit: bool = True) -> MessageReceived:
    return MessageReceived(update_id, Place("telegram", "42"), Sender(user), text, at_limit=at_limit)


async def leave(home: Path, *parts: HeldPart) -> None:
    """What a process has left that was killed."""
    config = load({}, home)
    async with open_app(config, directory=home) as app:
        kept = KeyValues(app.journal, NAMESPACE, HeldPart)
        for one in parts:
            await kept.set_default(f"{account_of(config, 'telegram')} {part_ids(one.message)[-1]}", one)


@driven
async def test_a_part_is_kept_until_the_whole_is_asked(tmp_path: Path) -> None:
    async with town(tmp_path, reply("Both."), reply("One.")) as here:
        await here.write(FIRST, at_limit=True)
        assert [one.message.text for one in (await held(here)).values()] == [FIRST]
        await here.write(SECOND)
        assert await held(here) == {}
        await here.write(FIRST, at_limit=True)
        await asyncio.sleep(PASTE_GAP_S + 1)
        assert await held(here) == {}
        await here.write(SECOND, at_limit=True)
        await here.write("3", at_limit=True)
        assert len(await held(here)) == 2
        await asyncio.sleep(PASTE_GAP_S + 1)
        assert await held(here) == {}


@driven
async def test_what_a_killed_process_waited_with_is_joined_and_asked_by_the_next_one(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/t.db"
    async with town(tmp_path, store=store):
        pass
    ours = [HeldPart("gone", 2.0, part("u2", SECOND)), HeldPart("gone", 1.0, part("u1", FIRST))]
    await leave(tmp_path, *ours)
    async with town(tmp_path, reply("Both."), store=store) as here:
        await asyncio.sleep(10)
        assert here.said == [f"{FIRST}\n{SECOND}"]
        assert here.chat.texts == ("Both.",)
        assert await held(here) == {}
        await here.write(FIRST, update_id="u1")
        await asyncio.sleep(10)
        assert len(here.provider.requests) == 1, "the platform delivers it again"
    await leave(tmp_path, *ours)  # it was killed before it could note that they were asked
    async with town(tmp_path, reply("Again?"), store=store) as here:
        await asyncio.sleep(10)
        assert (here.provider.requests, await held(here)) == ([], {})


@driven
async def test_what_was_joined_with_a_comment_takes_its_place_after_a_kill_too(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/t.db"
    async with town(tmp_path, Scenario(reply=reply("Of what?"), headers_after_s=30.0), store=store) as here:
        await here.write("When?", update_id="u1")
        [run_id] = await here.runs()
        await here.app.agents.stop(run_id)
        await here.app.agents.finished(run_id)
    whole = MessageReceived(
        "u1", Place("telegram", "42"), Sender("1"), "When?\nAt six.", at_limit=True, parts=("u1", "u2")
    )
    await leave(tmp_path, HeldPart("gone", 1.0, whole, Joined("u2", "")))
    async with town(tmp_path, reply("At six."), store=store) as here:
        await asyncio.sleep(10)
        assert here.said == ["When?\nAt six."]
        assert await held(here) == {}


@driven
async def test_what_a_living_process_waits_with_is_left_to_it_until_it_is_gone(tmp_path: Path) -> None:
    async with town(tmp_path, reply("Hello.")) as here:
        kept = KeyValues(here.app.journal, NAMESPACE, HeldPart)
        ours, other = f"{account_of(here.app.config, 'telegram')} u1", "another account's u2"
        await kept.set_default(other, HeldPart("gone", 1.0, part("u2", FIRST)))
        async with Processes(here.app.journal, "living"):
            await kept.set_default(ours, HeldPart("living", 1.0, part("u1", FIRST)))
            await asyncio.sleep(LOOK_S)
            assert sorted(await held(here)) == sorted([ours, other])
            assert here.provider.requests == []
        await asyncio.sleep(LOOK_S)
        assert (here.said, list(await held(here))) == ([FIRST], [other])


@driven
async def test_a_part_of_somebody_who_is_no_longer_served_is_dropped(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/t.db"
    async with town(tmp_path, store=store):
        pass
    await leave(tmp_path, HeldPart("gone", 1.0, part("u1", FIRST, user="9")))
    async with town(tmp_path, store=store) as here:
        await asyncio.sleep(10)
        assert await held(here) == {}
        assert here.provider.requests == []


@driven
async def test_a_part_survives_that_the_whole_could_not_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with town(tmp_path, reply("The second."), reply("The first.")) as here:
        await here.write(FIRST, at_limit=True)
        with monkeypatch.context() as patched:

            async def fail(*_: object, **__: object) -> None:
                raise JournalError("the disk is full")

            patched.setattr(here.app.agents, "submit", fail)
            with pytest.raises(JournalError):
                await here.write(SECOND, update_id="u9")
        await here.write(SECOND, update_id="u9")  # the platform delivers it again
        await asyncio.sleep(LOOK_S)
        assert here.said == [SECOND, "The second.", FIRST]
        assert await held(here) == {}


@driven
async def test_a_command_counts_for_what_was_sent_right_before_it(tmp_path: Path) -> None:
    slow = Scenario(reply=reply("An answer."), headers_after_s=5.0)
    async with town(tmp_path, slow, slow, slow) as here:
        await here.write(FIRST, at_limit=True)
        await here.write("/stop")
        await asyncio.sleep(LOOK_S)
        stopped = here.chat.texts
        assert stopped == ("⏹ Stopped.",)
        await here.write(SECOND, at_limit=True)
        await here.write("/new And this?")
        await asyncio.sleep(LOOK_S)
        assert here.said == ["And this?"], "what was sent before is in the conversation before"
        assert here.chat.texts[-1] == "An answer."
        assert await held(here) == {}


@driven
async def test_a_whole_that_was_asked_is_not_asked_again_where_only_some_of_its_parts_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, drop, dropped = f"sqlite:///{tmp_path}/t.db", HeldParts.drop, 0

    async def killed_after_one(parts: HeldParts, update_id: str) -> None:
        nonlocal dropped
        if dropped:
            raise JournalError("killed")
        dropped += 1
        await drop(parts, update_id)

    async with town(tmp_path, reply("Both."), store=store) as here:
        await here.write(FIRST, at_limit=True)
        await here.write(SECOND, at_limit=True)
        with monkeypatch.context() as patched:
            patched.setattr(HeldParts, "drop", killed_after_one)
            await asyncio.sleep(PASTE_GAP_S + 10)  # its clock runs with the real one while the file is read
        assert (here.said, len(await held(here))) == ([f"{FIRST}\n{SECOND}"], 1)
    async with town(tmp_path, reply("Again?"), store=store) as here:
        await asyncio.sleep(10)
        assert (here.provider.requests, await held(here)) == ([], {})


@driven
async def test_what_was_joined_with_a_comment_survives_that_the_whole_could_not_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Scenario(reply=reply("Of what?"), headers_after_s=30.0)
    async with town(tmp_path, slow, reply("At six.")) as here:
        await here.write("When?", update_id="u1")
        await here.write("At six.", update_id="u2", forwarded=True, at_limit=True)
        with monkeypatch.context() as patched:

            async def fail(*_: object, **__: object) -> None:
                raise JournalError("the disk is full")

            patched.setattr(here.app.agents, "submit", fail)
            with pytest.raises(JournalError):
                await here.write("And where?", update_id="u3")
        await asyncio.sleep(LOOK_S)
        assert here.said == ["When?\nAt six."]
        assert await held(here) == {}


@driven
async def test_what_was_joined_with_a_comment_is_in_it_once_where_the_platform_delivers_it_again(
    tmp_path: Path,
) -> None:
    store = f"sqlite:///{tmp_path}/t.db"
    async with town(tmp_path, store=store):
        pass
    whole = MessageReceived(
        "u1", Place("telegram", "42"), Sender("1"), "When?\nAt six.", at_limit=True, parts=("u1", "u2")
    )
    await leave(tmp_path, HeldPart("gone", 1.0, whole, Joined("u2", "")))
    async with town(tmp_path, reply("At six."), reply("Twice."), store=store) as here:
        await asyncio.sleep(0.1)
        await here.write("At six.", update_id="u2", forwarded=True, at_limit=True)
        await asyncio.sleep(10)
        assert here.said == ["When?\nAt six."]
        assert await held(here) == {}


@driven
async def test_what_comes_again_before_the_held_parts_are_read_is_below_its_comment_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, may_read, read = f"sqlite:///{tmp_path}/t.db", asyncio.Event(), HeldParts.left

    async def read_late(*args: Any) -> dict[str, HeldPart]:
        await may_read.wait()
        return await read(*args)

    async with town(tmp_path, store=store):
        pass
    whole = MessageReceived(
        "u1", Place("telegram", "42"), Sender("1"), "When?\nAt six.", at_limit=True, parts=("u1", "u2")
    )
    await leave(tmp_path, HeldPart("gone", 1.0, whole, Joined("u2", "")))
    monkeypatch.setattr(HeldParts, "left", read_late)
    async with town(tmp_path, reply("At six."), reply("Twice."), store=store) as here:
        await here.write("At six.", update_id="u2", forwarded=True, at_limit=True)
        may_read.set()
        await asyncio.sleep(10)
        assert here.said == ["When?\nAt six."]
        assert await held(here) == {}


@driven
async def test_a_part_of_what_failed_for_good_is_not_asked_by_itself_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with town(tmp_path, reply("Never.")) as here:
        await here.write(FIRST, at_limit=True)
        with monkeypatch.context() as patched:

            async def fail(*_: object, **__: object) -> None:
                raise RuntimeError("a mistake of ours")

            patched.setattr(here.app.agents, "submit", fail)
            await here.write(SECOND)
        await asyncio.sleep(1)
        assert here.chat.texts == ("⚠️ Something went wrong with this message.",)
        assert await held(here) == {}
