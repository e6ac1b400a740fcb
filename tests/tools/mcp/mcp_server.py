"""An MCP server made with the official SDK, for the tests: `python mcp_server.py stdio`, or `http PORT` (0: a free one,
which it prints). A process of its own, so that it can die like one."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ImageContent, TextContent, ToolAnnotations

server = MCPServer("tests")
authorized = ""


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool(annotations=ToolAnnotations(read_only_hint=False, idempotent_hint=True))
def variable(name: str) -> str:
    """A variable of this process's environment."""
    return os.environ.get(name, "(not set)")


@server.tool()
def die() -> str:
    """Ends the process in the middle of the call."""
    sys.stderr.write("noise\nout of memory, of all things\n")
    sys.stderr.flush()
    os._exit(3)


@server.tool()
async def never(context: Context) -> str:
    """Never answers."""
    await context.report_progress(1, 2, "about to wait")
    await asyncio.Event().wait()
    return ""


@server.tool(name="odd.name/with everything that no provider takes in the name of a tool, and long")
def odd() -> list[Any]:
    """Fails, in words and pictures."""
    return [TextContent(text="words"), ImageContent(data="AAAA", mime_type="image/png")]


@server.tool()
def refuse() -> str:
    """Raises."""
    raise ToolError("not today")


@server.tool()
def token() -> str:
    """The Authorization header of the latest request."""
    return authorized


async def app(scope: Any, receive: Any, send: Any) -> None:
    global authorized  # noqa: PLW0603 - one server, one test
    if scope["type"] == "http":
        authorized = dict(scope["headers"]).get(b"authorization", b"").decode()
    await inner(scope, receive, send)


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        inner = server.streamable_http_app()
        listener = socket.create_server(("127.0.0.1", int(sys.argv[2])))
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])
