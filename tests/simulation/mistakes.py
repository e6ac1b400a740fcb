"""Mistakes to be planted in the product, one at a time, each in one place: a simulation that can fail finds them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
from proof.simulation.world import Hang, Kill, Leave, Steer, Stop, StoreFault, Watch, World

from tailrace.agent import model_call, tool_runner
from tailrace.agent.safety.approval import ApprovalPolicy, Judgement
from tailrace.agent.service import AgentService
from tailrace.agent.turn import RunTool, SettleTool, Turn, TurnLimits
from tailrace.app.steering import Steering
from tailrace.app.usage.limits import KeyLimits
from tailrace.delivery.ledger import Ledger
from tailrace.delivery.planning import replies
from tailrace.errors import JournalError
from tailrace.events import Entry, RunFinished, SteerAccepted, SteerCommitted, SteerSoFar
from tailrace.events.steers import Steers
from tailrace.flows.engine.nodes import Again, Choice, Fan
from tailrace.flows.engine.plan import Plan
from tailrace.flows.engine.runner import InstanceRunner
from tailrace.gateway.inbound.recent_ids import RecentIds
from tailrace.journal import live_tail
from tailrace.journal.live_tail import Tail
from tailrace.journal.open_log import OpenLog
from tailrace.journal.sqlite import commits
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.journal.stored.group_commit import PendingAppend
from tailrace.journal.stored.journal import StoredJournal
from tailrace.messages import ToolCall
from tailrace.ports import Batch
from tailrace.providers import call
from tailrace.providers.http.provider import HttpProvider
from tailrace.providers.open_attempt import OpenAttempt
from tailrace.runs.delta_log import DeltaLog
from tailrace.runs.lease import HeldLease


class Mistake(NamedTuple):
    """`plant` puts it into the product; `suits` are the worlds in which it can show."""

    plant: Callable[[], contextlib.AbstractContextManager[None]]
    suits: Callable[[World], bool]


MISTAKES: dict[str, Mistake] = {}


def mistake(
    name: str, suits: Callable[[World], bool] = lambda _: True
) -> Callable[[Callable[[], Iterator[tuple[Any, str, Any]]]], Callable[[], Any]]:
    """Registers a generator of (object, attribute, what stands there instead)."""

    def register(planted: Callable[[], Iterator[tuple[Any, str, Any]]]) -> Callable[[], Any]:
        @contextlib.contextmanager
        def plant() -> Iterator[None]:
            before: list[tuple[Any, str, Any]] = []
            try:
                for target, attribute, instead in planted():
                    before.append((target, attribute, target.__dict__[attribute]))
                    setattr(target, attribute, instead)
                yield
            finally:
                for target, attribute, original in reversed(before):
                    setattr(target, attribute, original)

        MISTAKES[name] = Mistake(plant, suits)
        return plant

    return register


def has(world: World, *kinds: type) -> bool:
    return any(isinstance(one, kinds) for one in world.happenings)


def asks_in(world: World, surface: str) -> bool:
    return any(ask.surface == surface for ask in world.asks)


def calls(world: World, tool: str) -> bool:
    return any(said.tool == tool for ask in world.asks for said in ask.said)


def dies_under_way(world: World, *, surface: str = "", tool: str = "") -> bool:
    """A process is killed when something of this kind may be under way."""
    asks = [ask for ask in world.asks if not surface or ask.surface == surface]
    asks = [ask for ask in asks if not tool or (ask.surface != "raw" and any(one.tool == tool for one in ask.said))]
    kills = [one.at for one in world.happenings if isinstance(one, Kill) and one.steps]
    return any(ask.at < at < ask.at + 3.0 for ask in asks for at in kills)


def hangs_too_long(world: World) -> bool:
    long = any(isinstance(one, Hang) and one.for_s > world.lease_s for one in world.happenings)
    return long and world.nodes > 1


def breaks_for_good(world: World) -> bool:
    """A tool call is cut off at each try."""
    kinds = {"cut", "end", "stall", "overloaded"}
    said = [said for ask in world.asks if ask.surface != "raw" for said in ask.said if said.tool]
    return any(sum(fault.kind in kinds and fault.at > 40 for fault in one.faults) >= 3 for one in said)


def loses_replies(world: World) -> bool:
    lost = {"lost-done", "raises"} & set(world.chat_faults)
    return bool(lost) and world.resend == "never" and asks_in(world, "chat")


Planted = Iterator[tuple[Any, str, Any]]


@mistake("a commit is dropped and acknowledged")
def dropped_commit() -> Planted:
    write_group = commits.write_group

    def write(connection: Any, group: Any) -> None:
        if all(isinstance(part, PendingAppend) and part.batch and part.batch[-1].seq % 9 == 0 for part in group):
            return
        write_group(connection, group)

    yield commits, "write_group", write


@mistake("entries of an old claim replace newer ones", hangs_too_long)
def missed_fence() -> Planted:
    insert_sql = commits._insert_sql

    def unfenced(rows: int) -> str:
        return insert_sql(rows).replace("h.epoch = v.column8", "v.column8 >= 0").replace("INSERT", "INSERT OR REPLACE")

    yield commits, "_insert_sql", unfenced


@mistake("a final message without a reply is sent again", loses_replies)
def doubled_final() -> Planted:
    def send_again(self: Any) -> Any:
        return self._unsent()

    yield replies._MessageReply, "_leave_in_doubt", send_again


@mistake("the ledger is written after the send", lambda world: dies_under_way(world, surface="chat"))
def late_ledger() -> Planted:
    async def commit(_ledger: Ledger) -> None:
        await asyncio.sleep(0)

    def write(self: Ledger, facts: Any) -> None:
        if events := [fact for fact in facts if fact.state != "unknown"]:
            self._journal.append(self._lease, events)

    yield Ledger, "commit", commit
    yield Ledger, "write", write


@mistake("a tool runs on arguments that were cut off and repaired", breaks_for_good)
def cut_arguments() -> Planted:
    parsed, record_answer = ToolCall.parsed, model_call.ModelCall._record_answer

    def repaired(self: ToolCall) -> Any:
        for end in ("", '"}', "}", '": 0}'):
            if (args := parsed(ToolCall(self.id, self.name, self.arguments + end))) is not None:
                return args
        return None

    def record_cut(self: Any, result: Any, log: Any) -> Any:
        return record_answer(self, msgspec.structs.replace(result, incomplete=None), log)

    yield call, "without_calls", lambda partial: partial
    yield ToolCall, "parsed", repaired
    yield model_call.ModelCall, "_record_answer", record_cut


@mistake("a run has two last entries")
def second_end() -> Planted:
    finish = OpenLog.finish

    def finish_twice(self: OpenLog, finished: RunFinished) -> Entry:
        entry = finish(self, finished)
        again = Entry(entry.seq + 1, finished, entry.attempt)
        self.seq = again.seq
        self.pending.append(again)
        return again

    yield OpenLog, "finish", finish_twice


@mistake(
    "a message that was not taken is acknowledged when it comes again",
    lambda world: asks_in(world, "chat") and has(world, StoreFault),
)
def lost_update() -> Planted:
    yield RecentIds, "forget", lambda _self, _key: None


@mistake("tokens are not counted")
def uncounted_tokens() -> Planted:
    yield DeltaLog, "record_usage", lambda *_: None


@mistake(
    "the budget of model calls is ignored", lambda world: any(world.max_turns < len(ask.said) for ask in world.asks)
)
def ignored_budget() -> Planted:
    init = AgentService.__init__

    def unlimited(self: AgentService, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **{**kwargs, "limits": TurnLimits()})

    yield AgentService, "__init__", unlimited


@mistake("the task that renews a lease is left running")
def leaked_task() -> Planted:
    async def renew_for_ever(lease: Any) -> None:
        await asyncio.sleep(lease._lease_s * 1e6)

    async def release(lease: Any, *_: object) -> None:
        await lease._journal.release(lease._lease)

    yield HeldLease, "_schedule", HeldLease._begin
    yield HeldLease, "_renew", renew_for_ever
    yield HeldLease, "__aexit__", release


@mistake("viewers are shown entries in another order", lambda world: has(world, Watch))
def reordered_entries() -> Planted:
    entries_after = Tail.entries_after

    def reversed_entries(self: Tail, after: int) -> Batch | None:
        batch = entries_after(self, after)
        return (
            Batch(reversed(batch))
            if batch and len(batch) > 1 and not isinstance(batch[-1].event, RunFinished)
            else batch
        )

    yield Tail, "entries_after", reversed_entries


@mistake("a tool that was running when its process died runs again", lambda world: dies_under_way(world, tool="push"))
def tool_twice() -> Planted:
    run_all = tool_runner.ToolRunner.run_all

    async def run_again(self: Any, given: Any) -> None:
        again = [RunTool(one.index, one.call) if isinstance(one, SettleTool) else one for one in given]
        await run_all(self, again)

    yield tool_runner.ToolRunner, "run_all", run_again


@mistake("nobody is asked about an action that needs an approval", lambda world: calls(world, "launch"))
def unasked() -> Planted:
    async def judge(_self: Any, _tool_name: str, _effect: Any) -> Judgement:
        return Judgement("allow")

    yield ApprovalPolicy, "judge", judge


@mistake("an answer that broke off is asked for again from its beginning")
def repeated_beginning() -> Planted:
    shown = call._CallInProgress._recover

    def restart(self: Any, *args: Any) -> Any:
        result = shown(self, *args)
        self._shown = self._request.prefill
        return result

    yield call._CallInProgress, "_recover", restart


@mistake("viewers are not told what another process writes", lambda world: has(world, Watch) and world.nodes > 1)
def unfollowed_run() -> Planted:
    yield StoredJournal, "_followed", lambda _self, _run_ids: []


@mistake("the connection to a provider is left open")
def leaked_connection() -> Planted:
    post = HttpProvider._post

    class _Open:
        def __init__(self, reply: Any) -> None:
            self._reply = reply

        def __getattr__(self, name: str) -> Any:
            return (lambda: None) if name == "close" else getattr(self._reply, name)

    async def left_open(self: HttpProvider, *asked: Any) -> Any:
        reply, refused = await post(self, *asked)
        return _Open(reply), refused

    yield HttpProvider, "_post", left_open


@mistake(
    "a group that the loop could not write is taken for written",
    lambda world: (
        world.writes_on_loop and any(isinstance(one, StoreFault) and one.kind == "busy" for one in world.happenings)
    ),
)
def unwritten_group() -> Planted:
    write = commits._GroupFile.write

    def taken_for_written(self: Any, group: Any, *, wait: bool) -> bool:
        write(self, group, wait=wait)
        return True

    yield commits._GroupFile, "write", taken_for_written


@mistake(
    "a run that ended in memory counts as stored although storage has refused it",
    lambda world: any(ask.in_memory for ask in world.asks) and has(world, StoreFault),
)
def forgotten_run() -> Planted:
    record = SqliteJournal.record

    async def forget(self: SqliteJournal, ended: Any) -> None:
        with contextlib.suppress(JournalError):
            await record(self, ended)

    yield SqliteJournal, "record", forget


@mistake(
    "what a live viewer refuses counts as shown",
    lambda world: any(isinstance(one, Watch) and one.live for one in world.happenings),
)
def refused_batch() -> Planted:
    offer = live_tail._offer

    def offer_to_all(viewers: Any, batch: Batch) -> None:
        for viewer in viewers:
            if (take := viewer.take) is not None:
                viewer.take = lambda page, take=take: take(page) or True
                offer((viewer,), batch)
                viewer.take = take if viewer.take is not None else None

    yield live_tail, "_offer", offer_to_all


@mistake(
    "a viewer who comes while others wait for their round is offered what it has",
    lambda world: any(isinstance(one, Watch) and one.live and one.crowd > 2 for one in world.happenings),
)
def doubled_round() -> Planted:
    def offer_all(viewers: Any, batch: Batch) -> None:
        for viewer in viewers:
            if viewer.take is not None and viewer.take(viewer.given(batch)):
                viewer.cursor = batch[-1].seq
            else:
                viewer.resync()

    yield live_tail, "_offer", offer_all


@mistake(
    "the steps of a sequence that have finished run again in another process",
    lambda world: dies_under_way(world, surface="sequence"),
)
def repeated_steps() -> Planted:
    yield Plan, "replay", lambda _self, _facts: None


@mistake("an attempt that ended with its process is not counted", dies_under_way)
def lost_usage() -> Planted:
    yield OpenAttempt, "lost_usage", None


def shaped(shape: str) -> Callable[[World], bool]:
    return lambda world: any(ask.shape == shape for ask in world.asks)


@mistake("a parallel block is done when its first branch is", shaped("parallel"))
def first_branch() -> Planted:
    def collect(fan: Fan) -> None:
        for row in [row for row in fan._open.values() if row.settled][:1]:
            fan.adopt(row)

    yield Fan, "_collect", collect


@mistake("every item of a list is taken for its first", shaped("for_each"))
def first_item() -> Planted:
    items = Fan._items
    yield Fan, "_items", lambda fan, block: [items(fan, block)[0]] * len(items(fan, block))


@mistake("a loop ends after its first iteration", shaped("loop"))
def short_loop() -> Planted:
    yield Again, "_holds", lambda again: again._index == 0


@mistake("a router takes its first route", shaped("router"))
def first_route() -> Planted:
    yield Choice, "_chosen", lambda choice: choice.block.routes[0].blocks


def is_calm(world: World) -> bool:
    return not has(world, Kill, Hang, Leave, StoreFault, Stop)


@mistake(
    "the budget of a key is looked at by no model call",
    lambda world: bool(world.key_tokens) and is_calm(world) and any(len(ask.said) > 1 for ask in world.asks),
)
def unlimited_key() -> Planted:
    yield KeyLimits, "gate", lambda _limits, _request, _routes: None


@mistake(
    "the budget of a sequence is ignored",
    lambda world: is_calm(world) and any(ask.budget and len(ask.said) > 1 for ask in world.asks),
)
def unlimited_sequence() -> Planted:
    async def unchecked(*_step: object) -> None:
        pass

    yield InstanceRunner, "_check_budget", unchecked


def steered(world: World) -> bool:
    return has(world, Steer)


@mistake("N164: a message is committed again after a crash", lambda world: steered(world) and has(world, Kill, Leave))
def committed_again() -> Planted:
    replay = Turn.replay

    def forget(self: Turn, entries: Any) -> None:
        replay(self, [entry for entry in entries if not isinstance(entry.event, SteerCommitted)])

    yield Turn, "replay", forget


@mistake("N164: an accepted message is forgotten in a crash", lambda world: steered(world) and has(world, Kill, Leave))
def forgotten_message() -> Planted:
    replay = Turn.replay

    def forget(self: Turn, entries: Any) -> None:
        replay(self, [entry for entry in entries if not isinstance(entry.event, SteerAccepted)])

    yield Turn, "replay", forget


@mistake("N165: the end of a run returns nothing", steered)
def nothing_returned() -> Planted:
    finish = OpenLog.finish

    def drop(self: OpenLog, finished: RunFinished) -> Entry:
        self.fold.steers = Steers()
        return finish(self, finished)

    yield OpenLog, "finish", drop


@mistake("N164: a message is acknowledged before the log has it", steered)
def early_acknowledgement() -> Planted:
    async def at_once(_self: Steering, _run: str, _view: Any, _seq: int, steer_id: str, _before: str) -> SteerSoFar:
        return SteerSoFar(SteerAccepted(steer_id, ""))

    yield Steering, "_next_state", at_once
