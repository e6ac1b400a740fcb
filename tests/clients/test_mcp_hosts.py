"""Claude Code as an MCP host of `tailrace mcp`: its model gives Tailrace's agent a task, and uses the answer."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="the extra is not installed")

from proof.strict_provider import StrictProvider

from clients.coding_agents import QUIET, claude_code
from integrations.mcp_server.mcp_host import write_config
from server.dialect_api import dialect_server
from tailrace.testing.provider import FaultyProvider, call, reply

INNER, ANSWER = "It turned 7 times.", "The wheel turns."
# It begins without servers that are slow to start.
PATIENT = {"MCP_CONNECTION_NONBLOCKING": "0", "MCP_TIMEOUT": "60000", "MCP_CONNECT_TIMEOUT_MS": "60000"}
TASK = "How often did it turn?"


async def test_claude_code_gives_the_agent_a_task(tmp_path: Path) -> None:
    asked = reply(call("mcp__tailrace__start_run", {"question": TASK}))
    outer = StrictProvider(turns={"turn": [asked, reply(ANSWER)]}, returns_reasoning=True)
    async with (
        FaultyProvider(turns={"turn": [reply(INNER)]}) as inner,
        dialect_server(tmp_path / "served", provider=outer) as server,
    ):
        write_config(tmp_path / "agent", inner)
        claude = claude_code(tmp_path, server.url, model="up-anthropic/turn", variables={**QUIET, **PATIENT})
        started = {
            "command": sys.executable,
            "args": ["-m", "tailrace", "mcp", "--directory", str(claude.directory)],
            "env": {"TAILRACE_HOME": str(tmp_path / "agent")},
        }
        servers = tmp_path / "servers.json"
        servers.write_text(json.dumps({"mcpServers": {"tailrace": started}}), encoding="utf-8")
        ended = await claude.run(
            *("-p", "Ask the agent.", "--output-format", "json", "--mcp-config", str(servers), "--strict-mcp-config"),
            *("--allowedTools", "mcp__tailrace__start_run"),
        )
    assert ended.status == 0, f"{ended.out}\n{ended.err}"
    assert json.loads(ended.out)["result"] == ANSWER
    assert [TASK in request.body.decode() for request in inner.requests] == [True]
    last = [request for request in outer.requests if request.body and request.json().get("tools")][-1]
    assert INNER in last.body.decode()
    offered = {tool["name"] for tool in last.json()["tools"]}
    assert {f"mcp__tailrace__{name}" for name in ("watch_run", "stop_run", "list_runs")} <= offered
