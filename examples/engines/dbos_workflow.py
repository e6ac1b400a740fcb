"""Three steps of model calls in a DBOS workflow: each watched live, none paid for twice.

    .venv/bin/pip install dbos
    export DBOS_DATABASE_URL=postgresql://user@host/dbos    # or nothing: SQLite in this directory
    .venv/bin/python examples/engines/dbos_workflow.py "tide mills"

Kill the process in the middle of an answer and start it again with the same topic: DBOS goes on with the workflow, and
the step goes on with the call. Watch it meanwhile on the page of `tailrace serve`, or: tailrace tail last
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys

from dbos import DBOS, SetWorkflowID

import tailrace


@DBOS.step()
async def ask(question: str) -> str:
    key = f"{DBOS.workflow_id}/{DBOS.step_id}"  # the same whenever DBOS executes this step
    output = await tailrace.llm_call(prompt=question, idempotency_key=key, on_run=lambda run: print(f"run {run}"))
    text: str = output["message"]["content"]
    return text


@DBOS.workflow()
async def report(topic: str) -> str:
    outline = await ask(f"Outline a text about {topic}.")
    parts = await asyncio.gather(ask(f"Write the first part: {outline}"), ask(f"Write the second part: {outline}"))
    return await ask(f"Sum up in one sentence: {' '.join(parts)}")


def main(topic: str) -> None:
    database = os.environ.get("DBOS_DATABASE_URL", "sqlite:///dbos.sqlite")
    DBOS(config={"name": "report", "system_database_url": database})
    DBOS.launch()  # goes on with the workflows of a process that died
    with SetWorkflowID(hashlib.sha256(topic.encode()).hexdigest()):  # one workflow per topic
        handle = DBOS.start_workflow(report, topic)
    print(handle.get_result())
    DBOS.destroy()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "tide mills")
