"""The tools of a simulated world. Each of their effects is counted by the world, which outlives the process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec

from proof.simulation.world import ToolName
from tailrace.messages import JsonObject, ToolSpec
from tailrace.ports import Effect, ToolContext, ToolOutcome

_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"question": {"type": "integer"}, "step": {"type": "integer"}, "note": {"type": "string"}},
    "required": ["question", "step", "note"],
}
DIRECTORY = Path("/")


class ToolRun(msgspec.Struct, frozen=True):
    """One execution of a tool, at the moment of its effect."""

    name: str
    args: JsonObject
    process: str


class CountedTool:
    """Satisfies `ports.Tool`. `act` is called in the middle of each run; it says how long the run takes."""

    parallel = False

    def __init__(self, name: ToolName, act: Callable[[str, JsonObject], None], takes_s: Callable[[JsonObject], float]):
        self.spec = ToolSpec(name, f"{name}s", _SCHEMA)
        self.repeatable = name == "look"
        self._act = act
        self._takes_s = takes_s

    def invalid(self, args: JsonObject) -> str:
        missing = [name for name in ("question", "step", "note") if name not in args]
        return f"missing: {', '.join(missing)}" if missing else ""

    def preview(self, args: JsonObject) -> str:
        return f"{args.get('question')}.{args.get('step')}"

    def effect(self, args: JsonObject) -> Effect:
        if self.spec.name != "launch":
            return Effect()
        return Effect("external", f"launch {args.get('question')}.{args.get('step')}")

    async def run(self, args: JsonObject, _context: ToolContext) -> ToolOutcome:
        takes_s = self._takes_s(args)
        await asyncio.sleep(takes_s / 2)
        self._act(self.spec.name, args)
        await asyncio.sleep(takes_s / 2)
        return ToolOutcome(f"done {args['question']}.{args['step']}")
