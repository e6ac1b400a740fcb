"""A process with a DBOS workflow whose one step is a model call. With DIE it kills itself as soon as the step has its
answer, before DBOS knows of it.

python dbos_worker.py DATABASE [DIE]
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from dbos import DBOS, SetWorkflowID

import tailrace


@DBOS.step()
async def ask() -> dict[str, Any]:
    output = await tailrace.llm_call(prompt="Count", idempotency_key=f"{DBOS.workflow_id}/{DBOS.step_id}")
    if sys.argv[2:] == ["DIE"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return output


@DBOS.workflow()
async def count() -> str:
    output = await ask()
    text: str = output["message"]["content"]
    return text


if __name__ == "__main__":
    DBOS(config={"name": "count", "system_database_url": sys.argv[1]})
    DBOS.launch()
    with SetWorkflowID("the-one"):
        handle = DBOS.start_workflow(count)
    sys.stdout.write(f"result: {handle.get_result()}\n")
    DBOS.destroy()
