"""The consumer over a real journal: what is tailed arrives, in order, once, and after a death in the same message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

import pytest
from msgspec.structs import replace
from proof.memory_platform import Fault, LostReply, MemoryPlatform

from delivery.planning.played_plans import EDITING
from tailrace.delivery.consumer import ChatLines, GatewayStreamConsumer, deliver_text
from tailrace.delivery.ledger import DeliverySpec, Ledger
from tailrace.delivery.planning.state import Showing
from tailrace.delivery.port import AnyAction, AnyReply, Capabilities, Edit, Flood, Place, Refused, Send, Upload, Window
from tailrace.delivery.text.split import CURSOR
from tailrace.events import (
    AnyEvent,
    ApprovalAsked,
    Delivered,
    GatewayNotice,
    MessageChunk,
    MessageStop,
    RunFinished,
    ToolCallChunk,
    ToolCallFinished,
    ToolOutputRecorded,
)
from tailrace.journal.memory import MemoryJournal
from tailrace.messages import ToolFile
from tailrace.ports import ENDED, Lease, NewRun
from tailrace.testing.clock import driven
from tailrace.testing.platforms.played_runs import HeldConsumer, begin, orphaned

PLACE = Place("telegram", "42", extra={"message": "7"})
WORDS = [f"word{number} " for number in range(100)]
TEXT = "".join(WORDS)


class Scene:
    """A run in a journal, a platform, and the consumers between them."""

    def __init__(self, capabilities: Capabilities = EDITING, *, latency_s: float = 0.05) -> None:
        self.journal = MemoryJournal()
        self.platform = MemoryPlatform(capabilities, latency_s=latency_s)
        self.lines = ChatLines(self.platform)
        self.asked: list[ApprovalAsked] = []
        self.may_send: Callable[[], bool] = lambda: True

    async def start_run(self, key: str = "") -> Lease:
        new = NewRun("agent", idempotency_key=key)
        _, lease = await self.journal.start(new, "executor", lease_s=1e9)
        assert lease is not None
        return lease

    async def say(self, lease: Lease, words: Sequence[str], *, every_s: float = 0.1) -> None:
        for word in words:
            self.journal.append(lease, [MessageChunk(word)])
            await asyncio.sleep(every_s)

    async def end(self, lease: Lease, text: str = TEXT) -> None:
        self.journal.append(lease, [MessageStop(final=True)])
        await self.journal.seal(lease, RunFinished("completed", text))

    async def consumer(self, run_id: str, owner: str = "gateway", place: Place = PLACE) -> GatewayStreamConsumer:
        spec = DeliverySpec(run_id, place, Showing(streaming=True))
        ledger = await begin(self.journal, spec, owner)
        assert ledger is not None
        return self._consumer(ledger)

    async def heir(self, owner: str = "next gateway") -> GatewayStreamConsumer:
        """The consumer of a gateway that takes over from a dead one."""
        [ledger] = [ledger async for ledger in orphaned(self.journal, "telegram", owner)]
        return self._consumer(ledger)

    def _consumer(self, ledger: object) -> GatewayStreamConsumer:
        place = ledger.spec.place  # type: ignore[attr-defined]
        return HeldConsumer(
            self.journal,
            self.platform,
            self.lines.to(place),
            ledger,  # type: ignore[arg-type]
            on_approval=self.asked.append,
            may_send=self.may_send,
        )

    @property
    def texts(self) -> tuple[str, ...]:
        return self.platform.chat("42").texts


@driven
async def test_an_answer_grows_in_one_message_and_its_delivery_is_on_record() -> None:
    scene = Scene()
    lease = await scene.start_run()
    consumer = await scene.consumer(lease.run_id)
    async with asyncio.TaskGroup() as group:
        group.create_task(consumer.run())
        await scene.say(lease, WORDS)
        await scene.end(lease)
    assert scene.texts == (TEXT,)
    assert len(scene.platform.chat("42").messages) == 1
    assert scene.platform.chat("42").overruns == []
    [delivery] = await scene.journal.runs(kind="delivery")
    assert delivery.state == "completed"
    assert await begin(scene.journal, consumer.spec, "another") is None, "delivered once"


class OneAtATime(MemoryPlatform):
    """Slow, and it notices when it is asked for a second thing before the first is done."""

    busy = False

    async def perform(self, place: Place, action: AnyAction) -> AnyReply:
        assert not self.busy, "two requests at once: the later one may be done first"
        self.busy = True
        try:
            return await super().perform(place, action)
        finally:
            self.busy = False


@driven
async def test_G86_a_slow_edit_is_never_overtaken_by_the_final_one() -> None:
    scene = Scene()
    scene.platform = OneAtATime(EDITING, latency_s=2.0)  # slower than the interval between edits
    scene.lines = ChatLines(scene.platform)
    lease = await scene.start_run()
    consumer = await scene.consumer(lease.run_id)
    async with asyncio.TaskGroup() as group:
        group.create_task(consumer.run())
        await scene.say(lease, WORDS)
        await scene.end(lease)
    assert scene.texts == (TEXT,)
    *partial, last = [action for _, action in scene.platform.performed if isinstance(action, Send | Edit)]
    assert last.final
    assert partial
    assert not any(action.final for action in partial)


@driven
async def test_G77_a_gateway_that_dies_in_mid_stream_is_followed_by_one_that_finishes_the_same_message() -> None:
    for died_after in (1, 25, 60, 99):
        scene = Scene()
        lease = await scene.start_run()
        consumer = await scene.consumer(lease.run_id)
        delivering = asyncio.create_task(consumer.run())
        await scene.say(lease, WORDS[:died_after])
        delivering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await delivering
        await scene.say(lease, WORDS[died_after:])
        heir = await scene.heir()
        async with asyncio.TaskGroup() as group:
            group.create_task(heir.run())
            await scene.end(lease)
        assert scene.texts == (TEXT,)
        assert len(scene.platform.chat("42").messages) == 1


@driven
async def test_a_process_that_ends_need_not_wait_for_a_run_that_was_set_aside() -> None:
    scene = Scene()
    lease = await scene.start_run()
    consumer = await scene.consumer(lease.run_id)
    async with asyncio.TaskGroup() as group:
        group.create_task(consumer.run())
        await scene.say(lease, WORDS)
        needs = [consumer.needs_operator]
        scene.journal.append(lease, [GatewayNotice("parked", "It died 3 times.")])
        await asyncio.sleep(10)
        assert scene.texts[-1] == "It died 3 times."
        needs.append(consumer.needs_operator)
        await scene.end(lease)
        await asyncio.sleep(10)
        needs.append(consumer.needs_operator)
    assert needs == [False, True, False], "it went on in the end"


@driven
async def test_G77_two_gateways_never_deliver_the_same_answer() -> None:
    scene = Scene()
    lease = await scene.start_run()
    first = await scene.consumer(lease.run_id, "one")
    async with asyncio.TaskGroup() as group:
        group.create_task(first.run())
        await scene.say(lease, WORDS[:30])
        assert await begin(scene.journal, first.spec, "two") is None
        assert [ledger async for ledger in orphaned(scene.journal, "telegram", "two")] == []
        await scene.end(lease, "".join(WORDS[:30]))
    assert len(scene.platform.chat("42").messages) == 1


@driven
async def test_G77_a_gateway_that_lost_its_claim_stops_before_it_sends() -> None:
    scene = Scene()
    lease = await scene.start_run()
    consumer = await scene.consumer(lease.run_id, "one")
    [delivery] = await scene.journal.runs(kind="delivery")
    await scene.journal.release(Lease(delivery.id, delivery.claims, "one"))
    await scene.journal.claim(delivery.id, "two")
    await scene.say(lease, WORDS)
    await scene.end(lease)
    await consumer.run()
    assert scene.platform.chat("42").messages == []


@driven
async def test_a_send_is_on_record_before_it_is_made() -> None:
    scene = Scene()
    lease = await scene.start_run()
    consumer = await scene.consumer(lease.run_id)
    [delivery] = await scene.journal.runs(kind="delivery")
    recorded: list[int] = []

    def look(_place: Place, action: AnyAction) -> Fault:
        if isinstance(action, Send):
            recorded.append(scene.journal._logs[delivery.id].tail.last_seq)
        return None

    scene.platform.fault = look
    async with asyncio.TaskGroup() as group:
        group.create_task(consumer.run())
        await scene.say(lease, WORDS)
        await scene.end(lease)
    assert recorded == [2], "committed, right after the run's first entry"
    facts = [entry.event for entry in await scene.journal.facts(delivery.id)]
    assert [getattr(fact, "state", "") for fact in facts[1:4]] == ["unknown", "sent", "confirmed"]


class SlowLedger(Ledger):
    """Its storage is slow: nothing is durable before a commit has waited for it."""

    def __init__(self, ledger: Ledger) -> None:
        vars(self).update(vars(ledger))
        self.waiting: list[Delivered] = []

    def write(self, facts: Iterable[Delivered]) -> None:
        self.waiting += facts

    async def commit(self) -> None:
        super().write(self.waiting)
        self.waiting.clear()
        await super().commit()

    async def close(self, *, error: str = "") -> RunFinished:
        super().write(self.waiting)
        return await super().close(error=error)


@driven
async def test_G80_the_id_of_a_message_is_on_record_before_the_message_is_edited() -> None:
    """A process that dies after the edit, with the id in its memory alone, would show the answer twice: the next one
    takes the message for a stray and sends another."""
    scene = Scene()
    lease = await scene.start_run()
    ledger = await begin(scene.journal, DeliverySpec(lease.run_id, PLACE, Showing(streaming=True)), "gateway")
    assert ledger is not None
    slow = SlowLedger(ledger)
    edits: list[int] = []

    def look(_place: Place, action: AnyAction) -> Fault:
        if isinstance(action, Edit):
            edits.append(len(slow.waiting))
        return None

    scene.platform.fault = look
    async with asyncio.TaskGroup() as group:
        group.create_task(scene._consumer(slow).run())
        await scene.say(lease, WORDS)
        await scene.end(lease)
    assert edits
    assert set(edits) == {0}


@driven
async def test_G78_a_flood_in_mid_stream_leaves_one_message_with_all_of_it() -> None:
    scene = Scene()
    struck: list[AnyAction] = []

    def flood(_place: Place, action: AnyAction) -> Fault:
        if isinstance(action, Edit) and len(struck) < 2:
            struck.append(action)
            return Flood(7.0)
        return None

    scene.platform.fault = flood
    lease = await scene.start_run()
    consumer = await scene.consumer(lease.run_id)
    async with asyncio.TaskGroup() as group:
        group.create_task(consumer.run())
        await scene.say(lease, WORDS)
        await scene.end(lease)
    assert len(struck) == 2
    assert scene.texts == (TEXT,)


@driven
async def test_a_shutdown_says_so_and_the_next_gateway_goes_on() -> None:
    scene = Scene()
    lease = await scene.start_run()
    consumer = await scene.consumer(lease.run_id)
    delivering = asyncio.create_task(consumer.run())
    await scene.say(lease, WORDS[:60])
    consumer.suspend()
    await delivering
    [shown] = scene.texts
    assert "Interrupted by a restart" in shown
    assert CURSOR not in shown
    await scene.say(lease, WORDS[60:])
    await scene.end(lease)
    await (await scene.heir()).run()
    assert scene.texts == (TEXT,)


@driven
async def test_a_log_that_was_compacted_meanwhile_is_still_delivered() -> None:
    scene = Scene()
    lease = await scene.start_run()
    consumer = await scene.consumer(lease.run_id)
    await scene.say(lease, WORDS)
    await scene.end(lease)
    await scene.journal.compact(lease.run_id)
    await consumer.run()
    assert scene.texts == (TEXT,)


@driven
async def test_threads_of_one_chat_share_its_budget() -> None:
    scene = Scene(Capabilities(mode="edit", edits=True, windows=(Window(20, 60.0), Window(1, 1.0))))
    leases = [await scene.start_run(str(number)) for number in range(3)]
    async with asyncio.TaskGroup() as group:
        for number, lease in enumerate(leases):
            place = Place("telegram", "42", str(number), "group")
            group.create_task((await scene.consumer(lease.run_id, place=place)).run())
        async with asyncio.TaskGroup() as talking:
            for lease in leases:
                talking.create_task(scene.say(lease, WORDS))
        for lease in leases:
            await scene.end(lease)
    assert scene.texts == (TEXT,) * 3
    assert scene.platform.chat("42").overruns == []


@driven
async def test_the_host_is_told_of_each_approval_that_is_asked_for() -> None:
    scene = Scene()
    lease = await scene.start_run()
    consumer = await scene.consumer(lease.run_id)
    asked = ApprovalAsked("apr_1", "terminal", "rm x", "digest", "telegram:1")
    async with asyncio.TaskGroup() as group:
        group.create_task(consumer.run())
        events: list[AnyEvent] = [asked]
        scene.journal.append(lease, events)
        await asyncio.sleep(1)
        assert consumer.open_approval == asked
        await scene.end(lease, "")
    assert scene.asked == [asked]


@driven
async def test_a_text_of_our_own_is_split_and_paced_like_any_other() -> None:
    scene = Scene()
    line = scene.lines.to(PLACE)
    await deliver_text(scene.platform, line, PLACE, "many words " * 800, key="say.1")
    assert "".join(scene.texts) == "many words " * 800
    assert scene.platform.chat("42").overruns == []


@driven
async def test_a_reply_that_was_lost_is_not_answered_by_a_second_send(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.platform.fault = lambda _place, action: LostReply(done=True) if isinstance(action, Send) else None
    lease = await scene.start_run()
    consumer = await scene.consumer(lease.run_id)
    await scene.say(lease, ["Yes."])
    await scene.end(lease, "Yes.")
    await consumer.run()
    assert scene.texts == ("Yes.",)
    assert f"may be missing in the chat, and is not sent again; tailrace show {lease.run_id} has it" in caplog.text
    [delivery] = await scene.journal.runs(kind="delivery")
    assert delivery.state in ENDED


@driven
async def test_the_log_says_that_a_platform_wants_no_request_for_long(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    floods = iter([Flood(45.0), Flood(2.0)])
    scene.platform.fault = lambda _place, _action: next(floods, None)
    await deliver_text(scene.platform, scene.lines.to(PLACE), PLACE, "Hello.", key="k")
    assert scene.platform.chat("42").texts == ("Hello.",)
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warned == ["telegram:42: flood control: nothing is sent there for 45 s"]


@driven
async def test_the_log_says_that_a_reply_to_a_command_could_not_be_shown(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.platform.fault = lambda _place, _action: Refused("Missing Permissions (50013)")
    await deliver_text(scene.platform, scene.lines.to(PLACE), PLACE, "Hello.", key="k")
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warned == ["telegram:42: a message could not be shown: Missing Permissions (50013)"]


@driven
async def test_the_log_says_why_a_file_is_named_and_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(replace(EDITING, max_file_bytes=1 << 20))
    scene.platform.fault = lambda _, action: Refused("missing_scope") if isinstance(action, Upload) else None
    lease = await scene.start_run()
    given = ToolOutputRecorded("c1", "plot", "[image/png]", files=(ToolFile("plot.png", "image/png", b"\x89PNG"),))
    ended = ToolCallFinished("plot", 0.1, index=0)
    scene.journal.append(lease, [ToolCallChunk("plot", index=0), given, ended, MessageChunk("There.")])
    await scene.end(lease, "There.")
    consumer = await scene.consumer(lease.run_id)
    assert await consumer.run() is not None
    assert "telegram:42: the file plot.png could not be sent, so it is named: missing_scope" in caplog.text
