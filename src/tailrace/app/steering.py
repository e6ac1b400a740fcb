"""Steering: a message for a run that is under way, from any surface and any process, exactly once.

Every surface asks this object (`app.steering`). A message is `accepted` once the run's log has it (`SteerAccepted`),
then it is either `committed` (the turn's next model call has it as a user message) or `returned` (it was taken back, or
the run ended first). The accepting process leaves a signal; the run's owner writes the log (`agent.steering`), so this
waits until the log says what became of it. Viewers see the states as `runs.view`'s change `Steered`.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from contextlib import suppress
from typing import Final

from tailrace.agent.context import cleaned
from tailrace.agent.safety.redact import Redactor
from tailrace.agent.session import TURN_KIND
from tailrace.agent.steering import steer_signal, take_back_signal
from tailrace.errors import RunParked, RunSealed, SteerRefused
from tailrace.events import SteerSoFar
from tailrace.events.speakers import SpokenBy, marked_message, spoken_from_elsewhere
from tailrace.events.steers import MAX_PENDING_CHARS, MAX_PENDING_STEERS, input_of
from tailrace.messages import Message, user
from tailrace.ports import ENDED, Journal, Run
from tailrace.runs.recovery import follow
from tailrace.runs.view import RunView

ACCEPT_S: Final = 30.0  # for so long the owner of a run may be silent, or another process may take to go on with it
_LOOKED_AT: Final = 5  # runs of a session, for a message that comes again under its key


class Steering:
    """The messages for the runs of one journal."""

    def __init__(self, journal: Journal, redactor: Redactor, *, accept_s: float = ACCEPT_S) -> None:
        self._journal = journal
        self._redactor = redactor
        self._accept_s = accept_s

    async def steer(
        self,
        run_id: str,
        message: str | Message,
        *,
        by: str = "",
        idempotency_key: str = "",
        spoken_by: SpokenBy | None = None,
    ) -> SteerSoFar:
        """Returns once the log of the run has the message, in whichever process the run is. With a key that this sender
        has used for the run before: the message of that time, with its state now. `spoken_by`: who typed it, in a
        conversation that names its speakers.

        Raises `SteerRefused` (`not_steerable`: the run is no turn of the agent, has ended or is set aside, and nothing
        is kept; `too_many_steers`; `key_used`: for another message; `not_taken`: no process executes the run), and
        `RunNotFound`, `StorageFailed`."""
        run = await self._journal.get(run_id)
        view, seq = await self._read(run_id)
        steer_id = _steer_id(run_id, by, idempotency_key)
        given = input_of(self._as_stored(run, user(message) if isinstance(message, str) else message, by, spoken_by))
        if (known := view.steers.get(steer_id)) is not None:
            if known.accepted.input != given:
                raise SteerRefused("this idempotency key was used for another message", "key_used")
            return known
        if run.new.kind != TURN_KIND:
            raise _not_steerable(run_id, "is no turn of the agent")
        if run.state in ENDED or view.finished is not None:
            raise _not_steerable(run_id, "has ended")
        if run.parked is not None:
            raise _not_steerable(run_id, "is set aside")
        if view.steers.is_full(given):
            raise _too_many(run_id)
        try:
            await self._journal.signal(run_id, steer_signal(steer_id, given, by))
            accepted = await self._next_state(run_id, view, seq, steer_id, "absent")
        except (RunSealed, RunParked) as exc:
            if (known := (await self._read(run_id))[0].steers.get(steer_id)) is not None:
                return known  # an earlier try under this key has come into the log
            await self._forget(run_id, steer_id, by)
            raise _not_steerable(run_id, "has ended" if isinstance(exc, RunSealed) else "is set aside") from exc
        except TimeoutError as exc:
            await self._forget(run_id, steer_id, by)
            known = (await self._read(run_id))[0].steers.get(steer_id)
            if known is not None and known.state != "returned":
                return known  # the owner has written at this moment: refused, it would be sent twice
            raise SteerRefused(f"no process takes messages for run {run_id} now; try again", "not_taken") from exc
        if accepted.reason == "too_many":
            raise _too_many(run_id)
        return SteerSoFar(accepted.accepted)  # it may be committed by now: viewers are told

    async def list(self, run_id: str) -> tuple[SteerSoFar, ...]:
        """All messages for the run with their states, in the order of acceptance. Raises `RunNotFound`."""
        view, _ = await self._read(run_id)
        return view.steers.all

    async def take_back(self, run_id: str, steer_id: str, *, by: str = "") -> SteerSoFar:
        """Returns the message as `returned`: no model call will have it. Raises `SteerRefused` (`steer_committed`: too
        late; `steer_not_found`; `not_taken`), `RunNotFound`."""
        view, seq = await self._read(run_id)
        known = view.steers.get(steer_id)
        if known is None:
            raise SteerRefused(f"run {run_id} has no message {steer_id}", "steer_not_found")
        if known.state == "accepted":
            try:
                with suppress(RunSealed):  # then its log says what became of the message
                    await self._journal.signal(run_id, take_back_signal(steer_id, by))
                known = await self._next_state(run_id, view, seq, steer_id, "accepted")
            except (TimeoutError, RunParked) as exc:
                raise SteerRefused(
                    f"no process executes run {run_id} now; it is taken back later", "not_taken"
                ) from exc
        if known.state == "committed":
            raise SteerRefused("the model has been given this message: it cannot be taken back", "steer_committed")
        return known

    async def steer_session(
        self,
        session: str,
        message: str | Message,
        *,
        by: str = "",
        idempotency_key: str = "",
        spoken_by: SpokenBy | None = None,
        of_requester: str | None = None,
    ) -> tuple[Run, SteerSoFar] | None:
        """`busy: steer`: the message for the session's newest turn, where that is under way; None where the caller
        begins a turn with it instead. `of_requester`: only a turn that this person asked for is steered, since its
        approvals are theirs. A message that comes again under its key is found in the turn that it went to. Raises as
        `steer` does, but for `not_steerable`."""
        newest: Run | None = None
        for run in await self._journal.runs(session=session, kind=TURN_KIND, limit=_LOOKED_AT):
            newest = newest or run
            if idempotency_key:
                if run.new.idempotency_key == idempotency_key:  # it began this turn
                    return None
                view, _ = await self._read(run.id)
                if (known := view.steers.get(_steer_id(run.id, by, idempotency_key))) and known.state != "returned":
                    return run, known
        if newest is None or newest.state in ENDED:
            return None
        if of_requester is not None and newest.new.input.get("requester", "") != of_requester:
            return None
        try:
            given = await self.steer(newest.id, message, by=by, idempotency_key=idempotency_key, spoken_by=spoken_by)
        except SteerRefused as exc:
            if exc.code != "not_steerable":
                raise
            return None
        return None if given.reason in ("run_ended", "run_stopped") else (newest, given)

    def _as_stored(self, run: Run, message: Message, by: str, spoken_by: SpokenBy | None) -> Message:
        """Without secrets; with its speaker, where the question of the run names one."""
        marks = run.new.input.get("spoken_by")
        if isinstance(marks, dict) and marks.get("id"):
            message = marked_message(message, spoken_by or spoken_from_elsewhere(by))
        return self._redactor.redact_message(cleaned(message))

    async def _read(self, run_id: str) -> tuple[RunView, int]:
        """What the log says so far, and the number of its last fact."""
        view, seq = RunView(), 0
        for entry in await self._journal.facts(run_id):
            view.apply(entry)
            seq = entry.seq
        return view, seq

    async def _next_state(self, run_id: str, view: RunView, seq: int, steer_id: str, before: str) -> SteerSoFar:
        """The message once its state is another than `before`. Raises `RunSealed` where the run ends without it,
        `RunParked`, `TimeoutError`."""
        async with asyncio.timeout(self._accept_s):
            async for batch in follow(self._journal, run_id, after=seq):
                for entry in batch:
                    view.apply(entry)
                known = view.steers.get(steer_id)
                if known is not None and known.state != before:
                    return known
        raise RunSealed(f"run {run_id} has ended")

    async def _forget(self, run_id: str, steer_id: str, by: str) -> None:
        """No later owner of the run commits what was refused here."""
        with suppress(RunSealed):
            await self._journal.signal(run_id, take_back_signal(steer_id, by))


def _steer_id(run_id: str, by: str, idempotency_key: str) -> str:
    """The same for the same sender, run and key."""
    if not idempotency_key:
        return f"steer_{secrets.token_hex(12)}"
    return f"steer_{hashlib.sha256(repr((run_id, by, idempotency_key)).encode()).hexdigest()[:24]}"


def _not_steerable(run_id: str, why: str) -> SteerRefused:
    return SteerRefused(f"run {run_id} {why}: it takes no message", "not_steerable")


def _too_many(run_id: str) -> SteerRefused:
    limits = f"{MAX_PENDING_STEERS} messages, of {MAX_PENDING_CHARS // 1_000_000} MB together"
    return SteerRefused(f"run {run_id} takes {limits}; try again after its next model call", "too_many_steers")
