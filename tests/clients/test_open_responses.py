"""The compliance suite of Open Responses, its web socket and compaction cases included, against every dialect and the
agent. `TAILRACE_OPEN_RESPONSES_DIR` names a checkout of the suite; without one the test is skipped."""

from __future__ import annotations

import asyncio
import json
import os
import re
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from clients.installed import client_environment, clients_dir
from server.dialect_api import dialect_server
from server.v1.test_responses_socket import MODELS
from tailrace.testing.provider import call, reply

PATIENCE_S = 300  # of all its cases against one model: twenty seconds on an idle core
SUITE = "src/lib/compliance-tests.ts"
CALLS_A_TOOL = "tool-calling"
# It is written for another runtime, which has web sockets that send headers.
SOCKETS = 'import WebSocket from "ws";\nglobalThis.WebSocket = WebSocket;\n'


def suite_dir() -> Path:
    directory = Path(os.environ.get("TAILRACE_OPEN_RESPONSES_DIR") or "/nowhere")
    if not (directory / SUITE).is_file():
        pytest.skip("TAILRACE_OPEN_RESPONSES_DIR names no checkout of the suite")
    return directory


async def node(home: Path, *command: str | Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=home, env=client_environment(home, {}), stdout=PIPE, stderr=PIPE
    )
    out, errors = await process.communicate()
    return out.decode() or errors.decode()


async def built_suite(home: Path) -> Path:
    """The suite as one file for Node.js."""
    packages, suite = clients_dir() / "node_modules", suite_dir()
    (home / "node_modules").symlink_to(packages)
    (home / "sockets.mjs").write_text(SOCKETS, encoding="utf-8")
    options = ("--bundle", "--platform=node", "--format=esm", "--external:ws")
    alias, inject = f"--alias:zod={packages}/zod/v3", f"--inject:{home}/sockets.mjs"
    built = home / "compliance.mjs"
    entry = suite / "bin/compliance-test.ts"
    said = await node(home, packages / ".bin/esbuild", entry, *options, alias, inject, f"--outfile={built}")
    assert built.is_file(), said
    return built


@pytest.mark.parametrize("model", MODELS)
async def test_every_case_of_the_suite_passes(tmp_path: Path, model: str) -> None:
    suite, failed = await built_suite(tmp_path), dict[str, str]()
    cases = re.findall(r'(?m)^    id: "([\w-]+)"', (suite_dir() / SUITE).read_text(encoding="utf-8"))
    async with asyncio.timeout(PATIENCE_S):
        for case in cases:
            script = [reply(call("get_weather", {"location": "Oslo"}))] if CALLS_A_TOOL in case else []
            async with dialect_server(tmp_path / case, [*script, *[reply("Hello there, Ada.")] * 4]) as server:
                told = await node(
                    tmp_path,
                    *("node", suite, "--json", "--api-key", "unused", "--filter", case),
                    *("--base-url", f"{server.url}/v1", "--model", model),
                )
            summary = json.loads(told)["summary"]
            if (summary["passed"], summary["failed"]) != (1, 0):
                failed[case] = told
    assert len(cases) >= 17
    assert failed == {}
