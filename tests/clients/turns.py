"""A provider that does a whole agentic turn: thinks, calls two tools one after the other, and answers."""

from __future__ import annotations

import json
from collections.abc import Iterator

from proof.strict_provider import StrictProvider

from tailrace.messages import JsonObject
from tailrace.testing.provider import Reply, Scenario, call, reply, think
from tailrace.testing.scripted.request_reader import ScriptedRequest

ANSWER = "Take an umbrella to Bergen."
REPORT = {"city": "Bergen", "rain": True}
THOUGHTS = ["I must look.", "And when?", "That is all I need."]
STEPS = [call("get_weather", {"city": "Bergen"}), call("get_time", {"zone": "Europe/Oslo"})]
TOOLS = [step.name for step in STEPS]


class TurnProvider(StrictProvider):
    """As strict as the vendors' APIs. Answers what the conversation is up to, and calls no tool that is not offered.

    A request for JSON gets `REPORT`; the agent, which is told by its own tools, looks into a file first and says so.
    """

    def __init__(self) -> None:
        super().__init__(returns_reasoning=True)

    def choose(self, request: ScriptedRequest) -> Scenario:
        return Scenario(reply=_reply(request.body))


def _reply(body: JsonObject) -> Reply:
    offered, results = _offered(body), _results(body)
    if _wants_json(body):
        if "read_file" in offered and not results:
            return reply("Let me look.", call("read_file", {"path": "notes.txt"}))
        return reply(json.dumps(REPORT))
    if "json" in offered:
        return reply(call("json", REPORT))
    if results < len(steps := [step for step in STEPS if step.name in offered]):
        return reply(think(THOUGHTS[results]), *(["Let me look."] if not results else []), steps[results])
    return reply(think(THOUGHTS[-1]), ANSWER)


def _offered(body: JsonObject) -> set[str]:
    tools = body.get("tools") or []
    return {str(tool.get("name") or tool.get("function", {}).get("name")) for tool in tools}


def _wants_json(body: JsonObject) -> bool:
    wishes = (body.get("response_format"), body.get("text"), body.get("output_config"), body.get("output_format"))
    return any(isinstance(wish, dict) and "json_schema" in json.dumps(wish) for wish in wishes)


def _results(body: JsonObject) -> int:
    """How many tools have answered since the user last said something."""
    return sum(kind == "result" for kind in _since_the_question(list(_kinds(body))))


def _since_the_question(kinds: list[str]) -> list[str]:
    last = max((at for at, kind in enumerate(kinds) if kind == "question"), default=-1)
    return kinds[last + 1 :]


def _kinds(body: JsonObject) -> Iterator[str]:
    asked = body.get("input", body.get("messages")) or []
    if isinstance(asked, str):
        yield "question"
        return
    for item in asked:
        blocks = item.get("content") if isinstance(item.get("content"), list) else []
        if item.get("role") == "tool" or item.get("type") == "function_call_output":
            yield "result"
        elif results := [block for block in blocks if block.get("type") == "tool_result"]:
            yield from ["result"] * len(results)
        elif item.get("role") == "user":
            yield "question"
