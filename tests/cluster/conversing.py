"""A provider whose answer depends on what was said, however often it is asked: a process that goes on with a run asks
again."""

from __future__ import annotations

from typing import Any

from tailrace.testing.provider import Break, FaultyProvider, Offset, Scenario, call, reply
from tailrace.testing.scripted.request_reader import ScriptedRequest

TEXT = " ".join(f"word{number}" for number in range(40))
PACE_S = 0.02  # between two words: a whole answer takes less than a second
TOOL = "Use the tool."


class ConversingProvider(FaultyProvider):
    """Answers `TEXT`, slowly. A question that says `TOOL` is first answered by a call of a tool: `terminal`. The first
    `stalls` answers stop in the middle: their readers wait, and write nothing."""

    def __init__(self, command: str = "true", *, pace_s: float = PACE_S, stalls: int = 0) -> None:
        super().__init__()
        self._command = command
        self._pace_s = pace_s
        self._stalls = stalls

    def choose(self, request: ScriptedRequest) -> Scenario:
        messages: list[dict[str, Any]] = [*request.body.get("messages", [])]
        asked = next((index for index in reversed(range(len(messages))) if TOOL in _text(messages[index])), None)
        if asked is not None and not any(message["role"] == "tool" for message in messages[asked:]):
            name, arguments = self.tool_call(_text(messages[asked]))
            return Scenario(reply=reply("Let me see.", call(name, arguments)), pace_s=self._pace_s)
        self._stalls -= 1
        broken = Break("stall", Offset(50, per_cent=True)) if self._stalls >= 0 else None
        return Scenario(reply=reply(TEXT), pace_s=self._pace_s, broken=broken)

    def tool_call(self, _wish: str) -> tuple[str, dict[str, Any]]:
        """The tool and its arguments, for a question that says `TOOL`."""
        return "terminal", {"command": self._command}


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    return content if message["role"] == "user" and isinstance(content, str) else ""
