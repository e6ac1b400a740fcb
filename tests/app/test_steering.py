"""A message for a run, where the run comes to its end while the message is on its way."""

from __future__ import annotations

import pytest

from tailrace.agent.safety.redact import Redactor
from tailrace.agent.session import TURN_KIND
from tailrace.agent.steering import STEER, TAKE_BACK, facts_of
from tailrace.app.steering import Steering
from tailrace.errors import SteerRefused
from tailrace.events import RunFinished, SteerCommitted
from tailrace.events.steers import Steers
from tailrace.journal.memory import MemoryJournal
from tailrace.ports import Lease, NewRun, Signal


class EndingJournal(MemoryJournal):
    """The run ends before the message's signal comes; `taken`: an earlier signal of the same message came in time."""

    lease: Lease
    taken = False

    async def signal(self, run_id: str, signal: Signal) -> Signal:
        if self.taken:
            self.append(self.lease, facts_of(signal, Steers()))
        await self.seal(self.lease, RunFinished("completed"))
        return await super().signal(run_id, signal)


async def begun(journal: EndingJournal) -> str:
    run, lease = await journal.start(NewRun(kind=TURN_KIND), "owner")
    assert lease is not None
    journal.lease = lease
    return run.id


async def test_N164_a_message_that_comes_again_as_the_run_ends_is_the_one_that_the_log_has() -> None:
    journal = EndingJournal()
    journal.taken = True
    steering = Steering(journal, Redactor())
    run_id = await begun(journal)
    given = await steering.steer(run_id, "Hello.", idempotency_key="k")
    assert (given.state, given.reason) == ("returned", "run_ended")
    assert await steering.list(run_id) == (given,)


async def test_a_message_for_a_run_that_ends_first_is_refused_and_not_kept() -> None:
    journal = EndingJournal()
    steering = Steering(journal, Redactor())
    run_id = await begun(journal)
    with pytest.raises(SteerRefused, match="has ended") as refused:
        await steering.steer(run_id, "Hello.", idempotency_key="k")
    assert refused.value.code == "not_steerable"
    assert await steering.list(run_id) == ()


class LateJournal(EndingJournal):
    """The owner commits the message and ends the run in the moment in which the sender gives up."""

    async def signal(self, run_id: str, signal: Signal) -> Signal:
        if signal.name != TAKE_BACK:
            self.given = signal
            return await MemoryJournal.signal(self, run_id, signal)
        self.append(self.lease, [*facts_of(self.given, Steers()), SteerCommitted(self.given.payload["steer_id"])])
        return await super().signal(run_id, signal)


async def test_N164_a_message_that_is_committed_as_its_sender_gives_up_is_not_refused() -> None:
    journal = LateJournal()
    steering = Steering(journal, Redactor(), accept_s=0)
    run_id = await begun(journal)
    given = await steering.steer(run_id, "Hello.")
    assert given.state == "committed"
    assert await steering.list(run_id) == (given,)


async def test_N164_a_message_that_no_process_takes_is_refused_and_taken_back() -> None:
    journal = MemoryJournal()
    run, lease = await journal.start(NewRun(kind=TURN_KIND), "owner")
    assert lease is not None
    with pytest.raises(SteerRefused) as refused:
        await Steering(journal, Redactor(), accept_s=0).steer(run.id, "Hello.")
    assert refused.value.code == "not_taken"
    assert [signal.name for signal in await journal.signals(lease)] == [STEER, TAKE_BACK]
