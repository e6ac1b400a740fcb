"""Calls that fail in ways of our own: the host's model learns which run is meant, and the server goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra is not installed")

from mcp_types import CallToolRequestParams, CallToolResult, TextContent

from integrations.mcp_server.mcp_host import write_config
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import open_app
from tailrace.config.load import load
from tailrace.errors import JournalError
from tailrace.integrations.mcp_server.approvals import REQUESTER
from tailrace.integrations.mcp_server.run_tools import RunTools
from tailrace.integrations.mcp_server.stdio import Cancelled
from tailrace.messages import user
from tailrace.server.http.auth import Identity
from tailrace.testing.provider import FaultyProvider, reply


async def started(tools: RunTools) -> str:
    context: Any = SimpleNamespace(request_id=1)
    result = await tools.call(context, CallToolRequestParams(name="start_run", arguments={"question": "?"}))
    assert isinstance(result, CallToolResult)
    (content,) = result.content
    assert isinstance(content, TextContent)
    assert result.is_error
    return content.text


async def test_a_call_that_fails_names_its_run_and_ends_nothing(tmp_path: Path) -> None:
    async with FaultyProvider([reply("The wheel turns.")]) as provider:
        write_config(tmp_path, provider, {"store": {"url": "memory://"}})
        async with (
            asyncio.timeout(30),
            open_app(load({"TAILRACE_HOME": str(tmp_path)})) as app,
            asyncio.TaskGroup() as group,
        ):
            tools = RunTools(app, Identity(REQUESTER, frozenset()), TurnSpec(user("")), Cancelled(), group.create_task)
            submit, read = app.agents.submit, app.journal.read

            async def broken(*_: Any, **__: Any) -> Any:
                raise RuntimeError("a mistake of ours")

            async def unreadable(*_: Any, **__: Any) -> Any:
                raise JournalError("the store is gone")

            app.agents.submit = broken  # type: ignore[method-assign]
            assert "a mistake of ours" in await started(tools)
            app.agents.submit = submit  # type: ignore[method-assign]
            app.journal.read = unreadable  # type: ignore[method-assign]
            told = await started(tools)
            app.journal.read = read  # type: ignore[method-assign]
            (run,) = await app.journal.runs()
            assert run.id in told
            assert "watch_run shows it" in told
            await app.agents.finished(run.id)
