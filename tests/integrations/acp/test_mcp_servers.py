"""MCP servers that an editor passes: over HTTP with its headers, under names that tools can have."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from acp.schema import HttpHeader, HttpMcpServer, McpServerStdio, SseMcpServer

from tailrace.integrations.acp.mcp_servers import SessionServers
from tools.mcp.test_mcp import http_server
from tools.tool_context import Workplace


@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_a_server_over_http_gets_the_editors_headers(tmp_path: Path, kind: str) -> None:
    header = HttpHeader(name="Authorization", value="Bearer of-the-editor")
    with http_server(kind="sse") if kind == "sse" else http_server() as (_, port):
        url = f"http://127.0.0.1:{port}/{'sse' if kind == 'sse' else 'mcp'}"
        given: HttpMcpServer | SseMcpServer = HttpMcpServer(type="http", name="a.b", url=url, headers=[header])
        if kind == "sse":
            given = SseMcpServer(type="sse", name="a.b", url=url, headers=[header])
        servers = SessionServers([given], {})
        try:
            tools = await servers.tools()
            outcome = await tools["a_b__token"].run({}, Workplace(tmp_path))
            assert (outcome.output, servers.take_problems()) == ("Bearer of-the-editor", [])
        finally:
            await servers.close()


async def test_servers_that_cannot_be_started_are_named_once() -> None:
    gone = [McpServerStdio(name=name, command="/nonexistent", args=[], env=[]) for name in ("a b", "a-b", "a b")]
    servers = SessionServers([*gone, McpServerStdio(name="x", command=sys.executable, args=["-c", ""], env=[])], {})
    try:
        assert await servers.tools() == {}
        told = servers.take_problems()
        assert [name for name in ("a_b", "a-b", "a_b2", "x") if any(f"server {name} " in one for one in told)] == [
            "a_b",
            "a-b",
            "a_b2",
            "x",
        ]
        assert servers.take_problems() == []
    finally:
        await servers.close()
