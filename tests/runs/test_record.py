"""What is recorded is applied; with `debug`, the log shows how a run was decided."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from agent.turns import stage
from flows.stages import sequence, service, step
from tailrace.testing.provider import call, reply


async def test_a_turn_shows_each_fact_and_what_it_made_due(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "tailrace.agent")
    async with stage(tmp_path, reply("I note it.", call("note", {"text": "my secret"}, id="c1")), reply("Done.")) as s:
        await s.play("a private question")
    assert [line.partition(": ")[2] for line in caplog.messages] == [
        "MessageRecorded() -> CallModel()",
        "AttemptStarted(provider=faulty, model=ok) -> CallModel()",
        "UsageRecorded(provider=faulty, model=ok) -> CallModel()",
        "MessageRecorded(stop=tools) -> RunTool(index=0, call=ToolCall(id=c1, name=note))",
        "ToolOutputRecorded(call_id=c1, tool_name=note, ok=True) -> CallModel()",
        "AttemptStarted(provider=faulty, model=ok) -> CallModel()",
        "UsageRecorded(provider=faulty, model=ok) -> CallModel()",
        "MessageRecorded(stop=end) -> Finish(status=completed)",
    ]
    assert "secret" not in caplog.text
    assert "private" not in caplog.text


async def test_an_instance_shows_each_fact_and_what_it_made_due(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "tailrace.flows")
    async with service(tmp_path) as flows:
        run = await flows.start(sequence(step("a", {"x": "my secret"}), step("b")))
        await flows.finished(run.id)
    assert [line.partition(": ")[2] for line in caplog.messages] == [
        "StateChanged(state=running) -> RunStep(block_id=a, number=1)",
        "StepStarted(block_id=a, number=1) -> nothing",
        "StepFinished(block_id=a) -> RunStep(block_id=b, number=1)",
        "StepStarted(block_id=b, number=1) -> nothing",
        "StepFinished(block_id=b) -> nothing",
        "StateChanged(state=completed) -> nothing",
    ]
    assert "secret" not in caplog.text


async def test_without_debug_nothing_is_traced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tailrace")
    async with service(tmp_path) as flows:
        run = await flows.start(sequence(step("a")))
        await flows.finished(run.id)
    assert caplog.messages == []
