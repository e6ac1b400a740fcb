"""The same three steps of model calls in a Temporal workflow: each watched live, none paid for twice.

.venv/bin/pip install temporalio
temporal server start-dev
.venv/bin/python examples/engines/temporal_activity.py "tide mills"

Kill the process in the middle of an answer and start it again with the same topic: Temporal notices after HEARTBEAT,
and the next attempt goes on with the call. Watch it meanwhile on the page of `tailrace serve`, or: tailrace tail last
"""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    import tailrace

HEARTBEAT = timedelta(seconds=10)


@activity.defn
async def ask(question: str) -> dict[str, Any]:
    """Attempts of one activity have one key: a second one returns the answer of the first or goes on with it."""
    info = activity.info()
    heart = asyncio.create_task(beat())
    try:
        return await tailrace.llm_call(
            prompt=question,
            idempotency_key=f"{info.workflow_id}/{info.workflow_run_id}/{info.activity_id}",
            stop_on_cancel=lambda: not activity.is_worker_shutdown(),  # the next worker goes on where this one stopped
        )
    finally:
        heart.cancel()


async def beat() -> None:
    """Temporal notices by this that the worker is alive, and tells the activity by it that it is cancelled."""
    while True:
        activity.heartbeat()
        await asyncio.sleep(HEARTBEAT.total_seconds() / 3)


@workflow.defn
class Report:
    @workflow.run
    async def run(self, topic: str) -> str:
        outline = await step(f"Outline a text about {topic}.")
        parts = await asyncio.gather(
            step(f"Write the first part: {outline}"), step(f"Write the second part: {outline}")
        )
        return await step(f"Sum up in one sentence: {' '.join(parts)}")


async def step(question: str) -> str:
    output = await workflow.execute_activity(
        ask, question, start_to_close_timeout=timedelta(minutes=30), heartbeat_timeout=HEARTBEAT
    )
    text: str = output["message"]["content"]
    return text


async def main(topic: str) -> None:
    client = await Client.connect(os.environ.get("TEMPORAL_ADDRESS", "localhost:7233"))
    resumed = WorkflowIDConflictPolicy.USE_EXISTING
    async with Worker(client, task_queue="report", workflows=[Report], activities=[ask]):
        print(
            await client.execute_workflow(
                Report.run, topic, id=f"report-{topic}", task_queue="report", id_conflict_policy=resumed
            )
        )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "tide mills"))
