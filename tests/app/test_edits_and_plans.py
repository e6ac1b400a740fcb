"""Changes of files in a turn: asked about with their difference, held back by a plan, told the rules of the project."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import App, open_app
from tailrace.config.load import load
from tailrace.events import ApprovalAsked, Decision, ToolOutputRecorded
from tailrace.messages import user
from tailrace.testing.provider import FaultyProvider, Reply, call, reply

WRITE = {"path": "notes.txt", "content": "one\ntwo\n"}
PATCH = {"path": "notes.txt", "old": "one", "new": "first"}


@asynccontextmanager
async def opened(tmp_path: Path, *script: Reply, **config: Any) -> AsyncIterator[tuple[App, FaultyProvider, Path]]:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir(exist_ok=True)
    async with FaultyProvider(script=[*script, reply("Done.")]) as provider:
        settings = {
            "model": {"provider": "faulty", "name": "ok"},
            "providers": {"faulty": {"dialect": "chat", "base_url": provider.openai_url}},
            **config,
        }
        (home / "config.yaml").write_text(json.dumps(settings), encoding="utf-8")
        async with open_app(load({"TAILRACE_HOME": str(home)}), directory=work) as app:
            yield app, provider, work


async def asked_in(app: App, run_id: str) -> ApprovalAsked:
    async for batch in app.journal.tail(run_id):
        for entry in batch:
            if isinstance(entry.event, ApprovalAsked):
                return entry.event
    raise AssertionError("nothing was asked")


async def outputs(app: App, run_id: str) -> list[ToolOutputRecorded]:
    return [e.event for e in await app.journal.facts(run_id) if isinstance(e.event, ToolOutputRecorded)]


def turn(**fields: Any) -> TurnSpec:
    return TurnSpec(user("Go."), requester="ann", reachable=True, **fields)


ASKS = {"approvals": {"edits": "ask", "timeout_s": 30}}


@pytest.mark.parametrize(("decision", "after"), [("once", "first\n"), ("deny", "one\n")])
async def test_an_edit_is_asked_about_with_its_difference(tmp_path: Path, decision: Decision, after: str) -> None:
    async with opened(tmp_path, reply(call("patch", PATCH)), **ASKS) as (app, _, work):
        (work / "notes.txt").write_text("one\n")
        run = await app.agents.submit(turn())
        asked = await asked_in(app, run.id)
        assert asked.command == "notes.txt (+1 −1)\n-one\n+first"
        assert (work / "notes.txt").read_text() == "one\n"
        await app.agents.answer(run.id, asked.approval_id, decision, by="ann")
        await app.agents.finished(run.id)
        assert (work / "notes.txt").read_text() == after


@pytest.mark.parametrize(("lines", "is_whole"), [(800, True), (4000, False), (9000, False)])
async def test_the_question_shows_the_whole_difference_or_says_that_it_does_not(
    tmp_path: Path, lines: int, is_whole: bool
) -> None:
    content = "".join(f"line {number} of the new text\n" for number in range(lines))
    write = call("write_file", {"path": "notes.txt", "content": content})
    async with opened(tmp_path, reply(write), **ASKS) as (app, _, work):
        (work / "notes.txt").write_text("one\n" * (lines if lines > 5000 else 1))
        run = await app.agents.submit(turn())
        asked = await asked_in(app, run.id)
        assert (f"+line {lines - 1} of the new text" in asked.command) is is_whole
        assert ("not all of the change is shown" in asked.command) is not is_whole
        await app.agents.answer(run.id, asked.approval_id, "deny", by="ann")
        await app.agents.finished(run.id)


async def test_M152_an_approved_edit_of_a_file_that_has_changed_since_is_not_made(tmp_path: Path) -> None:
    async with opened(tmp_path, reply(call("write_file", WRITE)), **ASKS) as (app, _, work):
        (work / "notes.txt").write_text("one\n")
        run = await app.agents.submit(turn())
        asked = await asked_in(app, run.id)
        (work / "notes.txt").write_text("another hand\n")
        await app.agents.answer(run.id, asked.approval_id, "once", by="ann")
        await app.agents.finished(run.id)
        [output] = await outputs(app, run.id)
        assert "the file was changed after the approval" in output.output
        assert (work / "notes.txt").read_text() == "another hand\n"


async def test_an_edit_that_would_fail_asks_nobody(tmp_path: Path) -> None:
    async with opened(tmp_path, reply(call("patch", PATCH)), **ASKS) as (app, _, work):
        (work / "notes.txt").write_text("something else\n")
        run = await app.agents.submit(turn())
        await app.agents.finished(run.id)
        [output] = await outputs(app, run.id)
        assert "does not contain that text" in output.output


@pytest.mark.parametrize("config", [{}, {"approvals": {"edits": "ask", "mode": "yolo"}}])
async def test_without_the_key_and_with_yolo_an_edit_asks_nobody(tmp_path: Path, config: dict[str, Any]) -> None:
    async with opened(tmp_path, reply(call("write_file", WRITE)), **config) as (app, _, work):
        run = await app.agents.submit(turn())
        await app.agents.finished(run.id)
        assert (work / "notes.txt").read_text() == "one\ntwo\n"


@pytest.mark.parametrize("yolo", [False, True])
@pytest.mark.parametrize(
    ("name", "args", "runs"),
    [
        ("write_file", WRITE, False),
        ("patch", PATCH, False),
        ("terminal", {"command": "touch made"}, False),
        ("terminal", {"command": "echo x > made"}, False),
        ("terminal", {"command": "bash -c 'ls; mkdir made'"}, False),
        ("terminal", {"command": "pytest"}, False),
        ("terminal", {"command": "rm notes.txt"}, False),
        ("terminal", {"command": "cat notes.txt | head -3 2>/dev/null"}, True),
        ("read_file", {"path": "notes.txt"}, True),
    ],
)
async def test_a_plan_changes_nothing_whatever_the_model_calls(
    tmp_path: Path, name: str, args: dict[str, Any], runs: bool, yolo: bool
) -> None:
    allowed = {"approvals": {"allow": ["rm *", "touch *"]}}
    async with opened(tmp_path, reply(call(name, args)), **allowed) as (app, provider, work):
        (work / "notes.txt").write_text("one\n")
        run = await app.agents.submit(turn(plan=True, yolo=yolo))
        await app.agents.finished(run.id)
        [output] = await outputs(app, run.id)
        assert output.ok is runs
        assert ("once the user has agreed" in output.output) is not runs
        assert [path.name for path in work.iterdir()] == ["notes.txt"]
        assert (work / "notes.txt").read_text() == "one\n"
        assert "You are in plan mode" in provider.requests[0].json()["messages"][0]["content"]


@pytest.mark.parametrize(("config", "is_read"), [({}, True), ({"agent": {"rules": []}}, False)])
async def test_the_model_is_told_the_rules_of_the_project(
    tmp_path: Path, config: dict[str, Any], is_read: bool
) -> None:
    async with opened(tmp_path, **config) as (app, provider, work):
        (work / "AGENTS.md").write_text("Indent with tabs.")
        run = await app.agents.submit(turn())
        await app.agents.finished(run.id)
        assert ("Indent with tabs." in provider.requests[0].json()["messages"][0]["content"]) is is_read
        assert [path.name for path in app.rules_of(work).files] == ["AGENTS.md"] * is_read
