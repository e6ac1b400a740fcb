"""The programs of `examples/` run as they stand, each short enough to be read at once."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from scripted_agent import STALLED, config_for
from tailrace.app import open_app
from tailrace.testing.provider import FaultyProvider, call, reply

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))


@asynccontextmanager
async def program(home: Path, name: str, *args: str) -> AsyncGenerator[asyncio.subprocess.Process, None]:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, str(EXAMPLES / name), *args),
        env={"PATH": os.environ["PATH"], "TAILRACE_HOME": str(home)},
        cwd=home,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()


async def output_of(home: Path, name: str, *args: str, typed: str = "") -> str:
    async with program(home, name, *args) as child:
        out, err = await child.communicate(typed.encode())
    assert child.returncode == 0, err.decode()
    return out.decode()


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_a_program_has_less_than_forty_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 40
    assert f"[{path.name}]({path.name})" in (EXAMPLES / "README.md").read_text(encoding="utf-8")


async def test_the_chat_bot_knows_what_was_said(tmp_path: Path) -> None:
    async with FaultyProvider([reply("Hello Ann."), "status-400", reply("You are Ann.")]) as server:
        config_for(server.url, tmp_path)
        said = await output_of(tmp_path, "chat_bot.py", typed="I am Ann.\n\nWhat?\nWho am I?\n")
    assert "> Hello Ann.\n" in said
    assert said.endswith("You are Ann.\n> ")


async def test_the_extraction_gives_an_object(tmp_path: Path) -> None:
    (tmp_path / "invoice.txt").write_text("Mill & Sons, 12.50 EUR: flour, bran", encoding="utf-8")
    answer = '{"seller": "Mill & Sons", "total": 12.5, "currency": "EUR", "lines": ["flour", "bran"]}'
    async with FaultyProvider([reply(answer)]) as server:
        config_for(server.url, tmp_path)
        said = await output_of(tmp_path, "typed_extraction.py", "invoice.txt")
        assert "12.50 EUR" in str(server.requests[0].json()["messages"][-1]["content"])
    assert said == "Mill & Sons wants 12.50 EUR for flour, bran\n"


async def test_the_writer_asks_its_researchers(tmp_path: Path) -> None:
    script = [
        reply(call("research", {"input": "tide mills"})),
        reply(call("library", {"topic": "tide mills"})),
        reply("They are old."),
        reply("They are very old."),
    ]
    async with FaultyProvider(script) as server:
        config_for(server.url, tmp_path)
        assert await output_of(tmp_path, "research.py", "tide mills") == "They are very old.\n"
        assert "1921" in server.requests[2].json()["messages"][-1]["content"]


@pytest.mark.parametrize(("decision", "done"), [("once", True), ("deny", False)])
async def test_the_order_waits_for_a_person_elsewhere(decision: str, done: bool, tmp_path: Path) -> None:
    script = [reply(call("order", {"what": "flour", "amount_kg": 20})), reply("Well.")]
    async with FaultyProvider(script) as server:
        config = config_for(server.url, tmp_path)
        async with program(tmp_path, "approval_by_phone.py", "Order flour.") as child, open_app(config) as elsewhere:
            assert child.stdout is not None
            assert await child.stdout.readline() == b'waits for an answer: order {"what":"flour","amount_kg":20}\n'
            [run] = await elsewhere.journal.runs()
            [question] = [
                event
                for entry in await elsewhere.journal.facts(run.id)
                if (event := entry.event).__class__.__name__ == "ApprovalAsked"
            ]
            await elsewhere.agents.answer(run.id, question.approval_id, decision, by="python")  # type: ignore[union-attr, arg-type]
            out, _ = await child.communicate()
    assert out.decode().startswith(f"python says: {decision}\n")
    assert ("not done: order" in out.decode()) != done


@pytest.mark.slow
async def test_a_program_that_is_killed_goes_on_with_its_run(tmp_path: Path) -> None:
    async with FaultyProvider([reply(call("look_up", {"topic": "mills"})), STALLED, reply(" six")]) as server:
        config = config_for(server.url, tmp_path)
        command = ("resume_after_kill.py", "report-7", "Write a page.")
        async with program(tmp_path, *command) as first:
            assert first.stdout is not None
            begun = await first.stdout.readline()
            await server.request(1)
            assert await first.stdout.readline() == b"looked up mills\n"
            first.kill()
            await first.wait()
        said = await output_of(tmp_path, *command)
        assert said.startswith(begun.decode())
        assert "looked up" not in said
        async with open_app(config) as app:
            [run] = await app.journal.runs()
        assert run.state == "completed"
        assert len(server.requests) == 3
        assert await output_of(tmp_path, *command) == said  # recorded: nothing is asked
        assert len(server.requests) == 3


async def test_the_batch_stops_at_its_budget_and_pays_for_the_rest_alone(tmp_path: Path) -> None:
    async with FaultyProvider(turns={"ok": [reply("Aare")]}) as server:
        config_for(server.url, tmp_path)
        few = await output_of(tmp_path, "batch.py", "jobs", "120", "1000")
        asked = len(server.requests)
        assert few.startswith(f"{asked} of 120 done")
        assert asked < 120
        everything = await output_of(tmp_path, "batch.py", "jobs", "120", "100000000")
        assert everything.startswith("120 of 120 done")
        assert len(server.requests) == 120
