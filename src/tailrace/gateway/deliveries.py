"""The deliveries of one platform: begun, taken over from dead processes, drained when the process is to end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator
from itertools import count

import msgspec
from msgspec.structs import replace

from tailrace.app import App
from tailrace.app.slash_commands import with_mark
from tailrace.delivery.consumer import ChatLines, GatewayStreamConsumer, deliver_text
from tailrace.delivery.ledger import DeliverySpec, Ledger, account_of_delivery, new_delivery, platform_of
from tailrace.delivery.planning.presenter import CUT_OFF, UNSHOWN
from tailrace.delivery.planning.replies import delay_s
from tailrace.delivery.port import Place, Platform, Purpose, Sender
from tailrace.delivery.undelivered import SENT_AGAIN, Undelivered
from tailrace.errors import CursorAhead, JournalError, RunNotFound, TailraceError
from tailrace.events import ApprovalAsked, Delivered, RunFailure, RunFinished
from tailrace.gateway.platform_lease import PlatformLease
from tailrace.gateway.registry import account_of
from tailrace.journal.fold import DELIVERY
from tailrace.journal.storage_wait import warning_level
from tailrace.ports import ENDED, Run
from tailrace.runs.host import RunHost
from tailrace.runs.recovery import ClaimedRun
from tailrace.runs.signals import run_beside

log = logging.getLogger("tailrace.gateway")
MAX_DEFERRED = 8  # times that a delivery whose run cannot be read is deferred, before the chat is told
MAX_TRIES = 5  # of a delivery that fails by an error of our own
HAND_OVER_S = 30.0  # for requests under way: longer than an adapter waits for one
BELOW_S = 10.0  # for what a message stands below
LOOK_S = 0.25  # between two looks for runs that were left to the next process
SUSPEND_S = 5.0  # for saying in each message that it was cut


class Deliveries(RunHost["_Delivery"]):
    """The deliveries of this process to one platform. Messages of our own run in the given group and never end it."""

    def __init__(
        self, app: App, platform: Platform, group: asyncio.TaskGroup, lease: PlatformLease | None = None
    ) -> None:
        """With a `lease` runs are delivered only by the process that holds it: it alone knows what the platform's rate
        limits leave."""
        super().__init__(app.journal, DELIVERY, owner=app.owner, log=log, lease_s=app.config.store.lease_s)
        self._processes = app.processes
        self._agents = app.agents
        self._waiting = app.waiting
        self._runs_are_kept = app.config.runs_are_kept
        self._lease = lease
        self._platform = platform
        self._down = app.platforms_down
        self._refusal = ""  # as it was marked last
        self._group_of_messages = group
        self._lines = ChatLines(platform, on_operator_needed=self._mark_refused)
        self._messages: dict[asyncio.Task[None], str] = {}  # of our own, on their way; with the key of the place
        self._undelivered = Undelivered(app.journal, account_of(app.config, platform.name))
        self.asked: dict[str, tuple[str, ApprovalAsked]] = {}  # by approval: the run that asks, and what

    async def deliver(self, spec: DeliverySpec, *, later: bool = False) -> None:
        """Shows the run in the place from now on. The same run in the same place is shown once. `later`: the next
        process executes the run and shows it; this one only says that it restarts, unless another one lives that
        serves the chat."""
        spec = self._of_account(spec)
        if self.may_send() and not (later and await self._has_successor()):
            run = await self.start_run(new_delivery(spec), execution=self._suspended if later else None)
            if not later and not self.must_wait(run):
                await self.take_over(run.id)  # a no-op unless a process that died had begun it
        else:
            await self._journal.create(new_delivery(spec))
            await self._processes.announce_hand_over()

    async def ask_elsewhere(self, chats: Collection[str]) -> None:
        """Asks these chats of the platform about runs that began elsewhere (`approvals.notify`). A delivery of the
        run's questions alone, so that it is asked once and taken away with the answer, whichever process dies. Runs
        until it is cancelled. Raises `JournalError`."""
        places = [Place(self._platform.name, chat) for chat in chats]
        while places:
            known = await self._waiting.version()
            for run, asked in await self._waiting.listed():
                for place in places:
                    if not f"{run.new.session}:".replace("#", ":").startswith(f"{place.key}:") and asked.expires_at:
                        spec = DeliverySpec(run.id, place, chrome="none", questions_only=True)
                        await self.deliver(spec)
            await self._waiting.next_version(known)

    async def note_undelivered(self, place: Place, delivery: str) -> None:
        """The platform takes this answer once a person has written in the place again. Raises `JournalError`."""
        await self._undelivered.add(place, delivery)

    async def send_undelivered(self, place: Place) -> None:
        """Sends undelivered answers whole, above the answer to a new message. Another process may do the same at this
        moment, so `SENT_AGAIN` is a part of the first delivery, and all deliveries are on record before
        one begins or leaves the list. Raises `JournalError`."""
        if not self._platform.capabilities(place).reply_window:
            return
        line, again = SENT_AGAIN, dict[str, Run | None]()
        for delivery in await self._undelivered.of(place):
            before = await self._found(delivery)
            if before is not None and before.state not in ENDED:
                continue  # it is under way: what is lost of it is sent when they write next
            run = again[delivery] = await self._delivery_instead_of(before, place, line) if before is not None else None
            line = "" if run is not None else line
        for delivery, run in again.items():
            if run is not None:
                await self._begin(run)
            await self._undelivered.remove(place, delivery)

    async def _delivery_instead_of(self, before: Run, place: Place, line: str) -> Run | None:
        """The one delivery that replaces an undelivered one; None where it has begun before, and is not repeated."""
        spec = msgspec.convert(before.new.input, DeliverySpec)
        again = replace(spec, place=place, chrome="none", instead_of=before.id, begins_with=line)
        run = await self._journal.create(new_delivery(self._of_account(again)))
        return run if run.claims == 0 and run.state not in ENDED else None

    async def _begin(self, delivery: Run) -> None:
        if self.may_send():
            await self.take_over(delivery.id)
        else:
            await self._processes.announce_hand_over()

    def _of_account(self, spec: DeliverySpec) -> DeliverySpec:
        return spec if self._lease is None else replace(spec, account=self._lease.account)

    async def _found(self, delivery: str) -> Run | None:
        """None where its conversation was deleted."""
        try:
            return await self._journal.get(delivery)
        except RunNotFound:
            return None

    async def _has_successor(self) -> bool:
        """Whether another process would show what this one does not."""
        if self._lease is None:
            return False
        await self._processes.look()
        return bool(self._processes.successors(serving=self._lease.account))

    def may_send(self) -> bool:
        return self._lease is None or self._lease.holds

    def say(
        self,
        place: Place,
        text: str,
        key: str,
        purpose: Purpose = "notice",
        *,
        below: Collection[str] = (),
        only_for: Sender | None = None,
    ) -> None:
        """A message of our own, as soon as the chat's budget allows; it names commands as they are typed there. `key`
        is unique to the message: where a platform knows one that was sent, it is not sent again. It stands below those
        that were said there before, and below the answers of the runs `below`, unless these take longer than `BELOW_S`
        to be shown. `only_for`: the one person who needs to see it."""
        where = replace(place, only_for=only_for.id) if only_for is not None else place
        shown = with_mark(text, self._platform.capabilities(place).command_mark)
        above = [*self.being_said(place), *(task for run_id, task in self._showing() if run_id in below)]
        task = self._group_of_messages.create_task(self._say(where, shown, f"say.{key}", purpose, above))
        self._messages[task] = place.key
        task.add_done_callback(self._messages.pop)

    async def _say(
        self, place: Place, text: str, key: str, purpose: Purpose, above: Collection[asyncio.Task[None]]
    ) -> None:
        await until_shown(above)
        try:
            await deliver_text(self._platform, self._lines.to(place), place, text, key=key, purpose=purpose)
        except TailraceError as exc:
            log.warning("%s: a message failed: %s", self._platform.name, exc)
        except Exception:
            log.exception("%s: a message failed", self._platform.name)

    def being_said(self, place: Place) -> list[asyncio.Task[None]]:
        """The messages of our own that are on their way there."""
        return [task for task, key in self._messages.items() if key == place.key]

    def _showing(self) -> Iterator[tuple[str, asyncio.Task[None]]]:
        """The runs that are being shown by this process."""
        for hosted in self._hosted.values():
            if hosted.execution is not None:
                yield hosted.execution.consumer.spec.run_id, hosted.task

    def wake(self) -> None:
        """The platform is connected: what waits for another try is tried now."""
        self._lines.wake()

    def open_approval(self, place: Place) -> ApprovalAsked | None:
        """The newest question in this place that is not answered."""
        here = [delivery for delivery in self.executions if delivery.consumer.spec.place.key == place.key]
        return next((asked for delivery in reversed(here) if (asked := delivery.consumer.open_approval)), None)

    async def drain(self, timeout_s: float) -> None:
        """Waits at most `timeout_s` for the deliveries to end; a half-shown message then says that it was cut, and its
        delivery is released. A delivery that needs a person first (another token, a parked run, an open question) is
        not waited for, nor is a run that was handed over to the next process."""
        self.leave_questions()
        for delivery in self.executions:
            if delivery.consumer.needs_operator:
                delivery.consumer.leave()
        await run_beside(self._wait(timeout_s), self._suspend_left())
        for delivery in self.executions:
            delivery.consumer.suspend()
        await self._wait(SUSPEND_S)
        await self.release()
        for task in self._messages:
            task.cancel()

    def leave_questions(self) -> None:
        """The process is about to end. An answer that waits for a person says so, and is given back: the question stays
        open for the next process. Where none would know of it, it is waited for."""
        if self._runs_are_kept:
            for delivery in self.executions:
                delivery.consumer.leave_questions()

    async def _suspend_left(self) -> None:
        """Another worker may have executed the run, so the journal is asked which of them wait for the next process."""
        while self._agents.hands_over_questions:
            try:
                left = {run.id for run in await self._journal.orphans()} if self._hosted else set()
            except JournalError as exc:
                log.log(warning_level(exc), "answers that were cut say so a little later: %s", exc)
                left = set()
            for delivery in self.executions:
                if delivery.consumer.spec.run_id in left:
                    delivery.consumer.suspend()
            await asyncio.sleep(LOOK_S)

    async def hand_over(self) -> None:
        """Gives every delivery back, once its request to the platform that is under way was answered: another process
        goes on."""
        for delivery in self.executions:
            delivery.consumer.leave()
        await super().drain(HAND_OVER_S)
        await self.release()

    async def until_said(self) -> None:
        """Waits a little for the messages of our own that are on their way."""
        if self._messages:
            await asyncio.wait(set(self._messages), timeout=SUSPEND_S)

    async def _wait(self, timeout_s: float) -> None:
        said = set(self._messages)  # those of now: each leaves the set when it ends
        messages = asyncio.wait(said, timeout=timeout_s) if said else asyncio.sleep(0)
        await asyncio.gather(super().drain(timeout_s), messages)

    def _defers(self, error: Exception, tries: int) -> bool:
        """A delivery that the journal failed is tried again for a while. The other classes of `JournalError` say
        something about the run that another try does not change."""
        again = type(error) in (JournalError, CursorAhead) and tries < MAX_DEFERRED
        return again or super()._defers(error, tries)

    def say_unshown(self, place: Place, key: str) -> None:
        """A part of an answer is missing there."""
        self.say(place, UNSHOWN, key, "failure")

    async def _before_park(self, run: Run) -> None:
        """N170: another delivery says so to the user. That an answer was set aside stands in its place already."""
        spec = msgspec.convert(run.new.input, DeliverySpec)
        answer = await self._found(spec.run_id)
        ledger = [each.event.state for each in await self._journal.read(run.id) if isinstance(each.event, Delivered)]
        if answer is not None and not spec.says and not (answer.state == "parked" and "confirmed" in ledger):
            says = CUT_OFF if ledger else UNSHOWN
            await self._journal.create(new_delivery(replace(spec, chrome="none", instead_of=run.id, says=says)))

    def _on_failed(self, run: Run, _failure: RunFailure) -> None:
        """The user waits for an answer and would wait for ever."""
        self.say(msgspec.convert(run.new.input, DeliverySpec).place, UNSHOWN, f"{run.id}.unshown", "failure")

    def _wants(self, run: Run) -> bool:
        accounts = {""} if self._lease is None else {"", self._lease.account}
        return platform_of(run) == self._platform.name and account_of_delivery(run) in accounts

    def _execution(self, claimed: ClaimedRun) -> _Delivery:
        return _Delivery(self, claimed)

    def _suspended(self, claimed: ClaimedRun) -> _Delivery:
        delivery = _Delivery(self, claimed)
        delivery.consumer.suspend()
        return delivery

    async def consumer_again(self, claimed: ClaimedRun) -> GatewayStreamConsumer:
        """The same delivery from what its ledger says now."""
        entries = await self._journal.read(claimed.run.id)
        return self.consumer_of(msgspec.structs.replace(claimed, entries=entries))

    def consumer_of(self, claimed: ClaimedRun) -> GatewayStreamConsumer:
        ledger = Ledger(self._journal, claimed)
        spec = ledger.spec
        return GatewayStreamConsumer(
            self._journal,
            self._platform,
            self._lines.to(spec.place),
            ledger,
            may_send=self.may_send,
            on_undelivered=lambda: self.note_undelivered(spec.place, ledger.id),
            on_approval=lambda asked: self.asked.update({asked.approval_id: (spec.run_id, asked)}),
        )

    def _mark_refused(self, reason: str) -> None:
        """A platform may be connected by one token and refuse another, with which answers are sent. Why there is no
        connection stays, whatever answers meet: nothing but the connection knows when that is over."""
        name = self._platform.name
        told = self._down.reasons.get(name, "")
        if told not in ("", self._refusal):
            return
        if reason:
            self._refusal = f"answers wait: {reason}"
            self._down.mark(name, self._refusal)
        elif told:
            self._down.clear(name)

    def forget(self, consumer: GatewayStreamConsumer) -> None:
        """The delivery has left the host: its questions are no longer open here."""
        self.asked = {key: asked for key, asked in self.asked.items() if asked[0] != consumer.spec.run_id}


class _Delivery:
    """One delivery under way, for the host."""

    def __init__(self, deliveries: Deliveries, claimed: ClaimedRun) -> None:
        self._deliveries = deliveries
        self._claimed = claimed
        self.consumer = deliveries.consumer_of(claimed)
        self._above = deliveries.being_said(self.consumer.spec.place)

    async def run(self) -> RunFinished | None:
        """An answer stands below what was said before it: the confirmation of a `/new` with this question, say."""
        try:
            await until_shown(self._above)
            return await self._deliver()
        finally:
            self._deliveries.forget(self.consumer)

    async def _deliver(self) -> RunFinished | None:
        """An error of our own is tried again from the ledger; the host knows what the other classes mean."""
        for tries in count(1):
            try:
                return await self.consumer.run()
            except TailraceError:
                raise
            except Exception:
                if tries >= MAX_TRIES:
                    raise
                log.exception("delivery %s failed and is tried again", self._claimed.run.id)
            await asyncio.sleep(delay_s(tries))
            self.consumer = await self._deliveries.consumer_again(self._claimed)
        return None


async def until_shown(above: Collection[asyncio.Task[None]]) -> None:
    """For `BELOW_S` at most: what cannot be shown for long holds up nothing else."""
    if above:
        await asyncio.wait(above, timeout=BELOW_S)
