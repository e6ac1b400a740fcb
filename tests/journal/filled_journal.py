"""A journal with a run in each state that a run can be in, for tests that take a journal elsewhere."""

from __future__ import annotations

from tailrace.events import MessageChunk, RunFailure, RunFinished, StepFinished, ToolOutputRecorded
from tailrace.journal.fold import SEQUENCE, outputs_text
from tailrace.ports import Journal, Lease, NewRun, Signal
from tailrace.testing.conformance.sample_runs import started, written


async def fill(journal: Journal) -> dict[str, str]:
    """Runs of every kind of state, by what they are."""
    runs: dict[str, str] = {}

    async def start(name: str, new: NewRun) -> Lease:
        run, lease = await started(journal, new)
        runs[name] = run.id
        return lease

    for name in ("ended", "compacted"):
        lease = await start(name, NewRun("agent", {"text": name}, session="s", idempotency_key=name))
        await written(journal, lease, [MessageChunk("a "), MessageChunk("“b”\n")], attempt=1)
        await written(journal, lease, [MessageChunk("c")], attempt=2)
        await journal.seal(lease, RunFinished("completed", (await journal.snapshot(lease.run_id)).event.output))  # type: ignore[union-attr]
    await journal.compact(runs["compacted"])
    outputs = {"x": {"text": "long " * 50}, "y": 2}
    lease = await start("sequence", NewRun(SEQUENCE, {"blocks": []}))
    await written(journal, lease, [StepFinished(name, output) for name, output in outputs.items()])
    await journal.seal(lease, RunFinished("completed", outputs_text(outputs)))
    lease = await start("parked", NewRun("agent"))
    await journal.park(lease, RunFailure("crash_loop", "it kept dying"))
    for name in ("unfinished", "of a dead process"):
        lease = await start(name, NewRun("agent", {"text": name}, session="t"))
        await written(journal, lease, [MessageChunk("so far"), ToolOutputRecorded("call", "terminal", "done")])
        await journal.signal(runs[name], Signal("stop", {"why": name}, by="me"))
    for number in range(3):
        assert await journal.swap_value("chats", f"k{number}", None, b"v%d\0" % number)
    await journal.add_to_counters({"n": 2.5})
    assert await journal.swap_value("processes.heartbeats", "gone", None, b"{}")
    return runs
