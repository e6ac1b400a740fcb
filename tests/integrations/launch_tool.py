"""A tool that acts outside this machine: somebody has to be asked."""

from __future__ import annotations

from tailrace.messages import JsonObject, ToolFile
from tailrace.ports import Effect, ToolContext, ToolOutcome
from tailrace.tools.typed import Arguments, TypedTool


class LaunchArgs(Arguments):
    what: str


class Launch(TypedTool[LaunchArgs]):
    name = "launch"
    description = "Launch something."
    Args = LaunchArgs

    def effect(self, _args: JsonObject) -> Effect:
        return Effect("external", "launch it")

    async def execute(self, args: LaunchArgs, context: ToolContext) -> ToolOutcome:
        picture = ToolFile("launch.png", "image/png", b"\x89PNG")
        return ToolOutcome(f"launched {args.what}", files=(picture,) if args.what == "camera" else ())
