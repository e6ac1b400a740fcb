"""The tools of a turn: which calls are run and which are answered, side by side, and what is kept of what they give."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agent.turns import Note, NoteArgs, stage
from tailrace.agent.tool_runner import MAX_FILES_BYTES
from tailrace.events import GatewayNotice, ToolCallChunk, ToolCallFinished, ToolOutputRecorded, from_json, to_json
from tailrace.messages import ToolFile, user
from tailrace.ports import Signal, ToolContext, ToolOutcome
from tailrace.testing.clock import driven
from tailrace.testing.provider import call, reply


async def test_B34_arguments_that_are_no_object_are_answered_not_run(tmp_path: Path) -> None:
    script = [reply(call("note", '["a"]')), reply("I see.")]
    async with stage(tmp_path, *script) as s:
        played = await s.play()
    assert s.note.notes == []
    (output,) = played.of(ToolOutputRecorded)
    assert isinstance(output, ToolOutputRecorded)
    assert (output.ok, "not executed" in output.output) == (False, True)
    assert played.finished.status == "completed"


@pytest.mark.parametrize(
    ("made", "said"),
    [(call("nothing", {}), "There is no tool named 'nothing'"), (call("note", {"text": 3}), "Invalid arguments")],
)
async def test_B35_calls_that_make_no_sense_are_answered(tmp_path: Path, made: Any, said: str) -> None:
    async with stage(tmp_path, reply(made), reply("I see.")) as s:
        played = await s.play()
    (output,) = played.of(ToolOutputRecorded)
    assert isinstance(output, ToolOutputRecorded)
    assert said in output.output
    assert not output.ok


async def test_a_stop_while_a_tool_runs_ends_the_tool(tmp_path: Path) -> None:
    began = asyncio.Event()

    class Slow(Note):
        async def execute(self, args: Any, context: Any) -> Any:
            now = asyncio.get_running_loop().time
            worked_until = now() + 0.002
            while now() < worked_until:
                pass
            began.set()
            await asyncio.Event().wait()

    async with stage(tmp_path, reply(call("note", {"text": "a"}), call("note", {"text": "b"})), note=Slow()) as s:
        run_id, runner = await s.start()
        running = asyncio.ensure_future(runner.run(user("go")))
        await began.wait()
        await s.journal.signal(run_id, Signal("stop"))
        finished = await running
        played = await s.played(run_id, finished)
    outputs = [e.output for e in played.events if isinstance(e, ToolOutputRecorded)]
    assert finished.status == "stopped"
    assert "may or may not have taken effect" in outputs[0]
    assert "was not executed" in outputs[1]
    ended = [e for e in played.events if isinstance(e, ToolCallFinished)]
    assert [e.ok for e in ended] == [False]
    assert ended[0].duration >= 0.002  # how long it had run


class _Broken(Note):
    async def execute(self, args: NoteArgs, context: ToolContext) -> ToolOutcome:
        return ToolOutcome("half a pair: \ud83d")


async def test_A18_a_lone_surrogate_from_a_tool_is_replaced(tmp_path: Path) -> None:
    async with stage(tmp_path, reply(call("note", {"text": "a"})), reply("I see."), note=_Broken()) as it:
        played = await it.play()
        asked = it.server.requests[1].json()["messages"]
    assert played.finished.status == "completed"
    assert asked[-1]["content"] == "half a pair: \ufffd"


class _Drawing(Note):
    async def execute(self, args: NoteArgs, context: ToolContext) -> ToolOutcome:
        files = (
            ToolFile("chart.png", "image/png", b"\x89PNG"),
            ToolFile("all.bin", "application/octet-stream", bytes(MAX_FILES_BYTES)),
            ToolFile("notes.txt", "text/plain", b"the key is sk-very-secret-key"),
        )
        return ToolOutcome("drawn", files=files)


async def test_files_of_a_tool_are_on_record_for_the_user(tmp_path: Path) -> None:
    """Without secrets, and within bounds; what does not fit is named to the model. They survive the log's JSON."""
    script = (reply(call("note", {"text": "a"})), reply("Here it is."))
    async with stage(tmp_path, *script, note=_Drawing(), secrets=["sk-very-secret-key"]) as it:
        played = await it.play()
    (fact,) = (event for event in played.events if isinstance(event, ToolOutputRecorded))
    assert fact == ToolOutputRecorded(
        fact.call_id,
        "note",
        f"drawn\n[all.bin: {MAX_FILES_BYTES} bytes, too large to be shown]",
        files=(
            ToolFile("chart.png", "image/png", b"\x89PNG"),
            ToolFile("notes.txt", "text/plain", b"the key is [redacted]"),
        ),
    )
    assert from_json(to_json(fact)) == fact
    (told,) = (event for event in played.events if isinstance(event, GatewayNotice))
    assert (told.kind, told.extra) == ("file_left_out", {"name": "all.bin", "bytes": MAX_FILES_BYTES})
    assert told.text == "all.bin (8.0 MiB) is not shown: the files of one tool call may have 8 MiB."
    finished = next(event for event in played.events if isinstance(event, ToolCallFinished))
    assert played.events.index(told) == played.events.index(finished) + 1, "below the tool's line"
    (asked,) = [message for message in it.server.requests[1].json()["messages"] if message["role"] == "user"][1:]
    assert asked["content"] == [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}]


async def test_parallel_tools_run_side_by_side(tmp_path: Path) -> None:
    both = asyncio.Barrier(2)

    class Meeting(Note):
        async def execute(self, args: Any, context: Any) -> Any:
            await both.wait()
            return await super().execute(args, context)

    script = [reply(call("note", {"text": "a"}), call("note", {"text": "b"})), reply("Done.")]
    async with stage(tmp_path, *script, note=Meeting(parallel=True)) as s:
        played = await s.play()
    assert sorted(s.note.notes) == ["a", "b"]
    assert played.finished.status == "completed"


@driven
async def test_a_call_that_reports_its_work_is_announced_again(tmp_path: Path) -> None:
    class Reporting(Note):
        async def execute(self, args: Any, context: ToolContext) -> ToolOutcome:
            await asyncio.sleep(2)
            context.progress("half of it")
            return ToolOutcome("noted")

    calls = [call("note", {"text": "a"}), call("note", {"text": "b"})]
    async with stage(tmp_path, reply(*calls), reply("Done."), note=Reporting()) as s:
        played = await s.play()
    assert played.of(ToolCallChunk) == [
        ToolCallChunk("note", "a", {"text": "a"}, 0),
        ToolCallChunk("note", "half of it", index=0),
        ToolCallChunk("note", "b", {"text": "b"}, 1),
        ToolCallChunk("note", "half of it", index=1),
    ]
