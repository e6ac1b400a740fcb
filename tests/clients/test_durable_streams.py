"""The Durable Streams protocol's public conformance suite against the read side that runs have, and its own client as
a viewer of a run, under keys and scopes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from clients.durable_streams_writer import writer_before
from clients.installed import PROGRAMS, client_environment, clients_dir
from server.http_server import running_server
from tailrace.server.routes.streams import durable_stream
from tailrace.testing.provider import Scenario, reply

# Of 418 tests these ask something of a reader. The others ask the writer: 262 of `PUT`, `POST` and `DELETE`, their
# lifetimes, producers, forks and webhooks, and 16 of payloads other than JSON, which a run has none of.
ASKED = (
    r"Read Operations",
    r"Long-Poll ",
    r"HEAD Metadata should",
    r"Offset Validation and Resumability",
    r"Caching and ETag",
    r"Read-Your-Writes Consistency",
    r"HTTP Protocol should (return correct headers on GET|return empty body|read from offset)",
    r"Browser Security Headers .* (GET|HEAD|SSE|long-poll|error) responses",
    r"Protocol Edge Cases should (preserve data|reject empty offset|reject multiple|ignore unknown)",
    r"should handle chunk-size pagination",
    r"JSON Mode should (wrap single|concatenate multiple|work with client)",
    r"(Byte-Exactness|Operation Sequence|Immutability|Offset Validation) Propert",
    r"mixed readers and writers",
    r"State Hash Verification",
    r"Stream Closure (HEAD|Read Closed|Long-poll|SSE)",
    r"offset-now-on-closed-stream",
    r"SSE Mode should (return text|accept live|require|stream data|send|generate|wrap|have correct|support reconn)",
    r"SSE Mode should handle (cursor|SSE for empty|JSON payloads)",
    r"JSON SSE catch-up",
)
ASKED_TESTS = 98
KEYS = "server: {keys: [{name: all, key_env: ALL}, {name: models, key_env: MODELS, scopes: [models]}]}"
WORDS = " ".join(f"word{number}" for number in range(300))


async def program(home: Path, *command: str, fed: bytes = b"", **variables: str) -> str:
    (home / "node_modules").symlink_to(clients_dir() / "node_modules")
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=home,
        env=client_environment(home, variables),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate(fed)
    return said.decode()


@pytest.mark.timeout(600)
async def test_the_conformance_suite_passes_for_what_a_reader_can_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable_stream, "LONG_POLL_S", 2.0)  # the suite waits four times to the end of it
    home = tmp_path / "suite"
    home.mkdir()
    (home / "conformance.test.mjs").write_bytes((PROGRAMS / "conformance.test.mjs").read_bytes())
    options = ("--testTimeout=60000", "--reporter=json", "--outputFile=out.json")
    async with running_server(tmp_path) as server, writer_before(server) as url:
        command = ("node", "node_modules/vitest/vitest.mjs", "run", "conformance.test.mjs", *options)
        said = await program(home, *command, "-t", "|".join(ASKED), STREAMS_URL=url)
    results = json.loads((home / "out.json").read_text(encoding="utf-8"))
    tests = results["testResults"][0]["assertionResults"]
    asked = [test for test in tests if test["status"] != "skipped"]
    failed = {test["fullName"]: test["failureMessages"] for test in asked if test["status"] != "passed"}
    assert failed == {}, said
    assert len(asked) == ASKED_TESTS


async def test_its_own_client_watches_a_run_and_comes_back(tmp_path: Path) -> None:
    env = {"ALL": "of-all", "MODELS": "of-models"}
    slow = Scenario(reply=reply(WORDS), pace_s=0.001)
    headers = {"Authorization": "Bearer of-all"}
    home = tmp_path / "viewer"
    home.mkdir()
    (home / "durable_stream.mjs").write_bytes((PROGRAMS / "durable_stream.mjs").read_bytes())
    async with running_server(tmp_path, slow, config=KEYS, env=env, headers=headers) as server:
        run_id = await server.start()
        given = {"url": f"{server.url}/streams/runs/{run_id}", "key": "of-all"}
        said = await program(home, "node", "durable_stream.mjs", fed=json.dumps(given).encode())
        events = await server.events(f"/runs/{run_id}/stream")
    seen: dict[str, Any] = json.loads(said.splitlines()[-1])
    log = [{name: event[name] for name in event if not name.startswith("sse_")} for event in events]
    assert seen["polled"]["items"] == seen["followed"]["items"] == seen["whole"]["items"] == log
    assert seen["rest"]["items"] == log[int(seen["offset"]) :]
    assert [seen[name]["closed"] for name in ("polled", "followed", "whole", "rest")] == [True] * 4
    assert seen["statuses"] == [401, 403]
