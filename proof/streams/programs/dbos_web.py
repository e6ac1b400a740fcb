"""A small web server before DBOS workflows that write a model's tokens to the stream "tokens"."""

import json
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

import uvicorn
from dbos import DBOS, SetWorkflowID
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

app = FastAPI()


@app.get("/health")
def health() -> dict[str, bool]:
    return {"ok": True}


@app.get("/chat/{run}/stream")
async def follow(run: str, offset: int = 0) -> StreamingResponse:
    async def events() -> AsyncIterator[str]:
        place = offset
        async for token in DBOS.read_stream_async(run, "tokens", offset=offset):
            place += 1
            yield f"id: {place}\ndata: {json.dumps({'token': token})}\n\n"
        status = await DBOS.get_workflow_status_async(run)
        yield f"event: end\ndata: {json.dumps({'status': status.status})}\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


@app.post("/chat/{run}/stop")
async def stop(run: str) -> dict[str, bool]:
    await DBOS.cancel_workflow_async(run)
    return {"ok": True}


@app.get("/chat/{run}")
async def state(run: str) -> dict[str, Any]:
    status = await DBOS.get_workflow_status_async(run)
    if status is None:
        return {"status": "unknown"}
    return {"status": status.status, "output": status.output if status.status == "SUCCESS" else None}


def serve(workflow: Callable[[str], Any]) -> None:
    """Workflows that a dead process left behind go on as soon as DBOS is launched."""

    @app.post("/chat/{run}")
    async def begin(run: str, request: Request) -> dict[str, str]:
        with SetWorkflowID(run):
            await DBOS.start_workflow_async(workflow, (await request.json())["prompt"])
        return {"id": run}

    DBOS.launch()
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]))
