"""OpenAI's SDKs for Python and Node.js over the Responses web socket: state, lanes and steering, on every dialect."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from clients.installed import PROGRAMS, client_environment, clients_dir
from server.dialect_api import dialect_server
from server.v1.test_responses_socket import MODELS, Gate
from server.v1.test_socket_steering import FIRST
from tailrace.testing.provider import reply

PATIENCE_S = 90  # of one client: two seconds on an idle core


@pytest.mark.parametrize("program", ["openai_socket.py", "openai_socket.mjs"])
@pytest.mark.parametrize("model", MODELS)
async def test_a_conversation_and_a_steer(tmp_path: Path, program: str, model: str) -> None:
    clients = clients_dir()
    (tmp_path / "node_modules").symlink_to(clients / "node_modules")
    (tmp_path / program).write_bytes((PROGRAMS / program).read_bytes())
    runtime = clients / "venv/bin/python" if program.endswith(".py") else "node"
    script = [reply("Hello, Ada."), reply("Ada."), reply(FIRST), reply("Small plan.")]
    async with dialect_server(tmp_path / "served", script) as server, asyncio.timeout(PATIENCE_S):
        variables = {"OPENAI_BASE_URL": server.url + "/v1", "OPENAI_API_KEY": "unused", "MODEL": model}
        process = await asyncio.create_subprocess_exec(
            runtime, program, cwd=tmp_path, env=client_environment(tmp_path, variables), stdout=PIPE, stderr=PIPE
        )
        assert process.stdout is not None
        await server.provider.request(2)
        server.provider.flowing = gate = Gate(6)
        said = []
        async for line in process.stdout:
            said.append(json.loads(line))
            if "accepted" in said[-1]:
                gate.set()
        _, errors = await process.communicate()
        asked = server.provider.requests[-1].body.decode()
    assert said == [
        {"texts": ["Hello, Ada.", "Ada."]},
        {"accepted": True},
        {"steered": "Small plan.", "lane": "plan"},
    ], errors.decode()
    assert "Keep it small." in asked
