"""What a run that was stopped has used, although its provider had not counted it yet."""

from __future__ import annotations

from pathlib import Path

from server.http_server import running_server, sse
from server.routes.test_runs import STALLED
from tailrace.testing.provider import reply


async def test_a_stopped_run_counts_what_was_streamed_and_says_that_it_is_an_estimate(tmp_path: Path) -> None:
    async with running_server(tmp_path, STALLED, reply("whole")) as server:
        run = await server.start("How far is it?")
        async with server.client.get(f"{server.url}/runs/{run}/stream") as response:
            async for event in sse(response):
                if event["type"] == "message_chunk":
                    break
        await server.json("POST", f"/runs/{run}/stop", {})
        await server.events(f"/runs/{run}/stream")
        _, stopped = await server.json("GET", f"/runs/{run}")
        _, shown = await server.json("GET", f"/runs/{run}/timeline")
        counted = await server.start("And back?")
        await server.events(f"/runs/{counted}/stream")
        _, whole = await server.json("GET", f"/runs/{counted}")
    usage = stopped["usage"]
    assert (stopped["status"], usage["output_tokens"]) == ("stopped", len(stopped["output"]) // 4)
    assert usage["output_tokens"] > 0
    assert usage["estimated_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    (attempt,) = (item for item in shown["items"] if item["kind"] == "attempt")
    assert (attempt["usage"], shown["usage"]) == (usage, usage)
    assert "estimated_tokens" not in whole["usage"]
