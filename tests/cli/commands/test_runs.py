"""`tailrace runs | show | tail | stop`."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path

import msgspec
import pytest

from tailrace.cli.main import main
from tailrace.events import (
    MessageChunk,
    MessageRecorded,
    MessageStop,
    ReasoningChunk,
    RunFailure,
    RunFinished,
    RunStatus,
    StateChanged,
)
from tailrace.journal.fold import SEQUENCE
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.messages import File, Image, Message, Text
from tailrace.ports import NewRun, Run
from tailrace.testing.conformance.sample_runs import started, written


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path))
    return tmp_path


async def a_run(home: Path, status: RunStatus | None = "completed", text: str = "Hello") -> Run:
    journal = await SqliteJournal.open(home / "tailrace.db")
    run, lease = await started(journal)
    await written(journal, lease, [ReasoningChunk("secret thought"), MessageChunk(text), MessageStop(final=True)])
    if status is None:
        await journal.release(lease)
    else:
        error = RunFailure("cut", "the provider hung up") if status == "failed" else None
        await journal.seal(lease, RunFinished(status, text, error=error))
    run = await journal.get(run.id)
    await journal.close()
    return run


def test_runs_lists_the_newest_first(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    old, new = asyncio.run(a_run(home)), asyncio.run(a_run(home, None))
    assert main(["runs"]) == 0
    header, *lines = capfd.readouterr().out.splitlines()
    assert header.split() == ["run", "when", "question", "model", "status", "time"]
    assert [line.split()[0] for line in lines] == [new.id, old.id]
    assert ["pending" in lines[0], "completed" in lines[1]] == [True, True]
    assert main(["runs", "--unfinished", "--json"]) == 0
    assert [json.loads(line)["id"] for line in capfd.readouterr().out.splitlines()] == [new.id]


def test_a_paused_instance_is_shown_as_paused(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def paused() -> Run:
        journal = await SqliteJournal.open(home / "tailrace.db")
        run, lease = await journal.start(NewRun(SEQUENCE, session="instances/mill"), "me")
        assert lease is not None
        await written(journal, lease, [StateChanged("running"), StateChanged("paused")])
        await journal.close()
        return run

    name = asyncio.run(paused()).id.replace("run_", "ins_")
    assert main(["runs"]) == 0
    assert [word for word in capfd.readouterr().out.split() if word in (name, "paused")] == [name, "paused"]
    assert main(["show", name]) == 0
    assert capfd.readouterr().out.startswith(f"{name}  paused")


def test_runs_says_why_one_failed_that_said_nothing(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    asyncio.run(a_run(home, "failed", ""))
    assert main(["runs"]) == 0
    assert "the provider hung up" in capfd.readouterr().out


@pytest.mark.parametrize("command", [["runs"], ["runs", "--json"], ["show", "last"], ["tail", "x"], ["stop", "x"]])
def test_looking_at_runs_creates_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], command: list[str]
) -> None:
    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path / "nowhere" / "x"))
    assert main(command) == (0 if command[0] == "runs" else 1)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert shown.err.endswith(f"no runs yet in {tmp_path / 'nowhere' / 'x' / 'tailrace.db'}\n")
    assert not (tmp_path / "nowhere").exists()


def test_a_list_without_a_match_says_so(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    asyncio.run(a_run(home))
    assert main(["runs", "--unfinished"]) == 0
    assert capfd.readouterr() == ("", f"no unfinished runs in {home / 'tailrace.db'}\n")
    assert main(["runs", "--session", "other"]) == 0
    assert capfd.readouterr() == ("", f"no runs yet of session other in {home / 'tailrace.db'}\n")


def test_every_command_takes_the_beginning_of_an_id_and_last(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = asyncio.run(a_run(home))
    for word in (run.id, run.id[:-4], run.id[4:-4], "last"):
        assert [main([command, word]) for command in ("show", "tail", "stop")] == [0, 0, 0]
    other = asyncio.run(a_run(home))
    capfd.readouterr()
    assert main(["tail", "run_"]) == 1
    assert capfd.readouterr().err == (
        f"error: several runs begin with 'run_': {other.id}, {run.id}; write more of the id\n"
    )


def test_show_tells_what_happened_and_when(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = asyncio.run(a_run(home, "failed"))
    assert main(["show", "last"]) == 0
    out = capfd.readouterr().out
    assert out.startswith(f"{run.id}  failed  ")
    assert re.search(r"^3  \+\d\.\d\d  text +Hello$", out, re.MULTILINE)
    assert re.search(r"^5  \+\d\.\d\d  failed\b.*\n +│ the provider hung up$", out, re.MULTILINE)
    assert main(["show", run.id, "--json"]) == 0
    out = capfd.readouterr().out
    state = json.loads(out)
    assert (state["type"], state["seq"], state["status"], state["output"]) == ("snapshot", 5, "failed", "Hello")
    assert "secret thought" not in out
    assert main(["show", run.id, "--json", "--timeline"]) == 0
    out = capfd.readouterr().out
    assert [item["kind"] for item in json.loads(out)["items"]] == ["reasoning", "text", "finish"]
    assert "secret thought" not in out


def test_show_names_the_images_of_the_question_and_what_helps(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    asked = Message("user", (Text("What is this?"), Image(data="aGk=" * 4000, media_type="image/png")))
    photo = Image(url="data:image/jpeg;base64," + "aGk=" * 4000)  # as the page and OpenAI's clients send it
    bill = File(data="aGk=", media_type="application/pdf", name="bill.pdf")

    async def failed(status: int) -> None:
        journal = await SqliteJournal.open(home / "tailrace.db")
        new = NewRun("agent", model="openai/gpt-5", input={"message": msgspec.to_builtins(asked)})
        _, lease = await journal.start(new, "me")
        assert lease is not None
        await written(journal, lease, [MessageRecorded(Message("user", (*asked.parts, photo, bill)))])
        await journal.seal(lease, RunFinished("failed", error=RunFailure("x", "openai: no", status=status)))
        await journal.close()

    for status, advice in (
        (401, "the key in OPENAI_API_KEY was refused"),
        (500, "or its model does not take the image"),
    ):
        asyncio.run(failed(status))
        assert main(["show", "last"]) == 0
        lines = [line.strip() for line in capfd.readouterr().out.splitlines()]
        at = next(number for number, line in enumerate(lines) if line.endswith("What is this?"))
        images = ["│ image: image/png, 12 kB", "│ image: image/jpeg, 12 kB"]
        assert lines[at + 1 : at + 4] == [*images, "│ file: bill.pdf"]
        assert lines[-2] == "│ openai: no"
        assert advice in lines[-1]


def test_show_writes_the_run_as_one_file(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = asyncio.run(a_run(home))
    assert main(["show", "last", "--html", str(home / "run.html")]) == 0
    assert capfd.readouterr() == ("", f"{run.id} as one file: {home / 'run.html'}\n")
    page = (home / "run.html").read_text()
    assert run.id in page
    assert "secret thought" not in page
    assert main(["show", "last", "--html", str(home / "no" / "run.html")]) == 1
    assert capfd.readouterr().err.endswith("run.html cannot be written: No such file or directory\n")


@pytest.mark.parametrize(("status", "code"), [("completed", 0), ("failed", 1), ("incomplete", 3)])
def test_tail_ends_with_the_run_and_its_exit_code(
    home: Path, capfd: pytest.CaptureFixture[str], status: RunStatus, code: int
) -> None:
    run = asyncio.run(a_run(home, status))
    assert main(["tail", run.id]) == code
    assert capfd.readouterr().out.startswith("Hello\n")
    assert main(["tail", run.id, "--json", "--after", "2"]) == code
    entries = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [(entry["seq"], entry["type"]) for entry in entries] == [
        (3, "message_chunk"),
        (4, "message_stop"),
        (5, "run_finished"),
    ]


def test_J122_what_a_model_wrote_moves_no_cursor(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = asyncio.run(a_run(home, text="a\x1b]52;c;eA==\x07b"))
    for command in ("tail", "show"):
        main([command, run.id])
        out = capfd.readouterr().out
        assert "\x1b" not in out
        assert "\x07" not in out


@pytest.mark.parametrize(("user", "by"), [("ada", "ada"), ("", "cli")])
def test_stop_ends_a_run_nobody_executes(
    user: str, by: str, home: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USER", user)
    run = asyncio.run(a_run(home, None))
    assert main(["stop", run.id]) == 0
    assert capfd.readouterr().out == f"{run.id}: stopped\n"
    assert main(["stop", run.id]) == 0
    assert capfd.readouterr().out == f"{run.id}: stopped\n"
    assert main(["tail", run.id, "--json"]) == 3
    assert json.loads(capfd.readouterr().out.splitlines()[-1])["error"]["by"] == by


def test_I102_tail_ends_at_a_run_that_is_set_aside(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def parked_run() -> Run:
        journal = await SqliteJournal.open(home / "tailrace.db")
        run, lease = await started(journal)
        await written(journal, lease, [MessageChunk("I will")])
        await journal.park(lease, RunFailure("crash_loop", "it kept crashing"))
        await journal.close()
        return run

    run = asyncio.run(parked_run())
    assert main(["tail", run.id]) == 1
    shown = capfd.readouterr()
    assert shown.out.startswith("I will")
    assert shown.err.endswith(f"error: run {run.id} is parked: it kept crashing\n")


def test_an_unknown_run_is_said(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    asyncio.run(a_run(home))
    assert main(["show", "run_x"]) == 1
    assert capfd.readouterr().err == "error: there is no run run_x\n"
    assert main(["tail", "run_x"]) == 1


async def test_tail_follows_a_run_that_another_process_executes(home: Path) -> None:
    journal = await SqliteJournal.open(home / "tailrace.db")
    run, lease = await started(journal)
    follower = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tailrace", "tail", run.id, "--json", stdout=asyncio.subprocess.PIPE
    )
    assert follower.stdout is not None
    assert json.loads(await follower.stdout.readline())["type"] == "run_started"
    for text in ("live ", "and ", "direct"):
        await written(journal, lease, [MessageChunk(text)])
        assert json.loads(await follower.stdout.readline())["text"] == text  # shown while the run goes on
    await journal.seal(lease, RunFinished("completed", "live and direct"))
    assert json.loads(await follower.stdout.readline())["type"] == "run_finished"
    assert await follower.wait() == 0
    follower._transport.close()  # type: ignore[attr-defined]
    await journal.close()
