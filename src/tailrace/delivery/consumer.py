"""From a run's log to a chat: `GatewayStreamConsumer` tails the log, asks the planner what is due, has the platform
perform it, and writes the ledger.

Owns tasks and waiting, decides nothing. A slow platform never slows the run: the log waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from itertools import count
from weakref import WeakSet, WeakValueDictionary

from msgspec.structs import replace

from tailrace.delivery import port
from tailrace.delivery.ledger import Ledger
from tailrace.delivery.planning.pace import Pace
from tailrace.delivery.planning.planner import Planner
from tailrace.delivery.planning.presenter import Presenter
from tailrace.delivery.planning.state import Done, Showing, Wait
from tailrace.errors import StaleEpoch
from tailrace.events import PIECES, ApprovalAsked, Entry, RunFinished
from tailrace.events.speakers import one_line_name
from tailrace.ports import Journal
from tailrace.runs.signals import FlatTaskGroup, run_beside

log = logging.getLogger("tailrace.delivery")
CHAT_GONE = "the chat is gone"  # why a delivery has ended
TELL_FLOOD_S = 10.0  # a person does not notice a shorter wait


class ChatLine:
    """What all deliveries to one chat share: its rate limits, and a lock for one request at a time."""

    def __init__(
        self, capabilities: port.Capabilities, on_operator_needed: Callable[[str], None] = lambda _: None
    ) -> None:
        self.pace = Pace(capabilities.windows)
        self.on_operator_needed = on_operator_needed
        self.lock = asyncio.Lock()
        self.drivers: WeakSet[_Driver] = WeakSet()  # of the deliveries under way
        self.numbers = count()  # of the drivers, in the order in which they came


class ChatLines:
    """The `ChatLine` of each chat of one platform, made on first use. A delivery keeps its line alive. Of the others
    the `limit` that were used last are kept, so that their rate limits are not forgotten between two answers.

    `on_operator_needed` is called with the reason where nothing is shown before a person has done something, and with
    an empty one once that is over."""

    def __init__(
        self, platform: port.Platform, *, limit: int = 4096, on_operator_needed: Callable[[str], None] = lambda _: None
    ) -> None:
        self._platform = platform
        self._on_operator_needed = on_operator_needed
        self._limit = limit
        self._lines: WeakValueDictionary[str, ChatLine] = WeakValueDictionary()
        self._recent: OrderedDict[str, ChatLine] = OrderedDict()

    def __len__(self) -> int:
        return len(self._lines)

    def wake(self) -> None:
        """The platform can be reached again: every delivery tries at once what waits for another try."""
        for line in list(self._lines.values()):
            for driver in list(line.drivers):
                driver.wake()

    def to(self, place: port.Place) -> ChatLine:
        """Threads of a chat share its line, because they share its rate limits. What is hidden from others there has a
        line of its own: it waits for no answer that grows."""
        capabilities = self._platform.capabilities(place)
        key = f"{place.chat} {place.only_for}" if place.only_for and capabilities.hides else place.chat
        if (line := self._lines.get(key)) is None:
            line = self._lines[key] = ChatLine(capabilities, self._on_operator_needed)
        self._recent[key] = line
        self._recent.move_to_end(key)
        if len(self._recent) > self._limit:
            self._recent.popitem(last=False)
        return line


class _Driver:
    """Performs what a planner finds due, until it is done."""

    def __init__(
        self,
        platform: port.Platform,
        line: ChatLine,
        planner: Planner,
        ledger: Ledger | None,
        may_send: Callable[[], bool] = lambda: True,
    ) -> None:
        self.planner = planner
        self._may_send = may_send
        self._platform, self._line, self._ledger = platform, line, ledger
        self._changed = asyncio.Event()
        self._patient = False  # more text does not change what is due next
        self._leaving = False
        self._told_operator = False
        self.needs_operator = False  # nothing is shown before a person has done something
        self.number = next(line.numbers)
        self.reads = False  # the log, which says whether it has
        self.due_at = math.inf  # when it has something to send; as far as it knows
        self.gives_way = False
        line.drivers.add(self)

    def apply_entry(self, entry: Entry) -> None:
        self.planner.apply(entry)
        if not (self._patient and isinstance(entry.event, PIECES)):
            self._changed.set()

    def suspend(self) -> None:
        self.planner.suspend()
        self._changed.set()

    def wake(self) -> None:
        self.planner.try_again()
        self._changed.set()

    def leave(self) -> None:
        self._leaving = True
        self._changed.set()

    def look_again(self) -> None:
        self._changed.set()

    def begin_reading(self) -> None:
        """The run's log, to its end. `end` must follow."""
        self.reads = True

    def has_read(self) -> None:
        """It drives next: who gives way to it still does."""
        self.reads, self.due_at = False, -math.inf

    def end(self) -> None:
        """It has nothing to send any more, whatever kept it from it."""
        self.reads = False
        self._set_due(math.inf)

    async def drive(self) -> bool:
        """Whether everything is done; False after `leave`."""
        try:
            return await self._drive()
        finally:
            self.end()

    async def _drive(self) -> bool:
        while not self._leaving:
            self.due_at = -math.inf
            self._changed.clear()
            async with self._line.lock:
                self.gives_way = self._is_behind(_now())
                step = Wait() if self.gives_way else self.planner.step(_now())
                if not isinstance(step, Wait | Done):
                    if not self._may_send():
                        raise StaleEpoch(f"{self._platform.name} is another process's to send to")
                    if self._ledger is not None:
                        if ahead := self.planner.write_ahead:
                            self._ledger.write([ahead])
                        # Also before an edit: a process that dies after it must leave the message's id behind, or the
                        # next one sends the text in another message.
                        await self._ledger.commit()
                    reply = await self._perform(step)
                    self._tell_operator(step, reply)
                    facts = self.planner.replied(reply, _now())
                    if self._ledger is not None:
                        self._ledger.write(facts)
                    continue
            if isinstance(step, Done):
                return True
            await self._wait(step)
        return False

    def _is_behind(self, now: float) -> bool:
        """Whether an answer that was asked for earlier in the same place is complete, and the rest of it could be sent
        now: what comes later stands below it. An answer that waits longer than its turn delays the others only
        while its log is read."""
        if len(self._line.drivers) < 2:
            return False
        place = self.planner.state.place.key
        return any(
            other.number < self.number
            and (other.reads or (other.due_at <= now and other.planner.outline.finished is not None))
            and other.planner.state.place.key == place
            for other in self._line.drivers
        )

    def _set_due(self, at: float) -> None:
        """Who gave way to this one looks again."""
        self.due_at = at
        for other in self._line.drivers:
            if other.gives_way and other is not self:
                other.look_again()

    def _tell_operator(self, action: port.AnyAction, reply: port.AnyReply) -> None:
        """Why nothing comes. The log has it once for each delivery of one that is tried again for a day."""
        if isinstance(reply, port.Flood) and reply.retry_after_s >= TELL_FLOOD_S:
            told = "%s: flood control: nothing is sent there for %.0f s"
            log.warning(told, self.planner.state.place.key, reply.retry_after_s)
        if isinstance(action, port.Upload) and isinstance(reply, port.Refused):
            told = "%s: the file %s could not be sent, so it is named: %s"
            log.warning(told, self.planner.state.place.key, action.name, reply.reason)
        needed = reply.reason if isinstance(reply, port.Failed) and reply.needs_operator else ""
        if needed or self.needs_operator:
            self._line.on_operator_needed(needed)
        self.needs_operator = bool(needed)
        if needed and not self._told_operator:
            self._told_operator = True
            log.error("%s: an answer waits to be shown: %s", self._platform.name, needed)

    async def _perform(self, action: port.AnyAction) -> port.AnyReply:
        """An adapter that raises breaks its contract: whether the action was done is unknown, and what follows is
        decided as for any unknown outcome. The delivery goes on. Nothing is sent where the right to do so was lost
        while the ledger was written: the ledger must say so."""
        if not self._may_send():
            return port.Failed("another process sends to this platform now")
        try:
            return await self._platform.perform(self.planner.state.place, action)
        except Exception as exc:
            log.exception("%s failed unexpectedly", self._platform.name)
            return port.Unknown(f"{type(exc).__name__} in the adapter", unlikely=True)

    async def _wait(self, wait: Wait) -> None:
        self._patient = wait.patient
        if not self.gives_way:
            self._set_due(math.inf if wait.until is None else wait.until)
        try:
            async with asyncio.timeout_at(wait.until):
                await self._changed.wait()
        except TimeoutError:
            pass
        finally:
            self._patient = False


class GatewayStreamConsumer:
    """Delivers one run to one place. `on_approval` is called with each question that the run asks. `on_undelivered` is
    called at the end of an answer that the platform refused until the person writes again. `may_send` is asked before
    each request: once it says no, another process delivers the run."""

    def __init__(
        self,
        journal: Journal,
        platform: port.Platform,
        line: ChatLine,
        ledger: Ledger,
        *,
        on_approval: Callable[[ApprovalAsked], None] | None = None,
        on_undelivered: Callable[[], Awaitable[None]] | None = None,
        may_send: Callable[[], bool] = lambda: True,
    ) -> None:
        spec = ledger.spec
        self.spec = spec
        self._journal = journal
        self._platform = platform
        self._ledger = ledger
        self._on_approval = on_approval
        self._on_undelivered = on_undelivered
        self._suspended = False
        self._leaves_questions = False
        capabilities = platform.capabilities(spec.place)
        planner = Planner(
            ledger.id,
            spec.place,
            capabilities,
            Presenter(spec.chrome, mark=capabilities.command_mark, platform=spec.place.platform),
            showing=spec.showing,
            pace=line.pace,
        )
        if spec.questions_only:
            planner.outline.show_questions_only()
        if spec.begins_with:
            planner.outline.begin_with(spec.begins_with)
        planner.restore(ledger.facts)
        self._driver = _Driver(platform, line, planner, ledger, may_send)

    @property
    def open_approval(self) -> ApprovalAsked | None:
        return self._driver.planner.outline.open_approval

    @property
    def needs_operator(self) -> bool:
        """Whether nothing can be shown before a person has done something: set another token, or decided what
        becomes of a run that was set aside."""
        return self._driver.needs_operator or self._driver.planner.outline.parked

    def suspend(self) -> None:
        """The process is about to end: an incomplete message gets a note about it, and `run` returns."""
        self._suspended = True
        self._driver.suspend()

    def leave_questions(self) -> None:
        """The process is about to end: `suspend`, as soon as the run only waits for a person."""
        self._leaves_questions = True
        self._suspend_if_asking()

    def _suspend_if_asking(self) -> None:
        if self._leaves_questions and not self._suspended and self._driver.planner.outline.waits_for_person:
            self.suspend()

    def leave(self) -> None:
        """Another process goes on with the delivery: `run` returns as soon as no request to the platform is under way.
        One that was cancelled could not be made again (G80)."""
        self._driver.leave()

    async def run(self) -> RunFinished | None:
        """Delivers until everything is shown, and seals the delivery; returns None where something ended it before.
        Raises `StaleEpoch` where another process has taken the delivery over, `JournalError`."""
        planner = self._driver.planner
        try:
            seq = await self._read()
            self._suspend_if_asking()
            done = await run_beside(self._driver.drive(), self._follow(seq))
        finally:
            self._driver.end()
        if not done or (self._suspended and planner.outline.finished is None):
            return None
        if planner.state.until_heard and self._on_undelivered is not None:
            await self._on_undelivered()  # before the end: no process reads an ended delivery again
        return await self._ledger.close(error=self._error())

    async def _read(self) -> int:
        """All entries so far are applied before the first step, so that no shown text shrinks."""
        self._driver.begin_reading()
        seq = 0
        says = [Entry(1, RunFinished("completed", self.spec.says))] if self.spec.says else None
        for entry in says or await self._journal.read(self.spec.run_id):
            self._apply_entry(await self._named(entry))
            seq = entry.seq
        self._driver.has_read()
        return seq

    def _error(self) -> str:
        """Why something of the answer is not in the chat; empty where all of it is."""
        state = self._driver.planner.state
        if state.over:
            log.warning("%s: the chat of run %s is gone", state.place.key, self.spec.run_id)
            return CHAT_GONE
        if state.in_doubt:
            told = (
                "%s: no reply came to a message of run %s: it may be missing in the chat, and is not sent again; "
                "tailrace show %s has it"
            )
            log.warning(told, state.place.key, self.spec.run_id, self.spec.run_id)
        if not state.unshown:
            return ""
        reasons = "; ".join(sorted(set(state.unshown.values())))
        log.error("%s: a part of run %s could not be shown: %s", state.place.key, self.spec.run_id, reasons)
        return f"a part could not be shown: {reasons}"

    async def _follow(self, after: int) -> None:
        async with FlatTaskGroup() as group:
            group.create_task(self._tail_log(after))
            group.create_task(self._ledger.until_lost())

    async def _tail_log(self, after: int) -> None:
        if self._driver.planner.outline.finished is not None:
            return
        async for batch in self._journal.tail(self.spec.run_id, after=after):
            for entry in batch:
                self._apply_entry(await self._named(entry))
            self._suspend_if_asking()

    async def _named(self, entry: Entry) -> Entry:
        """Adds the requester's name to a question that lacks it, as the platform knows the requester."""
        asked = entry.event
        if not isinstance(asked, ApprovalAsked) or asked.requester_name:
            return entry
        platform, _, person = asked.requester.partition(":")
        if platform != self.spec.place.platform:
            return entry
        name = one_line_name(await self._platform.display_name(port.Sender(person)))
        return replace(entry, event=replace(asked, requester_name=name))

    def _apply_entry(self, entry: Entry) -> None:
        if isinstance(entry.event, ApprovalAsked) and self._on_approval is not None:
            self._on_approval(entry.event)
        self._driver.apply_entry(entry)


async def deliver_text(
    platform: port.Platform, line: ChatLine, place: port.Place, text: str, *, key: str, purpose: port.Purpose = "notice"
) -> None:
    """Sends a text that belongs to no run, in the chat's order and within its rate limits. It has no ledger: a restart
    drops it."""
    capabilities = platform.capabilities(place)
    planner = Planner(key, place, capabilities, Presenter("none"), showing=Showing(), pace=line.pace, purpose=purpose)
    driver = _Driver(platform, line, planner, None)
    driver.apply_entry(Entry(1, RunFinished("completed", text)))
    await driver.drive()
    state = planner.state
    if state.over or state.unshown:
        reasons = CHAT_GONE if state.over else "; ".join(sorted(set(state.unshown.values())))
        log.warning("%s: a message could not be shown: %s", place.key, reasons)


def _now() -> float:
    return asyncio.get_running_loop().time()
