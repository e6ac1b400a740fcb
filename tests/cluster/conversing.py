"""A provider whose answer depends on what was said, however often it is asked: a process that goes on with a run asks
again."""

from __future__ import annotations

from typing import Any

from tailrace.testing.provider import FaultyProvider, Scenario, call, reply
from tailrace.testing.scripted.request_reader import ScriptedRequest

TEXT = " ".join(f"word{number}" for number in range(40))
PACE_S = 0.02  # between two words: a whole answer takes less than a second
TOOL = "Use the tool."


class ConversingProvider(FaultyProvider):
    """Answers `TEXT`, slowly. A question that says `TOOL` is first answered by a call of the tool `terminal`."""

    def __init__(self, command: str = "true", *, pace_s: float = PACE_S) -> None:
        super().__init__()
        self._command = command
        self._pace_s = pace_s

    def choose(self, request: ScriptedRequest) -> Scenario:
        messages: list[dict[str, Any]] = [*request.body.get("messages", [])]
        asked = next((index for index in reversed(range(len(messages))) if TOOL in _text(messages[index])), None)
        if asked is not None and not any(message["role"] == "tool" for message in messages[asked:]):
            return Scenario(
                reply=reply("Let me see.", call("terminal", {"command": self._command})), pace_s=self._pace_s
            )
        return Scenario(reply=reply(TEXT), pace_s=self._pace_s)


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    return content if message["role"] == "user" and isinstance(content, str) else ""
