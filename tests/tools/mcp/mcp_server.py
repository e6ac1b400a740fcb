"""An MCP server made with the official SDK, for the tests: `python mcp_server.py stdio`, or `http PORT` or `sse PORT`
(0: a free one, which it prints). A process of its own, so that it can die like one."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ImageContent, TextContent, ToolAnnotations

server = MCPServer("tests")
authorized = ""
headers: dict[str, str] = {}
was_cancelled = asyncio.Event()
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


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


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def header(name: str) -> str:
    """A header of the latest request."""
    return headers.get(name, "(none)")


@server.tool()
async def waits(context: Context) -> str:
    """Never answers."""
    try:
        await context.report_progress(1, 2, "waiting")
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        was_cancelled.set()
        raise
    return ""


@server.tool()
async def cancelled() -> str:
    """Answers once a call of `waits` was cancelled."""
    await was_cancelled.wait()
    return "yes"


@server.tool()
async def grow(context: Context) -> str:
    """Adds a tool to those that there are, and says so."""

    def grown() -> str:
        return "grown"

    server.add_tool(grown)
    await context.notify_tools_changed()
    return "done"


@server.resource("notes://today", description="What happened today.", mime_type="text/plain")
def today() -> str:
    return "The wheel turned 7 times."


@server.resource("notes://wheel.png", mime_type="image/png")
def wheel() -> bytes:
    return PNG


@server.resource("notes://days/{day}", description="What happened on a day.")
def on_day(day: str) -> str:
    return f"On {day} it rained." * (10_000 if day == "every" else 1)


@server.prompt(description="Asks for a review.")
def review(code: str, tone: str = "kind") -> str:
    return f"Review this in a {tone} tone: {code}"


KEY_FILE = os.environ.get("KEY_FILE", "")  # holds the one key that is accepted; without it every one is


def _expected() -> str:
    return f"Bearer {Path(KEY_FILE).read_text()}"


async def app(scope: Any, receive: Any, send: Any) -> None:
    global authorized  # noqa: PLW0603 - one server, one test
    if scope["type"] == "http":
        headers.update({name.decode(): value.decode() for name, value in scope["headers"]})
        authorized = headers.get("authorization", "")
        if KEY_FILE and authorized != _expected():
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body"})
            return
    await inner(scope, receive, send)


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        inner = server.sse_app() if sys.argv[1] == "sse" else server.streamable_http_app()
        listener = socket.create_server(("127.0.0.1", int(sys.argv[2])))
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])
