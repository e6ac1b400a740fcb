"""Forks over HTTP, and a tool that counts how often it was called."""

from __future__ import annotations

from typing import Any

from server.http_server import RunningServer
from tailrace.ports import ToolContext, ToolOutcome
from tailrace.tools.typed import Arguments, TypedTool

QUESTION = 2  # the entry that has the question


async def fork(server: RunningServer, run: str, after: int, **fields: Any) -> dict[str, Any]:
    kwargs = {"headers": fields.pop("headers")} if "headers" in fields else {}
    status, body = await server.json("POST", f"/runs/{run}/fork", {"after": after, **fields}, **kwargs)
    assert status == 201, body
    made: dict[str, Any] = body
    return made


async def ended(server: RunningServer, run: str) -> list[dict[str, Any]]:
    return await server.events(f"/runs/{run}/stream")


def asked(server: RunningServer, number: int) -> list[tuple[str, str]]:
    """The conversation of the request of that number, without the system prompt."""
    messages = server.provider.requests[number].json()["messages"]
    return [(each["role"], each["content"]) for each in messages if each["role"] != "system"]


class Nothing(Arguments):
    pass


class Look(TypedTool[Nothing]):
    name = "look"
    description = "Look around."
    Args = Nothing

    def __init__(self, *, repeatable: bool = False) -> None:
        super().__init__()
        self.repeatable = repeatable
        self.looks = 0

    async def execute(self, args: Nothing, context: ToolContext) -> ToolOutcome:
        self.looks += 1
        return ToolOutcome("trees")
