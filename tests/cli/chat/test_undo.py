"""What a turn has changed is shown, undone and brought back; a plan is carried out when the user agrees."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cli.chat.test_resume import Shown
from scripted_agent import STALLED
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import App, open_app
from tailrace.cli.chat.conversation import Conversation
from tailrace.cli.chat.options import REQUESTER, Options
from tailrace.cli.chat.slash_commands import run_slash_command
from tailrace.config.load import load
from tailrace.events import ApprovalAsked, ToolCallChunk
from tailrace.ports import Run
from tailrace.testing.provider import FaultyProvider, Reply, Scenario, call, reply

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
CHANGE = reply(call("write_file", {"path": "notes.txt", "content": "two\n"}))
LOOK = reply(call("terminal", {"command": "ls"}))


class Terminal(Shown):
    """Runs what is asked to its end."""

    def __init__(self, app: App) -> None:
        super().__init__(app)
        self.app = app
        self.asked: list[TurnSpec] = []
        self.listings: list[str] = []

    async def submit(self, spec: TurnSpec, *, with_question: bool = True) -> None:
        self.asked.append(spec)

    def listing(self, text: str, language: str) -> None:
        assert language == "diff"
        self.listings.append(text)


@asynccontextmanager
async def chatting(
    tmp_path: Path, *script: Reply | Scenario, **config: Any
) -> AsyncIterator[tuple[Terminal, Conversation, Path]]:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    (work / "notes.txt").write_text("one\n")
    async with FaultyProvider(script=[*script, reply("Done.")]) as provider:
        settings = {
            "model": {"provider": "faulty", "name": "ok"},
            "providers": {"faulty": {"dialect": "chat", "base_url": provider.openai_url}},
            **config,
        }
        (home / "config.yaml").write_text(json.dumps(settings), encoding="utf-8")
        async with open_app(load({"TAILRACE_HOME": str(home)}), directory=work) as app:
            yield Terminal(app), Conversation(app, Options()), work


async def asks(conversation: Conversation) -> None:
    run = await conversation.submit(conversation.turn("Change it."))
    await conversation.app.agents.finished(run.id)


@needs_git
async def test_the_changes_of_a_turn_are_shown_undone_and_brought_back(tmp_path: Path) -> None:
    async with chatting(tmp_path, CHANGE) as (terminal, conversation, work):
        await asks(conversation)
        assert (work / "notes.txt").read_text() == "two\n"
        await run_slash_command("/diff", conversation, terminal)
        assert terminal.listings[0].endswith("-one\n+two")
        await run_slash_command("/undo", conversation, terminal)
        assert (work / "notes.txt").read_text() == "one\n"
        assert terminal.notes == ["taken back; /undo again brings it back\nrestored notes.txt"]
        await run_slash_command("/undo", conversation, terminal)
        assert (work / "notes.txt").read_text() == "two\n"
        assert terminal.notes[1:] == ["brought back; /undo again takes it back\nrestored notes.txt"]


async def say_ended(conversation: Conversation, monkeypatch: pytest.MonkeyPatch, *later_s: float | None) -> None:
    """The journal says from now on that the turns, oldest first, have ended so much later than they did, or not."""
    runs = sorted(await conversation.app.journal.runs(session=conversation.session), key=lambda run: run.created_at)
    said: list[Run] = []
    for run, later in zip(runs, later_s, strict=True):
        assert run.finished is not None
        finished = None if later is None else replace(run.finished, at=run.finished.at + later)
        said.append(replace(run, finished=finished))

    async def shifted(**_wanted: object) -> list[Run]:
        return said

    monkeypatch.setattr(conversation.app.journal, "runs", shifted)


def by_hand_in_a_minute(path: Path) -> None:
    """The time of its status stays now: it cannot be set."""
    path.write_text("by hand\n")
    in_a_minute = time.time() + 60
    os.utime(path, (in_a_minute, in_a_minute))


@needs_git
async def test_what_the_user_changed_after_the_answer_is_not_undone_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with chatting(tmp_path, CHANGE) as (terminal, conversation, work):
        await asks(conversation)
        by_hand_in_a_minute(work / "own.txt")
        await say_ended(conversation, monkeypatch, 30)
        await run_slash_command("/undo", conversation, terminal)
        assert terminal.notes == ["error: you may have changed own.txt; /undo all undoes that, too"]
        assert (work / "notes.txt").read_text() == "two\n"
        await run_slash_command("/undo all", conversation, terminal)
        assert not (work / "own.txt").exists()
        assert terminal.notes[1].endswith("restored notes.txt\ndeleted  own.txt")


@needs_git
async def test_what_the_user_changed_before_a_later_turn_is_not_undone_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with chatting(tmp_path, CHANGE, reply("Done."), LOOK) as (terminal, conversation, work):
        await asks(conversation)
        by_hand_in_a_minute(work / "own.txt")
        await asks(conversation)
        await say_ended(conversation, monkeypatch, 30, 120)
        await run_slash_command("/undo", conversation, terminal)
        assert terminal.notes == ["error: you may have changed own.txt; /undo all undoes that, too"]
        assert (work / "notes.txt").read_text() == "two\n"


@needs_git
async def test_a_file_that_came_with_an_old_time_is_not_undone_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with chatting(tmp_path, CHANGE) as (terminal, conversation, work):
        await asks(conversation)
        (work / "own.txt").write_text("by hand\n")
        os.utime(work / "own.txt", (0, 0))
        await say_ended(conversation, monkeypatch, -60)
        await run_slash_command("/undo", conversation, terminal)
        assert "own.txt" in terminal.notes[0]
        assert (work / "own.txt").exists()


@needs_git
@pytest.mark.parametrize("line", ["write", "rm notes.txt"])
async def test_a_turn_without_an_end_is_not_undone_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """It runs elsewhere, or its process was killed: what it changed and what the user did look the same."""
    change = CHANGE if line == "write" else reply(call("terminal", {"command": line}))
    async with chatting(tmp_path, change) as (terminal, conversation, work):
        await conversation.approve_all(on=True)
        await asks(conversation)
        await say_ended(conversation, monkeypatch, None)
        await run_slash_command("/undo", conversation, terminal)
        assert terminal.notes == ["error: you may have changed notes.txt; /undo all undoes that, too"]
        await run_slash_command("/undo all", conversation, terminal)
        assert (work / "notes.txt").read_text() == "one\n"


@needs_git
async def test_a_word_that_undo_does_not_know_undoes_nothing(tmp_path: Path) -> None:
    async with chatting(tmp_path, CHANGE) as (terminal, conversation, work):
        await asks(conversation)
        await run_slash_command("/undo notes.txt", conversation, terminal)
        assert (work / "notes.txt").read_text() == "two\n"
        await run_slash_command("/help", conversation, terminal)
    assert all("/undo all" in note or "/undo [all]" in note for note in terminal.notes)


@needs_git
@pytest.mark.parametrize("name", ["notes.txt", "own.txt"])
async def test_what_the_user_changed_after_an_undo_is_not_lost_when_that_is_undone(tmp_path: Path, name: str) -> None:
    async with chatting(tmp_path, CHANGE) as (terminal, conversation, work):
        await asks(conversation)
        await run_slash_command("/undo", conversation, terminal)
        (work / name).write_text("by hand\n")
        await run_slash_command("/undo", conversation, terminal)
        assert terminal.notes[1:] == [f"error: you may have changed {name}; /undo all undoes that, too"]
        assert (work / name).read_text() == "by hand\n"
        await run_slash_command("/undo all", conversation, terminal)
        assert (work / "notes.txt").read_text() == "two\n"
        assert not (work / "own.txt").exists()


@needs_git
async def test_a_turn_that_only_reads_hides_no_earlier_change(tmp_path: Path) -> None:
    async with chatting(tmp_path, CHANGE, reply("Done."), LOOK) as (terminal, conversation, work):
        await asks(conversation)
        await asks(conversation)
        await run_slash_command("/undo", conversation, terminal)
        assert (work / "notes.txt").read_text() == "one\n"


@needs_git
async def test_another_conversation_undoes_nothing_of_this_one(tmp_path: Path) -> None:
    async with chatting(tmp_path, CHANGE) as (terminal, conversation, work):
        await asks(conversation)
        await run_slash_command("/new", conversation, terminal)
        await run_slash_command("/undo", conversation, terminal)
        assert "nothing to undo" in terminal.notes[-1]
        assert (work / "notes.txt").read_text() == "two\n"


@needs_git
async def test_what_another_conversation_has_undone_stays_undone(tmp_path: Path) -> None:
    async with chatting(tmp_path, CHANGE) as (terminal, conversation, work):
        await asks(conversation)
        for line in ("/undo", "/new", "/undo"):
            await run_slash_command(line, conversation, terminal)
        assert "nothing to undo" in terminal.notes[-1]
        assert (work / "notes.txt").read_text() == "one\n"


async def test_the_key_switches_checkpoints_off(tmp_path: Path) -> None:
    async with chatting(tmp_path, CHANGE, checkpoints={"enabled": False}) as (_, conversation, work):
        await asks(conversation)
        assert (work / "notes.txt").read_text() == "two\n"
        assert not (tmp_path / "home" / "checkpoints").exists()


async def test_a_checkpoint_that_cannot_be_taken_stops_no_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no git there
    async with chatting(tmp_path, CHANGE) as (_, conversation, work):
        await asks(conversation)
        assert (work / "notes.txt").read_text() == "two\n"


async def test_a_plan_is_made_then_carried_out(tmp_path: Path) -> None:
    async with chatting(tmp_path) as (terminal, conversation, _):
        await run_slash_command("/plan go", conversation, terminal)
        assert "error" in terminal.notes[-1]
        await run_slash_command("/plan", conversation, terminal)
        assert conversation.turn("What now?").plan
        await run_slash_command("/plan off", conversation, terminal)
        await run_slash_command("/plan a faster mill", conversation, terminal)
        assert "/plan go carries the plan out" in terminal.notes[-1]
        await run_slash_command("/plan go", conversation, terminal)
    assert [(spec.message.text, spec.plan) for spec in terminal.asked] == [
        ("a faster mill", True),
        ("I agree: carry out the plan.", False),
    ]


async def test_a_turn_that_may_change_files_does_not_go_on_in_a_plan(tmp_path: Path) -> None:
    """It would take the next message, too."""
    async with chatting(tmp_path, STALLED) as (terminal, conversation, _):
        terminal._ends = run = await conversation.app.agents.submit(conversation.turn("Change it."))
        await run_slash_command("/plan on", conversation, terminal)
        assert (await conversation.app.journal.get(run.id)).state == "stopped"
        assert conversation.options.plan


async def test_yolo_is_switched_by_a_word_alone_and_says_how_it_is_without_one(tmp_path: Path) -> None:
    switched: list[bool] = []
    async with chatting(tmp_path) as (terminal, conversation, _):
        for line in ("/yolo", "/yolo on", "/yolo", "/yolo off"):
            await run_slash_command(line, conversation, terminal)
            switched.append(conversation.options.yolo)
    assert switched == [False, True, True, False]
    assert [note[: len("yolo off")].rstrip(":") for note in terminal.notes] == [
        "yolo off",
        "yolo on",
        "yolo on",
        "yolo off",
    ]


async def test_undo_stops_an_answer_only_where_there_is_something_to_undo(tmp_path: Path) -> None:
    async with chatting(tmp_path, STALLED) as (terminal, conversation, _):
        terminal._ends = run = await conversation.app.agents.submit(conversation.turn("Count."))
        await run_slash_command("/undo", conversation, terminal)
        assert "nothing to undo" in terminal.notes[-1]
        assert (await conversation.app.journal.get(run.id)).state == "running"


@pytest.mark.parametrize(("before", "then"), [("on", "off"), ("off", "on")])
async def test_yolo_holds_from_the_next_call_of_the_turn_under_way(tmp_path: Path, before: str, then: str) -> None:
    first, second = (reply(call("terminal", {"command": line})) for line in ("rm -f one; cat gate", "rm -f two"))
    seen: list[str] = []
    async with chatting(tmp_path, first, second) as (terminal, conversation, work):
        os.mkfifo(work / "gate")
        await run_slash_command(f"/yolo {before}", conversation, terminal)
        run = await conversation.submit(conversation.turn("Remove them."))
        async for batch in conversation.app.journal.tail(run.id):
            for entry in batch:
                if isinstance(entry.event, ApprovalAsked):
                    seen.append("asked")
                    await conversation.app.agents.answer(run.id, entry.event.approval_id, "once", by=REQUESTER)
                elif isinstance(entry.event, ToolCallChunk):
                    seen.append("runs")
                    if seen.count("runs") == 1:
                        await run_slash_command(f"/yolo {then}", conversation, terminal)
                        await asyncio.to_thread((work / "gate").write_text, "")
    assert seen == (["runs", "asked", "runs"] if before == "on" else ["asked", "runs", "runs"])
