"""A model call as a step of a DBOS workflow: watched live, never paid for twice.

    .venv/bin/pip install dbos
    .venv/bin/python examples/engines/dbos_workflow.py "Name three rivers."

Kill the process in the middle of the answer and start it again with the same question: DBOS goes on with the workflow,
and the step goes on with the call. Watch it meanwhile: tailrace tail last
"""

from __future__ import annotations

import hashlib
import os
import sys
from typing import Any

from dbos import DBOS, SetWorkflowID

import tailrace


@DBOS.step()
async def ask(question: str) -> dict[str, Any]:
    key = f"{DBOS.workflow_id}/{DBOS.step_id}"  # the same whenever DBOS executes this step
    return await tailrace.llm_call(prompt=question, idempotency_key=key, on_run=lambda run: print(f"run {run}"))


@DBOS.workflow()
async def research(question: str) -> str:
    output = await ask(question)
    text: str = output["message"]["content"]
    return text


def main(question: str) -> None:
    database = os.environ.get("DBOS_DATABASE_URL", "sqlite:///dbos.sqlite")
    DBOS(config={"name": "research", "system_database_url": database})
    DBOS.launch()  # goes on with the workflows of a process that died
    with SetWorkflowID(hashlib.sha256(question.encode()).hexdigest()):  # one workflow per question
        handle = DBOS.start_workflow(research, question)
    print(handle.get_result())
    DBOS.destroy()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "Name three rivers.")
