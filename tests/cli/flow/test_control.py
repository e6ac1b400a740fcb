"""`tailrace flow ls | show | pause | cancel | signal | graph` over a journal that another process may be using."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flows.stages import service, step
from tailrace.cli.main import main
from tailrace.events import StateChanged, StepStarted
from tailrace.flows.definition.definition import parsed
from tailrace.flows.definition.public_ids import public_id
from tailrace.flows.engine.service import FlowService
from tailrace.journal.fold import SEQUENCE
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.ports import NewRun, Run
from tailrace.runs.recovery import follow
from tailrace.system.own_program import typed

GOES = {"name": "goes", "blocks": [step("a", {"x": "hello"}, "do"), step("b", {"x": 2}, "do")]}
WAITS = {"name": "waits", "blocks": [step("w", {"signal": "go"}, "wait_signal")]}
FAILS = {"name": "fails", "blocks": [step("a", {"x": 1}, "do"), step("b", {"x": "{{input.y}}"}, "do")]}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path))
    return tmp_path


def instances(home: Path, *definitions: dict[str, Any], dry_run: bool = False) -> list[Run]:
    """An instance of each, as far as it comes by itself; those that wait are given back."""

    async def run_all() -> list[Run]:
        journal = await SqliteJournal.open(home / "tailrace.db")
        async with service(home, journal) as flows:
            runs = [await _come_to_rest(flows, journal, one, dry_run=dry_run) for one in definitions]
        await journal.close()
        return runs

    return asyncio.run(run_all())


async def _come_to_rest(
    flows: FlowService, journal: SqliteJournal, definition: dict[str, Any], *, dry_run: bool = False
) -> Run:
    run = await flows.start(parsed(definition), dry_run=dry_run)
    async for batch in follow(journal, run.id):
        if any(entry.event == StateChanged("waiting") for entry in batch):
            break
    return run


def test_ls_lists_the_newest_first_with_name_and_state(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flow", "ls"]) == 0
    assert capsys.readouterr().err == f"no instances yet in {home / 'tailrace.db'}\n"
    goes, waits, fails = instances(home, GOES, WAITS, FAILS)
    assert main(["flow", "ls"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["run", "when", "question", "status", "time"]
    assert [(line.split()[0], [line.split()[2], line.split()[-2]]) for line in lines] == [
        (public_id(fails), ["fails", "failed"]),
        (public_id(waits), ["waits", "waiting"]),
        (public_id(goes), ["goes", "completed"]),
    ]
    for option, found in (("--failed", [fails]), ("--unfinished", [waits])):
        assert main(["flow", "ls", option, "--json"]) == 0
        told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [one["id"] for one in told] == list(map(public_id, found))
    assert (told[0]["name"], told[0]["state"]) == ("waits", "waiting")


def test_a_dry_run_is_told_from_an_instance_that_called_somebody(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _real, dry = instances(home, GOES), instances(home, GOES, dry_run=True)[0]
    assert main(["flow", "ls"]) == 0
    _, newest, before = capsys.readouterr().out.splitlines()
    assert " goes (dry run)  completed" in newest
    assert "dry run" not in before
    assert main(["flow", "ls", "--json"]) == 0
    assert [json.loads(line)["dry_run"] for line in capsys.readouterr().out.splitlines()] == [True, False]
    assert main(["flow", "show", public_id(dry)]) == 0
    assert f"{public_id(dry)} goes (dry run): completed" in capsys.readouterr().err


def test_show_has_outputs_steps_and_what_can_be_done(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    goes, _fails = instances(home, GOES, FAILS)
    assert main(["flow", "show", public_id(goes)[:-3]]) == 0
    out, err = capsys.readouterr()
    assert out == '## a\n\n{\n  "x": "hello"\n}\n\n## b\n\n{\n  "x": 2\n}\n'
    assert err.startswith(f"{public_id(goes)} goes: completed, begun ")
    assert [line.split()[:3] for line in err.splitlines()[-3:-1]] == [["a", "finished", "1"], ["b", "finished", "1"]]
    assert main(["flow", "show", "last"]) == 0
    *_, error, then = capsys.readouterr().err.splitlines()
    assert (error, then.strip()) == ("error: b: there is no input.y", f"{typed('flow run FILE --input y=…')} gives it")
    assert main(["flow", "show", goes.id, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["id"], told["state"], told["outputs"]) == (
        public_id(goes),
        "completed",
        {"a": {"x": "hello"}, "b": {"x": 2}},
    )
    assert main(["flow", "show", "nobody"]) == 1
    assert capsys.readouterr().err == "error: there is no instance nobody\n"


def test_an_instance_whose_process_died_is_called_the_same_everywhere(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def die() -> Run:
        journal = await SqliteJournal.open(home / "tailrace.db")
        definition = msgspec.to_builtins(parsed(GOES))
        run = await journal.create(NewRun(SEQUENCE, input={"definition": definition, "input": {}}))
        lease = await journal.claim(run.id, "host:1:dead", lease_s=-1.0)
        journal.append(lease, [StateChanged("running"), StepStarted("a", 1, time.time())])
        await journal.commit(lease)
        await journal.close()
        return run

    run = asyncio.run(die())
    assert main(["flow", "ls"]) == 0
    assert " orphaned " in capsys.readouterr().out
    assert main(["flow", "show", "last"]) == 0
    shown = capsys.readouterr().err
    assert "goes: orphaned, begun " in shown
    assert "executed by" not in shown
    rows = [line.split()[:2] for line in shown.splitlines()]
    assert ["a", "interrupted"] in rows
    assert ["total", "orphaned"] in rows
    assert f"its process has died: {typed(f'flow resume {public_id(run)}')} goes on with it" in shown


def test_show_says_which_signal_is_waited_for(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (waits,) = instances(home, WAITS)
    assert main(["flow", "show", "last"]) == 0
    assert f"\nit waits for {typed(f'flow signal {public_id(waits)} go')}\n" in capsys.readouterr().err


def test_an_instance_that_waits_without_a_process_says_so(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def die() -> None:
        journal = await SqliteJournal.open(home / "tailrace.db")
        await journal.claim(waits.id, "host:1:dead", lease_s=-1.0)
        await journal.close()

    (waits,) = instances(home, WAITS)
    told = f"no process executes it now: {typed(f'flow resume {public_id(waits)}')} goes on with it\n"
    assert main(["flow", "show", "last"]) == 0
    assert capsys.readouterr().err.endswith(f" go\n{told}")
    asyncio.run(die())
    assert main(["flow", "show", "last"]) == 0
    shown = capsys.readouterr().err
    assert "executed by" not in shown
    assert shown.endswith(f" go\n{told}")
    assert main(["flow", "signal", "last", "go"]) == 0
    assert capsys.readouterr().err == f"{public_id(waits)}: signalled go\n{told}"


def test_a_signal_that_no_step_waits_for_is_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    instances(home, WAITS)
    assert main(["flow", "signal", "last", "goo"]) == 1
    told = "error: there is no step that waits for the signal 'goo'; did you mean go?\n"
    assert capsys.readouterr().err == told


def test_cancel_ends_an_instance_once(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (waits,) = instances(home, WAITS)
    name = public_id(waits)
    assert main(["flow", "cancel", "last"]) == 0
    assert capsys.readouterr().err == f"{name}: cancelled\n"
    for command in (["cancel", name], ["pause", name], ["signal", name, "go"]):
        assert main(["flow", *command]) == 1
        assert capsys.readouterr().err.startswith(f"error: instance {name} has ended: ")


def test_signals_reach_the_process_that_executes_the_instance(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def run_beside() -> tuple[str, Any]:
        journal = await SqliteJournal.open(home / "tailrace.db")
        async with service(home, journal) as flows:
            run = await _come_to_rest(flows, journal, WAITS)
            name = public_id(run)
            assert await asyncio.to_thread(main, ["flow", "pause", "last"]) == 0
            assert capsys.readouterr().err == f"{name}: paused; {typed(f'flow resume {name}')} goes on\n"
            assert await asyncio.to_thread(main, ["flow", "ls"]) == 0
            assert " paused " in capsys.readouterr().out
            await flows.signal(name, "resume")
            assert await asyncio.to_thread(main, ["flow", "signal", name, "go", "--payload", '{"n": 7}']) == 0
            await flows.finished(run.id)
            outputs = (await flows.instance(run.id)).outputs
        await journal.close()
        return name, outputs

    name, outputs = asyncio.run(run_beside())
    assert outputs["w"]["payload"] == {"n": 7}
    assert capsys.readouterr().err == f"{name}: signalled go\n"


@pytest.mark.parametrize("payload", ["3", "[1]", "{n: 7}"])
def test_a_payload_is_a_json_object(payload: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    instances(home, WAITS)
    assert main(["flow", "signal", "last", "go", "--payload", payload]) == 1
    assert capsys.readouterr().err.startswith("error: --payload: expected a JSON object")


def test_graph_draws_a_file_or_an_instance(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "f.json").write_text(json.dumps(GOES))
    assert main(["flow", "graph", str(home / "f.json")]) == 0
    assert capsys.readouterr().out.startswith("goes\n")
    instances(home, FAILS)
    assert main(["flow", "graph", "last", "--format", "tree"]) == 0
    assert capsys.readouterr().out == "fails\n├─ ✓ a  do\n└─ ✗ b  do\n"
    assert main(["flow", "graph", "last", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["states"] == {"a": "finished", "b": "failed"}
    assert main(["flow", "graph", str(home / "none.yaml")]) == 1
    assert "cannot be read" in capsys.readouterr().err
