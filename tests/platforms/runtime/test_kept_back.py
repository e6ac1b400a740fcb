"""An answer that the platform takes once the person has written again waits for that, over restarts too."""

from __future__ import annotations

import asyncio
from pathlib import Path

from platforms.runtime.fake_gateways import DANGEROUS, Town, town
from tailrace.delivery.kept_back import KEPT_BACK, NAMESPACE
from tailrace.delivery.planning.presenter import UNSHOWN
from tailrace.delivery.port import AnyAction, Capabilities, MessageLost, Place, Refused, Send, Sender
from tailrace.delivery.run_deliveries import undelivered_words
from tailrace.platforms.runtime.registry import account_of
from tailrace.testing.clock import driven
from tailrace.testing.platforms.base import Fault, MemoryPlatform
from tailrace.testing.provider import reply

PLACE = Place("telegram", "42")


def closed_window() -> MemoryPlatform:
    def refuse(_place: Place, action: AnyAction) -> Fault:
        return Refused("not before they write", until_heard=True) if isinstance(action, Send) else None

    return MemoryPlatform(Capabilities(), fault=refuse)


async def told(here: Town, run_id: str) -> str:
    return await undelivered_words(here.app.journal, await here.app.journal.get(run_id))


@driven
async def test_it_waits_for_the_person_over_a_restart_and_who_looks_is_told(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/t.db"
    async with town(tmp_path, reply("One."), platform=closed_window(), store=store, streaming=False) as here:
        await here.write("Hello.")
        await asyncio.sleep(20)
        [run_id] = await here.runs()
        assert await told(here, run_id) == "not delivered to telegram 42 yet: it is sent when they write again"
    platform = closed_window()
    async with town(tmp_path, reply("Two."), platform=platform, store=store, streaming=False) as here:
        await here.write("Are you there?", update_id="u7")  # and the window closes at once
        await asyncio.sleep(20)
        assert list(here.chat.texts) == []
        assert await told(here, run_id) == "not delivered to telegram 42 yet: it is sent when they write again"
    async with town(tmp_path, reply("Three."), store=store, streaming=False) as here:
        await asyncio.sleep(20)
        assert list(here.chat.texts) == []
        await here.write("And now?", update_id="u8")
        await asyncio.sleep(20)
        assert here.chat.texts == (KEPT_BACK, "One.", "Two.", "Three.")
        assert await told(here, run_id) == ""


@driven
async def test_an_answer_that_is_still_shown_does_not_come_twice(tmp_path: Path) -> None:
    async with town(tmp_path, DANGEROUS, reply("Done."), streaming=False) as here:
        await here.write("Clean up.")
        await asyncio.sleep(5)
        [delivery] = await here.app.journal.runs(kind="delivery")
        lost = MessageLost("lost", PLACE, Sender("1"), kept_back=delivery.id)
        await here.platform.receive(lost)
        shown = here.chat.texts
        await here.write("/approve")
        await asyncio.sleep(20)
        assert UNSHOWN in here.chat.texts[len(shown) :]
        assert here.chat.texts.count("Done.") == 1
        assert KEPT_BACK not in here.chat.texts


@driven
async def test_one_whose_conversation_was_deleted_is_left_out(tmp_path: Path) -> None:
    async with town(tmp_path, reply("Hello."), streaming=False) as here:
        await here.platform.receive(MessageLost("lost", PLACE, Sender("1"), kept_back="run_of_another_day"))
        await here.write("Hello.")
        await asyncio.sleep(20)
        assert here.chat.texts == ("Hello.",)


@driven
async def test_a_value_that_cannot_be_read_holds_up_no_message(tmp_path: Path) -> None:
    async with town(tmp_path, reply("Hello."), streaming=False) as here:
        key = f"{account_of(here.app.config, 'telegram')} {PLACE.key}"
        await here.app.journal.swap_value(NAMESPACE, key, None, b"{")
        await here.write("Hello.")
        await asyncio.sleep(20)
        assert here.chat.texts == ("Hello.",)
        assert await here.app.journal.list_values(f"{NAMESPACE}.unreadable") == {key: b"{"}
