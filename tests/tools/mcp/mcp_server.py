"""An MCP server made with the official SDK, for the tests: `python mcp_server.py stdio`, or `http PORT` or `sse PORT`
(0: a free one, which it prints). A process of its own, so that it can die like one."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp_types import ImageContent, TextContent, ToolAnnotations
from pydantic import BaseModel

server = MCPServer("tests")
authorized = ""
headers: dict[str, str] = {}
was_cancelled = asyncio.Event()


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


class Booking(BaseModel):
    """What a plain yes can fill in."""

    sure: bool
    seats: int = 2


class Name(BaseModel):
    name: str


def may_book() -> Elicit[Booking]:
    return Elicit("Book two seats?", Booking)


def whose() -> Elicit[Name]:
    return Elicit("For whom?", Name)


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def book(answer: Annotated[ElicitationResult[Booking], Resolve(may_book)]) -> str:
    """Books after a person has said yes."""
    return f"accept {answer.data}" if isinstance(answer, AcceptedElicitation) else "decline"


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def name(answer: Annotated[ElicitationResult[Name], Resolve(whose)]) -> str:
    """Asks for what must be written."""
    return f"accept {answer.data}" if isinstance(answer, AcceptedElicitation) else "decline"


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
