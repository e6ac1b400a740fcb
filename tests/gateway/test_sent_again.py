"""An answer that the platform takes once the person has written again waits for that, over restarts too."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace
from proof.memory_platform import Fault, LostReply, MemoryPlatform

from gateway.fake_gateways import DANGEROUS, Town, town
from gateway.run_deliveries import undelivered_words
from gateway.test_two_gateways import ADA, pair
from tailrace.delivery.ledger import Ledger
from tailrace.delivery.planning.presenter import UNSHOWN
from tailrace.delivery.port import (
    AnyAction,
    Capabilities,
    MessageLost,
    MessageReceived,
    Place,
    Refused,
    Send,
    Sender,
    Window,
)
from tailrace.delivery.undelivered import NAMESPACE, SENT_AGAIN, Undelivered
from tailrace.errors import StorageFailed
from tailrace.events import RunFinished
from tailrace.gateway.deliveries import Deliveries
from tailrace.gateway.registry import account_of
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.ports import Batch, Run
from tailrace.testing.clock import driven
from tailrace.testing.provider import reply

PLACE = Place("telegram", "42")
KEEPING = Capabilities(reply_window=True)


def closed_window() -> MemoryPlatform:
    def refuse(_place: Place, action: AnyAction) -> Fault:
        return Refused("not before they write", until_heard=True) if isinstance(action, Send) else None

    return MemoryPlatform(KEEPING, fault=refuse)


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
    async with town(tmp_path, reply("Three."), capabilities=KEEPING, store=store, streaming=False) as here:
        await asyncio.sleep(20)
        assert list(here.chat.texts) == []
        await here.write("And now?", update_id="u8")
        await asyncio.sleep(20)
        assert here.chat.texts == (SENT_AGAIN, "One.", "Two.", "Three.")
        assert await told(here, run_id) == ""


@driven
async def test_it_waits_also_where_that_could_not_be_written_down_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, tries = Undelivered.add, 0

    async def fail_once(self: Undelivered, place: Place, delivery: str) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise StorageFailed("the disk is full")
        await add(self, place, delivery)

    monkeypatch.setattr(Undelivered, "add", fail_once)
    platform = closed_window()
    store = f"sqlite:///{tmp_path}/t.db"
    async with town(tmp_path, reply("One."), platform=platform, store=store, streaming=False) as here:
        await here.write("Hello.")
        await asyncio.sleep(120)
        [run_id] = await here.runs()
        assert tries == 2
        assert await told(here, run_id) == "not delivered to telegram 42 yet: it is sent when they write again"
        [delivery] = await here.app.journal.runs(kind="delivery")
        assert delivery.state == "failed"


@driven
async def test_an_answer_that_arrived_after_a_refused_question_is_not_sent_again(tmp_path: Path) -> None:
    is_closed = True

    def refuse(_place: Place, action: AnyAction) -> Fault:
        return Refused("not before they write", until_heard=True) if isinstance(action, Send) and is_closed else None

    platform = MemoryPlatform(KEEPING, fault=refuse)
    async with town(tmp_path, DANGEROUS, reply("Done."), reply("Bye."), platform=platform, streaming=False) as here:
        await here.write("Clean up.")
        await asyncio.sleep(5)
        is_closed = False
        await here.write("/approve", update_id="u2")
        await asyncio.sleep(20)
        await here.write("Bye.", update_id="u3")
        await asyncio.sleep(30)
        assert here.chat.texts.count("Done.") == 1
        assert UNSHOWN in here.chat.texts, "the question, which was never seen"
        assert SENT_AGAIN not in here.chat.texts


@driven
async def test_an_answer_that_ends_while_the_person_writes_is_sent_when_they_write_next(tmp_path: Path) -> None:
    platform = closed_window()
    async with town(tmp_path, reply("One."), reply("Two."), platform=platform, streaming=False) as here:
        close, ends = Ledger.close, asyncio.Event()

        async def close_later(self: Ledger, *, error: str = "") -> RunFinished:
            await ends.wait()
            return await close(self, error=error)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Ledger, "close", close_later)
            await here.write("Hello.")
            await asyncio.sleep(20)
        platform.fault = None
        await here.write("/status", update_id="u2")
        await asyncio.sleep(5)
        assert SENT_AGAIN not in here.chat.texts
        ends.set()
        await asyncio.sleep(5)
        await here.write("And?", update_id="u3")
        await asyncio.sleep(20)
        assert here.chat.texts[-3:] == (SENT_AGAIN, "One.", "Two.")


@driven
async def test_one_whose_conversation_was_deleted_is_left_out(tmp_path: Path) -> None:
    async with town(tmp_path, reply("Hello."), capabilities=KEEPING, streaming=False) as here:
        await here.platform.receive(MessageLost("lost", PLACE, Sender("1"), undelivered="run_of_another_day"))
        await here.write("Hello.")
        await asyncio.sleep(20)
        assert here.chat.texts == ("Hello.",)


@driven
async def test_a_value_that_cannot_be_read_holds_up_no_message(tmp_path: Path) -> None:
    async with town(tmp_path, reply("Hello."), capabilities=KEEPING, streaming=False) as here:
        key = f"{account_of(here.app.config, 'telegram')} {PLACE.key}"
        await here.app.journal.swap_value(NAMESPACE, key, None, b"{")
        await here.write("Hello.")
        await asyncio.sleep(20)
        assert here.chat.texts == ("Hello.",)
        assert await here.app.journal.list_values(f"{NAMESPACE}.unreadable") == {key: b"{"}


LONG = " ".join(f"word{number}" for number in range(60))
NARROW = Capabilities(reply_window=True, limit=200)


def lost(delivery: str, part: str) -> MessageLost:
    return MessageLost(f"{delivery}.{part}.0.window", PLACE, Sender("1"), undelivered=delivery)


async def deliveries(here: Town) -> list[str]:
    return sorted(run.id for run in await here.app.journal.runs(kind="delivery"))


@driven
async def test_an_answer_of_which_parts_were_lost_is_sent_whole_once_over_restarts(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/t.db"
    async with town(tmp_path, reply(LONG), capabilities=NARROW, store=store, streaming=False) as here:
        await here.write("Hello.")
        await asyncio.sleep(30)
        parts = here.chat.texts
        assert len(parts) == 3
        [first] = await deliveries(here)
        await here.platform.receive(lost(first, "t0.0"))
    async with town(tmp_path, reply("Two."), capabilities=NARROW, store=store, streaming=False) as here:
        await here.platform.receive(lost(first, "t0.2"))
        await here.write("And?", update_id="u7")
        await asyncio.sleep(30)
        assert here.chat.texts == (SENT_AGAIN, *parts, "Two.")
        [run_id, _] = sorted(await here.runs())
        assert await told(here, run_id) == ""
    async with town(tmp_path, *map(reply, ("Three.", "Four.")), capabilities=NARROW, store=store) as here:
        for part in ("t0.0", "t0.1"):  # one that the platform reports again, and one that it reports late
            await here.platform.receive(lost(first, part))
        await here.write("And?", update_id="u8")
        await asyncio.sleep(30)
        assert list(here.chat.texts) == ["Three."], "all of it has been sent again"
        again = next(run for run in await here.app.journal.runs(kind="delivery") if run.new.input.get("instead_of"))
        await here.platform.receive(lost(again.id, "t0.1"))
        assert await told(here, run_id) == "not delivered to telegram 42 yet: it is sent when they write again"
        await here.write("And?", update_id="u9")
        await asyncio.sleep(30)
        assert here.chat.texts == ("Three.", SENT_AGAIN, *parts, "Four.")


@driven
async def test_an_answer_that_is_under_way_is_sent_again_when_they_write_next(tmp_path: Path) -> None:
    script = (DANGEROUS, reply("Done."), reply("Bye."))
    async with town(tmp_path, *script, capabilities=KEEPING, streaming=False) as here:
        await here.write("Clean up.")
        await asyncio.sleep(5)
        [delivery] = await deliveries(here)
        await here.platform.receive(lost(delivery, "t0.0"))
        await here.write("/approve")
        await asyncio.sleep(20)
        assert here.chat.texts[-1] == "Done."
        assert SENT_AGAIN not in here.chat.texts
        await here.write("Bye.", update_id="u3")
        await asyncio.sleep(30)
        assert here.chat.texts[-2:] == ("Done.", "Bye.")
        assert SENT_AGAIN in here.chat.texts


@driven
async def test_answers_come_in_the_order_in_which_they_were_given(tmp_path: Path) -> None:
    async with town(tmp_path, *map(reply, ("One.", "Two.", "Three.")), capabilities=KEEPING, streaming=False) as here:
        for number, text in enumerate(("a", "b")):
            await here.write(text, update_id=f"u{number}")
            await asyncio.sleep(20)
        first, second = await deliveries(here)
        await here.platform.receive(lost(second, "t0.0"))  # the platform tells of the later one first
        await here.platform.receive(lost(first, "t0.0"))
        await here.write("c", update_id="u7")
        await asyncio.sleep(30)
        assert here.chat.texts[2:] == (SENT_AGAIN, "One.", "Two.", "Three.")


@driven
async def test_a_message_that_is_handled_twice_brings_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remove, tries = Undelivered.remove, 0

    async def fail_once(self: Undelivered, place: Place, delivery: str) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise StorageFailed("the disk is full")
        await remove(self, place, delivery)

    monkeypatch.setattr(Undelivered, "remove", fail_once)
    async with town(tmp_path, reply(LONG), reply("Two."), capabilities=NARROW, streaming=False) as here:
        await here.write("Hello.")
        await asyncio.sleep(30)
        parts = here.chat.texts
        [first] = await deliveries(here)
        await here.platform.receive(lost(first, "t0.1"))
        with pytest.raises(StorageFailed):
            await here.write("And?", update_id="u2")
        await here.write("And?", update_id="u2")
        await asyncio.sleep(60)
        assert here.chat.texts == (*parts, SENT_AGAIN, *parts, "Two.")


@driven
@pytest.mark.parametrize("kept", [("One.",), ("One.", "Two.", "Three.")])
async def test_two_processes_that_hear_the_person_at_once_say_the_line_above_it_once(
    kept: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, here, both = Deliveries._begin, set[Deliveries](), asyncio.Event()

    async def begin_together(self: Deliveries, delivery: Run) -> None:
        here.add(self)
        if len(here) == 2:
            both.set()
        await both.wait()
        await begin(self, delivery)

    monkeypatch.setattr(Deliveries, "_begin", begin_together)
    answers = map(reply, (*kept, "A.", "B."))
    async with pair(tmp_path, *answers, capabilities=KEEPING) as (app, holding, other, hook):
        for number, _ in enumerate(kept):
            await holding.receive(MessageReceived(f"u{number}", PLACE, ADA, "Hello."))
            await asyncio.sleep(30)
        chat = holding.chat("42")
        for delivery in sorted(run.id for run in await app.journal.runs(kind="delivery")):
            await holding.receive(lost(delivery, "t0.0"))
        await asyncio.gather(
            hook(MessageReceived("u8", PLACE, ADA, "And?")), holding.receive(MessageReceived("u9", PLACE, ADA, "And?"))
        )
        await asyncio.sleep(120)
        assert len(here) == 2, "neither has claimed a delivery before the other has found it"
        assert chat.texts[: len(kept) * 2 + 1] == (*kept, SENT_AGAIN, *kept)
        assert not {SENT_AGAIN, *kept} & set(chat.texts[len(kept) * 2 + 1 :])
        assert other.performed == [], "it does not hold the lease"


@driven
@pytest.mark.parametrize("read_s", [0.0, 5.0])
async def test_the_line_above_it_is_not_said_again_by_the_process_that_goes_on(
    read_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what comes later stands below it, also where the log of the earlier answer takes long to read."""
    store, narrow = f"sqlite:///{tmp_path}/t.db", replace(NARROW, windows=(Window(1, 60.0),))
    async with town(tmp_path, reply(LONG), capabilities=narrow, store=store, streaming=False) as here:
        await here.write("Hello.")
        await asyncio.sleep(200)
        parts = here.chat.texts
        [first] = await deliveries(here)
        [first_run] = await here.runs()
        await here.platform.receive(lost(first, "t0.0"))
        await here.platform.receive(lost(first, "t0.2"))
    script = reply("Two.")
    async with town(tmp_path, script, capabilities=narrow, store=store, streaming=False, drain_s=0.1) as here:
        await here.write("And?", update_id="u7")
        await asyncio.sleep(15)
    assert here.chat.texts == (SENT_AGAIN,), "it ended before the rest"
    read = SqliteJournal.read

    async def read_late(self: SqliteJournal, run_id: str, *, after: int = 0) -> Batch:
        await asyncio.sleep(read_s if run_id == first_run else 0.0)
        return await read(self, run_id, after=after)

    monkeypatch.setattr(SqliteJournal, "read", read_late)
    async with town(tmp_path, capabilities=narrow, store=store, streaming=False) as here:
        await asyncio.sleep(400)
        assert here.chat.texts == (*parts, "Two.")


@driven
@pytest.mark.parametrize("done", [True, False])
async def test_a_line_above_it_whose_send_got_no_reply_is_not_said_again_and_holds_nothing_up(
    done: bool, tmp_path: Path
) -> None:
    def fault(_place: Place, action: AnyAction) -> Fault:
        return LostReply(done) if isinstance(action, Send) and action.text == SENT_AGAIN else None

    platform = MemoryPlatform(replace(NARROW, resend="never"), fault=fault)
    async with town(tmp_path, reply(LONG), reply("Two."), platform=platform, streaming=False) as here:
        await here.write("Hello.")
        await asyncio.sleep(30)
        parts = here.chat.texts
        [first] = await deliveries(here)
        await here.platform.receive(lost(first, "t0.1"))
        await here.write("And?", update_id="u7")
        await asyncio.sleep(60)
        assert here.chat.texts[3:] == (*[SENT_AGAIN] * done, *parts, "Two.")
        assert [getattr(action, "text", "") for _, action in platform.performed].count(SENT_AGAIN) == 1


@driven
async def test_a_platform_that_takes_everything_at_once_costs_no_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Place] = []

    async def look(_self: Undelivered, place: Place) -> tuple[str, ...]:
        looked.append(place)
        return ()

    monkeypatch.setattr(Undelivered, "of", look)
    async with town(tmp_path, reply("Hello."), streaming=False) as here:
        await here.write("Hello.")
        await asyncio.sleep(20)
        assert (here.chat.texts, looked) == (("Hello.",), [])
