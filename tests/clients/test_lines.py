"""The programs whose lines the manual counts, ours and those of other libraries: each runs as it stands."""

from __future__ import annotations

import asyncio
import os
import sys
import sysconfig
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from clients.installed import LOOPBACK_ONLY, PROGRAMS, clients_dir
from scripted_agent import STALLED
from tailrace.app import open_app
from tailrace.config.load import load
from tailrace.events import MessageChunk
from tailrace.testing.provider import FaultyProvider, Reply, call, reply

LINES = PROGRAMS / "lines"
SAID = {
    "streamed_tool.py": "Take an umbrella.",
    "blocking.py": "Aare",
    "typed.py": "288",
    "once_per_key.py": "Aare",
    "three_steps.py": "All of it.",
}
SCRIPTS: dict[str, list[Reply]] = {
    "streamed_tool.py": [reply(call("lookup", {"city": "Bergen"})), reply("Take an umbrella.")],
    "blocking.py": [reply("Aare")],
    "typed.py": [reply('{"name": "Aare", "length_km": 288}')],
    "once_per_key.py": [reply("Aare")],
    "three_steps.py": [reply("An outline."), reply("One."), reply("Two."), reply("All of it.")],
}
RUN_BY_US = ("tailrace", "dbos")  # the others with the clients' Python
# Our environment has DBOS, theirs has pydantic-ai: what theirs lacks comes from ours.
WITH_OURS = """
import runpy, sys
sys.path.append({ours!r})
runpy.run_path(sys.argv[1], run_name="__main__")
"""


@asynccontextmanager
async def started(
    program: Path, home: Path, server: FaultyProvider
) -> AsyncGenerator[asyncio.subprocess.Process, None]:
    config = f"providers: {{openai: {{base_url: '{server.openai_url}', backoff_s: 0.001}}}}\n"
    (home / "config.yaml").write_text(config, encoding="utf-8")
    python = sys.executable if program.parent.name in RUN_BY_US else clients_dir() / "venv/bin/python"
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TAILRACE_HOME": str(home),
        "OPENAI_API_KEY": "any",
        "OPENAI_BASE_URL": server.openai_url,
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        **LOOPBACK_ONLY,
    }
    command: tuple[str | Path, ...] = (python, program)
    if program.parts[-2:] == ("pydantic_ai", "once_per_key.py"):
        command = (python, "-c", WITH_OURS.format(ours=sysconfig.get_path("purelib")), program)
    child = await asyncio.create_subprocess_exec(*command, cwd=home, env=variables, stdout=PIPE, stderr=PIPE)
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()


async def said_by(program: Path, home: Path, server: FaultyProvider) -> str:
    async with started(program, home, server) as child:
        out, err = await child.communicate()
    assert child.returncode == 0, err.decode()
    return out.decode()


@pytest.mark.parametrize(
    "program",
    [path for path in sorted(LINES.glob("*/*.py")) if path.name in SAID],
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
async def test_a_program_that_is_counted_runs(program: Path, tmp_path: Path) -> None:
    script = SCRIPTS[program.name]
    async with FaultyProvider(script) as server:
        assert (await said_by(program, tmp_path, server)).strip().endswith(SAID[program.name])
        assert len(server.requests) == len(script)
        if program.name == "once_per_key.py":
            assert (await said_by(program, tmp_path, server)).strip() == "Aare"
            assert len(server.requests) == 1


async def test_our_three_steps_go_on_where_they_were_killed(tmp_path: Path) -> None:
    """In the middle of the two answers that come side by side, which another process watches."""
    script: list[Any] = [reply("An outline."), STALLED, STALLED, *[reply("A part.")] * 2, reply("All of it.")]
    async with FaultyProvider(script) as server:
        program = LINES / "tailrace/three_steps.py"
        async with started(program, tmp_path, server) as first:
            await server.request(2)
            async with open_app(load({"OPENAI_API_KEY": "any"}, tmp_path)) as elsewhere:
                *middle, _ = await elsewhere.journal.runs()
                for run in middle:
                    async for batch in elsewhere.journal.tail(run.id):
                        if any(isinstance(entry.event, MessageChunk) for entry in batch):
                            break
            first.kill()
            await first.wait()
        assert (await said_by(program, tmp_path, server)).strip() == "All of it."
        async with open_app(load({"OPENAI_API_KEY": "any"}, tmp_path)) as app:
            runs = await app.journal.runs()
        assert [run.state for run in runs] == ["completed"] * 4
        assert {run.id for run in middle} == {run.id for run in runs[1:3]}
        asked = [str(request.json()["input"]) for request in server.requests if request.method == "POST"]
        assert sum("Outline a text" in each and "Write the" not in each for each in asked) == 1
