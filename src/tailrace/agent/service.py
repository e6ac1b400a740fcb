"""The agent as a service: starts turns, executes them, stops them, and goes on with those of dead processes.

Owns what a turn is made from and the order of a session's turns. Viewers tail a run's log; none is known here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import msgspec

from tailrace.agent import fork
from tailrace.agent.context import cleaned
from tailrace.agent.observer import UNOBSERVED, Observer
from tailrace.agent.runner import TurnRunner, TurnSettings
from tailrace.agent.safety.approval import MAX_REASON
from tailrace.agent.safety.redact import Redactor
from tailrace.agent.session import TURN_KIND, Sessions, history_of, last_words, new_session
from tailrace.agent.steering import facts_of
from tailrace.agent.turn import Turn, TurnLimits
from tailrace.agent.turn_spec import TurnSpec
from tailrace.errors import ForkRefused, RunNotFound, RunOwned, TailraceError
from tailrace.events import AnyEvent, Decision, Entry, RunFailure, RunFinished, RunForked, SubRunStarted
from tailrace.events.speakers import marked_message, spoken_from_elsewhere, unmarked_message
from tailrace.journal.fold import fold
from tailrace.messages import JsonObject, Message
from tailrace.ports import CRASH_LOOP, ENDED, Durability, Journal, Lease, NewRun, Run, RunState, Signal
from tailrace.providers.call import Caller
from tailrace.providers.open_attempt import open_attempts
from tailrace.providers.prices import load_prices
from tailrace.runs.charged_to import platform_of
from tailrace.runs.host import OnEnd, RunHost
from tailrace.runs.lease import LEASE_S
from tailrace.runs.recovery import MAX_KILLS, ClaimedRun
from tailrace.runs.signals import Stopped, begun_once, run_signalled, stop_only

log = logging.getLogger("tailrace.agent")
_NO_TURNS = {"call": "a call of a raw model", "sequence": "an instance of a sequence"}  # kinds of runs, in words
RETRIES_LOOKED_AT = 50
MAX_WAIT_S = 3600.0  # of a chat's message for the turns before it
_WAITS = "waits for a person"


Source = Callable[[JsonObject], Awaitable[Message]]


Equip = Callable[[TurnSpec, Run], TurnSettings]


class AgentService(RunHost["_TurnExecution"]):
    """The turns of this process."""

    def __init__(  # noqa: PLR0913 - one keyword per collaborator
        self,
        journal: Journal,
        caller: Caller,
        equip: Equip,
        *,
        owner: str,
        limits: TurnLimits | None = None,
        durability: Durability = "committed",
        lease_s: float = LEASE_S,
        on_end: OnEnd | None = None,
        observer: Observer = UNOBSERVED,
        redactor: Redactor | None = None,
    ) -> None:
        """`on_end` is called with each run that ended here; it must return quickly. `observer` watches each turn. The
        secrets of the `redactor` are removed from a question before it is stored or sent to a model (J114)."""
        super().__init__(journal, TURN_KIND, owner=owner, log=log, lease_s=lease_s, on_end=on_end)
        self._caller = caller
        self._equip = equip
        self._limits = limits or TurnLimits()
        self._durability: Durability = durability
        self._observer = observer
        self._redactor = redactor or Redactor()
        self._sessions = Sessions()
        self._waiting: set[str] = set()  # runs with nothing under way but questions to a person
        self.hands_over_questions = False  # set once no process goes on after this one
        self._handed_over: set[str] = set()  # runs that were handed over for that
        self.has_tools_of: Callable[[Run], bool] = lambda _: True  # another process goes on with a run for which not
        self.sources: dict[str, Source] = {}  # by name: who completes a question whose files are fetched later

    def _execution(self, claimed: ClaimedRun) -> _TurnExecution:
        return _TurnExecution(self, claimed)

    def _wants(self, run: Run) -> bool:
        return self.has_tools_of(run)

    async def _last_words(self, run: Run, entries: Sequence[Entry]) -> Sequence[AnyEvent]:
        for entry in entries:
            if isinstance(entry.event, SubRunStarted):
                await self.stop(entry.event.run_id)
        return await last_words(run, entries)

    # ── turns ────────────────────────────────────────────────────────────────────────────────────────────────

    async def submit(
        self,
        spec: TurnSpec,
        *,
        session: str = "",
        idempotency_key: str = "",
        durability: Durability | None = None,
        deadline_at: float | None = None,
        later: bool = False,
    ) -> Run:
        """A run that has begun; it goes on whether or not anything watches it. With a known idempotency key, the run
        that has it. Without a `durability` of its own it has the service's. `later`: this process is about to end, and
        another one begins the run; not with the durability `memory`.

        In a session that is busy, the runs before it are stopped or waited for; what was promised to another person
        is waited for. `busy: steer` waits: `app.steering` asks first whether a run takes the message."""
        if session and spec.spoken_by is None and await self._has_speakers(session):
            spec = msgspec.structs.replace(spec, spoken_by=spoken_from_elsewhere(spec.requester))
        new = self._new_turn(spec, session, idempotency_key, durability, deadline_at)
        before = self.tasks_of(session) if session else {}
        unwanted = [run_id for run_id in before if _takes_place_of(spec, self._hosted[run_id].run)]
        run = await self._journal.create(new) if later else await self.start_run(new)
        if spec.busy == "interrupt" and run.id not in before and run.id in self.running:  # not a known key's run
            for run_id in reversed(unwanted):  # those that wait first: none of them has its turn when the oldest ends
                await self.stop(run_id, by=spec.requester, newer=True)
        return run

    def begin(self, spec: TurnSpec, durability: Durability) -> Run | None:
        """As `submit` without a session, where `begin_run` can do it."""
        return self.begin_run(self._new_turn(spec, durability=durability))

    def _new_turn(
        self,
        spec: TurnSpec,
        session: str = "",
        idempotency_key: str = "",
        durability: Durability | None = None,
        deadline_at: float | None = None,
    ) -> NewRun:
        turn = msgspec.to_builtins(self.as_stored(spec))
        durability = durability or self._durability
        return NewRun(TURN_KIND, turn, spec.model, session, idempotency_key, durability, deadline_at)

    async def _has_speakers(self, session: str) -> bool:
        """Whether the messages of the session say whose they are, as those of a shared chat do."""
        for run in await self._journal.runs(session=session, kind=TURN_KIND, limit=1):
            spoken_by = run.new.input.get("spoken_by")
            return isinstance(spoken_by, dict) and bool(spoken_by.get("id"))
        return False

    def as_stored(self, spec: TurnSpec) -> TurnSpec:
        """The turn as the run of it keeps it: without secrets, and without what no provider takes."""
        redact = self._redactor.redact_message
        history = tuple(map(redact, spec.history)) if spec.history is not None else None
        message, shown = redact(cleaned(spec.message)), self._redactor.redact(spec.shown)
        return msgspec.structs.replace(spec, message=message, history=history, shown=shown)

    async def forked_turn(self, request: fork.ForkRequest) -> TurnSpec:
        """The turn of a fork, for `start_fork`. Raises `RunNotFound`, `CursorAhead` for an entry that is not there,
        `ForkRefused` where no turn can begin."""
        source = await self._journal.get(request.run_id)
        spec = _turn_of(source, "forked")
        found = await fork.forked_log(self._journal, source, request.after)
        if spec.forked_from is not None and not found.is_whole_fork:
            raise ForkRefused(f"{source.id} is a fork that has not begun yet; try again")
        message, pending_attachments = request.message, None
        leaves = fork.leaves_question(found.entries, spec.forked_from)
        if message is not None and request.keep_files and not leaves:
            message = fork.with_files_of(await self._question_of(source, spec), message)
        if message is None and not fork.has_question(found.entries, spec.forked_from):
            message, pending_attachments = spec.message, spec.pending_attachments
        if message is None:
            fork.check_goes_on(found.entries, source.id)
        settings = spec.request
        if settings is not None and request.model not in (None, spec.model):  # these were for one provider's API
            settings = msgspec.structs.replace(settings, extra={}, headers={}, verbatim=False)
        spoken_by = spec.spoken_by  # in another wording the question is still that person's
        if request.message and leaves and spoken_by is not None and spoken_by.id:
            spoken_by = spoken_from_elsewhere(request.requester)
        return msgspec.structs.replace(
            _inherited_spec(spec, request.requester),
            message=message or spec.message,
            model=spec.model if request.model is None else request.model,
            request=settings,
            reachable=request.reachable,
            yolo=request.yolo,
            pending_attachments=pending_attachments,
            shown=spec.shown if request.message is None else "",
            spoken_by=spoken_by,
            forked_from=fork.ForkPoint(source.id, found.after, asks=message is not None),
        )

    async def _question_of(self, run: Run, spec: TurnSpec) -> Message:
        """The question of this run with the files that were fetched for it."""
        asked = fork.question_in(await self._journal.facts(run.id), spec.forked_from)
        return spec.message if asked is None else unmarked_message(asked, spec.spoken_by)

    async def retried_turn(self, request: fork.ForkRequest) -> TurnSpec:
        """The question of an ended run again, or another one in its place, for `submit` in the session of that run: a
        further version of that turn, which those after it do not follow. The requester answers for it, as for a fork.
        Raises `RunNotFound`, and `RunOwned` for a run that has not ended."""
        run = await self._journal.get(request.run_id)
        spec = _turn_of(run, "asked again")
        if run.state not in ENDED:
            raise RunOwned(f"run {run.id} has not ended", owner=run.owner)
        previous_run, session = spec.previous_run, run.new.session
        if session and previous_run is None:
            before = await self._journal.runs(session=session, kind=TURN_KIND, before=run.id, limit=1)
            previous_run = before[0].id if before else ""
        again = await self.forked_turn(request)
        if spec.forked_from is None:  # its history is the session's, or the client's own: nothing is copied
            again = msgspec.structs.replace(again, forked_from=None, history=spec.history)
        return msgspec.structs.replace(again, previous_run=previous_run, retry_of=run.id)

    async def retry_with_key(self, run_id: str, session: str, idempotency_key: str) -> Run | None:
        """The turn that this key has begun after that run in its session. Not found among more than `RETRIES_LOOKED_AT`
        later ones: a client that repeats a request for want of an answer does so soon."""
        later = await self._journal.runs(session=session, kind=TURN_KIND, limit=RETRIES_LOOKED_AT) if session else []
        return next((run for run in later if run.id > run_id and run.new.idempotency_key == idempotency_key), None)

    async def start_fork(
        self, spec: TurnSpec, *, idempotency_key: str = "", durability: Durability | None = None
    ) -> Run:
        """A run that begins from the facts of another one, in a session of its own with the history up to there. The
        other run may be executed anywhere, or have ended; it stays as it is, and may be deleted once this returns. With
        a known idempotency key, the run that has it."""
        session = new_session()
        run = await self.submit(spec, session=session, idempotency_key=idempotency_key, durability=durability)
        if run.new.session == session:  # else it is the run that had this key
            await self._until_inherited(run)
        return run

    async def _until_inherited(self, run: Run) -> None:
        async for batch in self._journal.tail(run.id):
            if any(isinstance(entry.event, RunForked | RunFinished) for entry in batch):
                return

    async def answer(
        self,
        run_id: str,
        approval_id: str,
        decision: Decision,
        *,
        by: str = "",
        reason: str = "",
        authorised: bool = False,
    ) -> None:
        """Answers an approval, in whichever process the run is. The model reads the `reason` of a denial. `authorised`:
        the surface has found that `by` may answer for the run's requester. Raises `RunSealed`, `RunNotFound`."""
        payload: JsonObject = {"approval_id": approval_id, "decision": decision, "authorised": authorised}
        if reason := self._redactor.redact(reason.strip()[:MAX_REASON]):
            payload["reason"] = reason
        await self._journal.signal(run_id, Signal("approval", payload, by=by))

    def hand_over_questions(self) -> None:
        """The process is about to end: from now on a run that has nothing under way but a question to a person is given
        back, with the runs of its session that wait for it. The question stays open; an answer counts when another
        process goes on with the run. Runs that are in this process's memory alone stay."""
        self.hands_over_questions = True
        for run_id in sorted(self._waiting):
            self.hand_over_run(run_id, _WAITS)

    def _note_waiting(self, run_id: str, waits: bool) -> None:
        if not waits:
            self._waiting.discard(run_id)
            return
        self._waiting.add(run_id)
        if self.hands_over_questions:
            self.hand_over_run(run_id, _WAITS)

    def hand_over_run(self, run_id: str, why: str) -> bool:
        """As every host does, with the runs of its session that wait for it: they would go on with it here."""
        if run_id in self._handed_over:
            return True
        if not super().hand_over_run(run_id, why):
            return False
        self._handed_over.add(run_id)
        session = self._hosted[run_id].run.new.session
        for each, task in self.tasks_of(session).items() if session else ():
            if each > run_id and each not in self._handed_over:
                self._handed_over.add(each)
                task.cancel()
        return True

    def current(self, session: str) -> str | None:
        """The run that has the session's turn in this process."""
        return self._sessions.current(session)

    # ── execution ────────────────────────────────────────────────────────────────────────────────────────────

    async def execute(self, claimed: ClaimedRun) -> RunFinished | None:
        """The turn, from the end of the session's runs before it to its own. None for one that is set aside. Raises
        `TailraceError` for a message of a chat that has waited too long to be answered (N160)."""
        run = claimed.run
        if claimed.entries:
            entered = Turn()
            entered.replay(claimed.entries)
            if (times := entered.ended_with_process) >= MAX_KILLS:
                message = (
                    f"the process ended {times} times while this run called a tool, so it is set aside; see what the "
                    f"calls do before you let it go on, or end it: tailrace stop {run.id}"
                )
                await self._journal.park(claimed.lease, RunFailure(CRASH_LOOP, message))
                return None
        spec = msgspec.convert(run.new.input, TurnSpec)
        if run.new.session:
            waiting = self._until_session_is_free(run, spec)
            entries = [*claimed.entries]
            claimed = msgspec.structs.replace(claimed, entries=entries)
            takes = partial(self._while_waiting, claimed.lease, entries)
            on_signal = (
                stop_only if spec.forked_from is not None else takes
            )  # a fork's log begins with what it inherits
            try:
                await run_signalled(waiting, self._journal, claimed.lease, on_signal)
            except Stopped as exc:  # from any process: it need not wait for its turn to end
                return await self._turn(claimed, spec, stopped=exc.failure)
            waited_s = self._clock() - run.created_at
            if waited_s > MAX_WAIT_S and not entries and platform_of(spec.requester):
                raise TailraceError(
                    f"This message waited {waited_s / 60:.0f} min for its turn and was not answered. Send it again if "
                    "it still matters."
                )
        async with self._sessions.turn_of(run):
            with self._observer.turn(run) as report:
                finished = await self._turn(claimed, spec, stopped=self.stopping(run.id))
                report(finished)
        return finished

    def _while_waiting(self, lease: Lease, entries: list[Entry], signal: Signal) -> None:
        """A turn that waits for those before it can be stopped, and takes messages for its first model call."""
        stop_only(signal)
        facts = facts_of(signal, fold(entries).steers)
        entries += [Entry(self._journal.append(lease, [fact]), fact) for fact in facts]

    async def _until_session_is_free(self, run: Run, spec: TurnSpec) -> None:
        """Returns when the session's earlier runs have ended, in this process and others (I101). None can come before
        this one any more: ids grow with each run that the session gets. One whose process is gone goes on here, unless
        this run interrupts it."""
        states: tuple[RunState, ...] = ("pending", "running")
        others = await self._journal.runs(session=run.new.session, kind=TURN_KIND, states=states, before=run.id)
        if spec.busy == "interrupt":  # all of them first: those that wait end when the one that runs has
            for other in others:
                if _takes_place_of(spec, other):
                    await self.stop(other.id, by=spec.requester, newer=True)
        if before := [task for run_id, task in self.tasks_of(run.new.session).items() if run_id < run.id]:
            await asyncio.wait(before)
        for other in others:
            await self.see_to_end(other.id)

    async def _turn(self, claimed: ClaimedRun, spec: TurnSpec, *, stopped: RunFailure | None) -> RunFinished:
        run = claimed.run
        history = await self._history(run, spec)
        settings = self._equip(spec, run)
        if spec.max_usd is not None:
            await load_prices()
        foreign = [tool.name for tool in spec.foreign]
        turn = Turn(history, limits=_limits_of(spec, self._limits), foreign=foreign, price=settings.price)
        turn.replay(claimed.entries)
        on_waiting = partial(self._note_waiting, run.id)
        left = open_attempts(claimed.entries).get("")
        resumed = left.resumable if left is not None else None
        runner = TurnRunner(self._journal, claimed.lease, turn, self._caller, settings, on_waiting, resumed)
        point = spec.forked_from
        if point is not None and not any(isinstance(entry.event, RunForked) for entry in claimed.entries):
            known = claimed.entries[-1].seq if claimed.entries else run.last_seq
            await runner.inherit([entry for entry in await self._inherited(point) if entry.seq > known])
        begun = fork.has_question(claimed.entries, point) or (point is not None and not point.asks)
        message = None if begun else marked_message(spec.message, spec.spoken_by)
        replaced = history if spec.replaces_history else None
        if spec.pending_attachments is None:
            return await runner.run(message, stopped=stopped, replaced=replaced)
        async with begun_once(partial(self._completed, spec)) as fetch:
            return await runner.run(message, fetch=fetch, stopped=stopped, replaced=replaced)

    async def _inherited(self, point: fork.ForkPoint) -> list[Entry]:
        try:
            source = await self._journal.get(point.run_id)
        except RunNotFound as exc:
            raise ForkRefused(f"{point.run_id}, which this run is a fork of, was deleted before it began") from exc
        spec = msgspec.convert(source.new.input, TurnSpec)
        found = await fork.forked_log(self._journal, source, point.after)
        return fork.inherited(point, await self._history(source, spec), found)

    async def _history(self, run: Run, spec: TurnSpec) -> tuple[Message, ...]:
        """What was said before this run."""
        if spec.history is not None:
            return spec.history
        if not run.new.session:
            return ()
        return await history_of(self._journal, run.new.session, before=run.id, previous_run=spec.previous_run)

    async def _completed(self, spec: TurnSpec) -> Message:
        """The question with its files; as it is where this process does not know their source."""
        pending = spec.pending_attachments
        source = self.sources.get(pending.source) if pending is not None else None
        if pending is None or source is None:
            return marked_message(spec.message, spec.spoken_by)
        fetched = self._redactor.redact_message(cleaned(await source(pending.reference)))
        return marked_message(fetched, spec.spoken_by)


def _limits_of(spec: TurnSpec, limits: TurnLimits) -> TurnLimits:
    return TurnLimits(
        spec.max_turns if spec.max_turns is not None else limits.max_calls,
        spec.max_tokens if spec.max_tokens is not None else limits.max_tokens,
        spec.max_usd,
    )


def _takes_place_of(spec: TurnSpec, other: Run) -> bool:
    """Whether an interrupting turn stops this one. It does not depend on what that one does meanwhile: the turn before
    it may have ended since it was asked last."""
    given = other.new.input
    return not given.get("must_answer") or given.get("requester", "") == spec.requester


def _turn_of(run: Run, what: str) -> TurnSpec:
    """The turn of a run that is to be forked or asked again. Raises `ForkRefused` for a run of another kind."""
    if run.new.kind != TURN_KIND:
        kind = _NO_TURNS.get(run.new.kind, f"a record of the kind {run.new.kind!r}")
        raise ForkRefused(f"{run.id} is {kind}: only turns of the agent can be {what}")
    return msgspec.convert(run.new.input, TurnSpec)


def _inherited_spec(spec: TurnSpec, requester: str) -> TurnSpec:
    """What a fork and a repeated question take over from a turn. Its requester is the one who asks now, so neither
    `yolo` nor the tools of the earlier client are taken over."""
    return TurnSpec(
        spec.message,
        model=spec.model,
        request=spec.request,
        system=spec.system,
        directory=spec.directory,
        requester=requester,
        checkpoints=spec.checkpoints,
        plan=spec.plan,
        max_turns=spec.max_turns,
        tools=spec.tools,
    )


class _TurnExecution:
    """One turn under way, for the host."""

    def __init__(self, service: AgentService, claimed: ClaimedRun) -> None:
        self._service = service
        self._claimed = claimed

    async def run(self) -> RunFinished | None:
        return await self._service.execute(self._claimed)
