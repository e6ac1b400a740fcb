"""The MCP server: the run tools, runs as resources, and one host on stdin and stdout."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types import (
    INVALID_PARAMS,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)

from tailrace import __version__
from tailrace.agent.session import TURN_KIND
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import App
from tailrace.app.timeline.question import question_of
from tailrace.errors import TailraceError
from tailrace.integrations.mcp_server.approvals import REQUESTER
from tailrace.integrations.mcp_server.run_report import in_words, report_of
from tailrace.integrations.mcp_server.run_tools import RunTools
from tailrace.integrations.mcp_server.stdio import Cancelled, stdio_streams
from tailrace.integrations.mcp_server.watch import read_view
from tailrace.server.http.auth import Identity
from tailrace.system.json_rpc.stdio import Pipes
from tailrace.tools.typed import preview_line

RUNS: Final = "tailrace://runs/"
LISTED_RUNS: Final = 20
MEDIA_TYPE: Final = "text/markdown"
INSTRUCTIONS: Final = (
    "Tailrace runs an agent of its own: start_run gives it a task and returns the answer. Runs are durable; a call "
    "that was cut short is no loss: list_runs finds the run, watch_run shows what became of it. Where a run waits for "
    "an approval, the user decides, never you."
)
Context = ServerRequestContext[Any, Any]


def mcp_server(app: App, tools: RunTools, caller: Identity) -> Server[Any]:
    """The server for one host, without a transport."""

    async def list_tools(_: Context, __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=tools.described())

    async def list_resources(_: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
        before = params.cursor if params is not None else None
        runs = await app.journal.runs(kind=TURN_KIND, before=before, limit=LISTED_RUNS + 1)
        shown = runs[:LISTED_RUNS]
        listed = [
            Resource(
                uri=RUNS + run.id,
                name=run.id,
                title=preview_line(question_of(run)) or run.id,
                description=f"{run.state} run of the agent",
                mime_type=MEDIA_TYPE,
            )
            for run in shown
        ]
        return ListResourcesResult(resources=listed, next_cursor=shown[-1].id if len(runs) > len(shown) else None)

    async def list_templates(_: Context, __: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
        template = ResourceTemplate(
            uri_template=RUNS + "{run_id}",
            name="run",
            title="A run",
            description="What a run has said so far, and how it stands.",
            mime_type=MEDIA_TYPE,
        )
        return ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(_: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        run_id = params.uri.removeprefix(RUNS)
        try:
            run = await app.journal.get(run_id)
            view = await read_view(app.journal, run_id)
        except TailraceError as exc:
            raise MCPError(INVALID_PARAMS, f"{params.uri} cannot be read: {exc}") from exc
        report = report_of(run, view, caller)
        all_said = msgspec.structs.replace(report, answer=None, text=report.text or report.answer or "")
        text = f"> {preview_line(question_of(run), 500)}\n\n{in_words(all_said)}"
        return ReadResourceResult(contents=[TextResourceContents(uri=params.uri, mime_type=MEDIA_TYPE, text=text)])

    return Server(
        "tailrace",
        version=__version__,
        title="Tailrace",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=tools.call,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
    )


async def serve_stdio(app: App, defaults: TurnSpec, pipes: Pipes) -> None:
    """Serves the host at these pipes until it closes its end. The caller hands over the runs that go on."""
    cancelled, caller = Cancelled(), Identity(REQUESTER, frozenset())
    async with stdio_streams(pipes, cancelled) as streams, asyncio.TaskGroup() as group:
        server = mcp_server(app, RunTools(app, caller, defaults, cancelled, group.create_task), caller)
        await server.run(streams.incoming, streams.outgoing, server.create_initialization_options())
