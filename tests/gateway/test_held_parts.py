"""A held part of a paste is in memory alone: the platform gets no acknowledgement before the whole is a question."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from proof.memory_platform import MemoryPlatform

from gateway.fake_gateways import Town, town
from tailrace.delivery.port import Inbox, MessageReceived, Place, Sender
from tailrace.errors import StorageFailed
from tailrace.gateway.inbound.pastes import PASTE_GAP_S
from tailrace.testing.clock import driven
from tailrace.testing.provider import reply

FIRST, SECOND = "the first part", "the second part"


def part(update_id: str, text: str, *, at_limit: bool = True) -> MessageReceived:
    return MessageReceived(update_id, Place("telegram", "42"), Sender("1"), text, at_limit=at_limit)


async def inbox_of(here: Town) -> Inbox:
    await asyncio.sleep(1)  # until it is connected
    assert isinstance(here.platform, MemoryPlatform)
    assert here.platform._inbox is not None
    return here.platform._inbox


async def is_released(inbox: Inbox, update_id: str) -> bool:
    try:
        await asyncio.wait_for(inbox.until_released(update_id), 0.01)
    except TimeoutError:
        return False
    return True


@driven
async def test_a_part_is_released_when_the_last_one_has_come(tmp_path: Path) -> None:
    async with town(tmp_path, reply("Both.")) as here:
        inbox = await inbox_of(here)
        await inbox.put(part("u1", FIRST))
        assert (inbox.holds_parts, await is_released(inbox, "u1")) == (True, False)
        await inbox.put(part("u1", FIRST))  # delivered again meanwhile
        await inbox.put(part("u2", SECOND, at_limit=False))
        assert (inbox.holds_parts, await is_released(inbox, "u1")) == (False, True)
        await asyncio.sleep(10)
        assert here.said == [f"{FIRST}\n{SECOND}"]


@driven
async def test_a_part_that_no_other_follows_is_released_as_a_question(tmp_path: Path) -> None:
    async with town(tmp_path, reply("One.")) as here:
        inbox = await inbox_of(here)
        await inbox.put(part("u1", FIRST))
        await asyncio.sleep(PASTE_GAP_S + 1)
        assert await is_released(inbox, "u1")
        assert here.said == [FIRST]
        assert await is_released(inbox, "another"), "an update that was never held"


@driven
async def test_where_the_whole_cannot_be_stored_each_part_must_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with town(tmp_path, reply("Both.")) as here:
        inbox, submit = await inbox_of(here), here.app.agents.submit

        async def full(*_: Any, **__: Any) -> None:
            raise StorageFailed("the disk is full")

        await inbox.put(part("u1", FIRST))
        released = asyncio.ensure_future(inbox.until_released("u1"))
        await asyncio.sleep(0)
        monkeypatch.setattr(here.app.agents, "submit", full)
        with pytest.raises(StorageFailed):
            await inbox.put(part("u2", SECOND, at_limit=False))
        with pytest.raises(StorageFailed):
            await released
        monkeypatch.setattr(here.app.agents, "submit", submit)
        await inbox.put(part("u1", FIRST))
        await inbox.put(part("u2", SECOND, at_limit=False))
        await asyncio.sleep(10)
        assert here.said == [f"{FIRST}\n{SECOND}"]


@driven
async def test_a_paste_that_a_killed_process_held_is_joined_by_the_next_one(tmp_path: Path) -> None:
    """The platform has no acknowledgement of its parts, and gives all of them to the next process."""
    store = f"sqlite:///{tmp_path}/t.db"
    async with town(tmp_path, reply("Both."), store=store) as here:
        inbox = await inbox_of(here)
        for update in (part("u1", FIRST), part("u2", SECOND, at_limit=False)):
            await inbox.put(update)
        await asyncio.sleep(10)
    async with town(tmp_path, reply("Again?"), store=store) as here:  # killed before it was acknowledged
        inbox = await inbox_of(here)
        for update in (part("u1", FIRST), part("u2", SECOND, at_limit=False)):
            await inbox.put(update)
        await asyncio.sleep(10)
        assert here.provider.requests == [], "the same update is the same run"


@driven
async def test_a_paste_whose_last_part_is_cancelled_is_asked_whole_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the client of a webhook hangs up, or the process that polls loses its lease."""
    async with town(tmp_path, reply("Both.")) as here:
        inbox, submit = await inbox_of(here), here.app.agents.submit
        stuck = asyncio.Event()

        async def hang(*_: Any, **__: Any) -> None:
            stuck.set()
            await asyncio.Event().wait()

        await inbox.put(part("u1", FIRST))
        monkeypatch.setattr(here.app.agents, "submit", hang)
        last = asyncio.ensure_future(inbox.put(part("u2", SECOND, at_limit=False)))
        await stuck.wait()
        monkeypatch.setattr(here.app.agents, "submit", submit)
        last.cancel()
        await asyncio.wait([last])
        await inbox.put(part("u1", FIRST))
        await inbox.put(part("u2", SECOND, at_limit=False))
        async with asyncio.timeout(1):
            await inbox.until_released("u1")
            await inbox.until_released("u2")
        assert not inbox.holds_parts
        await asyncio.sleep(10)
        assert here.said == [f"{FIRST}\n{SECOND}"]
        assert len(await here.runs()) == 1


@driven
async def test_a_paste_that_storage_refuses_at_its_time_stays_held_and_is_asked_when_storage_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with town(tmp_path, reply("One.")) as here:
        inbox, submit = await inbox_of(here), here.app.agents.submit

        async def full(*_: Any, **__: Any) -> None:
            raise StorageFailed("the disk is full")

        monkeypatch.setattr(here.app.agents, "submit", full)
        await inbox.put(part("u1", FIRST))
        with pytest.raises(StorageFailed):
            await inbox.until_released("u1")
        await inbox.put(part("u1", FIRST))  # a platform that got no acknowledgement; Discord takes none
        assert (inbox.holds_parts, await is_released(inbox, "u1")) == (True, False)
        monkeypatch.setattr(here.app.agents, "submit", submit)
        await inbox.until_released("u1")
        await asyncio.sleep(10)
        assert (inbox.holds_parts, here.said, here.chat.texts) == (False, [FIRST], ("One.",))
        assert len(await here.runs()) == 1
