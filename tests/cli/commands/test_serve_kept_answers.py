"""`tailrace serve` that is stopped while its provider cannot be reached: an answer that the provider keeps is left."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from cli.commands.serve_process import Process, served
from server.http_server import sse
from tailrace.testing.provider import FaultyProvider

PATIENCE_S = 60.0
CONFIG = """
model: {{provider: faulty, name: ok}}
providers:
  faulty: {{dialect: responses, base_url: '{url}', reattach: true, backoff_s: 0.001, max_attempts: {attempts}}}
store: {{url: 'sqlite:///runs.db'}}
server: {{drain_s: 120}}
"""
WHOLE = "The mill wheel turns, and the tailrace carries the water on. Nothing is lost on the way."


async def until_stopping(process: Process) -> None:
    assert process.child.stderr is not None
    async for line in process.child.stderr:
        if b"stopping" in line:
            return


@pytest.mark.parametrize("attempts", [1, 2])
async def test_the_next_process_reads_on_what_the_provider_keeps(tmp_path: Path, attempts: int) -> None:
    async with asyncio.timeout(PATIENCE_S), FaultyProvider(script=["ok+stall@60%"]) as provider:
        (tmp_path / "config.yaml").write_text(CONFIG.format(url=provider.openai_url, attempts=attempts))
        async with served(tmp_path) as process:
            run = await process.start()
            async with process.client.get(f"{process.url}/runs/{run}/stream") as response:
                async for event in sse(response):
                    if event["type"] == "message_chunk":
                        break
                process.child.send_signal(signal.SIGTERM)
                await until_stopping(process)
                await provider.close()
            code, log = await process.ended()
        assert (code, f"run {run} was cut" in log) == (0, True), log
        port = int(provider.url.rpartition(":")[2])
        async with FaultyProvider(port=port) as restarted:
            restarted.kept = provider.kept
            async with served(tmp_path) as process:
                async with process.client.get(f"{process.url}/runs/{run}/stream") as response:
                    events = [event async for event in sse(response)]
                await process.stop()
            assert {request.method for request in restarted.requests} == {"GET"}, "nothing is asked for, or cancelled"
    shown = "".join(event["text"] for event in events if event["type"] == "message_chunk")
    assert (events[-1]["status"], events[-1]["output"], shown) == ("completed", WHOLE, WHOLE)
    assert [event["type"] for event in events].count("attempt_started") == 1
    assert not [event for event in events if event["type"] == "gateway_notice"]
    assert len([event for event in events if event["type"] == "usage_recorded"]) == 1
