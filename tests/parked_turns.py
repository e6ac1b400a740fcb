"""A turn that is set aside while something waits for its end."""

from __future__ import annotations

from tailrace.app import App
from tailrace.events import RunFailure

REASON = "the process died 3 times"


async def park_turn(app: App) -> str:
    """Sets the turn aside that is under way, as the process does that finds it abandoned once too often."""
    (run_id,) = app.agents.running
    await app.agents.release()
    lease = await app.journal.claim(run_id, "another process")
    await app.journal.park(lease, RunFailure("crash_loop", REASON))
    return run_id
