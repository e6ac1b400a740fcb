"""Answers that fit their request: a chore beside a turn, a demanded schema, a demanded call.

A request that offers no tools is no step of the turn but a chore beside it (a title, a check of the key, a summary).
A demanded call that the turn does not have is one of a tool that the turn does not use, which is how frameworks take
a typed answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tailrace.messages import Dialect, JsonObject
from tailrace.testing.scripted.reply import Reply, ThinkingBlock, call, reply
from tailrace.testing.scripted.request_reader import ScriptedRequest

CHORE = "Noted."


def is_chore(steps: Sequence[Reply], request: ScriptedRequest) -> bool:
    return any(step.calls for step in steps) and not _offered(request.body)


def _offered(body: JsonObject) -> list[JsonObject]:
    return [*(body.get("tools") or ()), *(body.get("functions") or ())]


def fitting(chosen: Reply, turn_tools: list[str], request: ScriptedRequest) -> Reply:
    """The answer with the call or the schema that the request demands."""
    body = request.body
    thoughts = [block for block in chosen.blocks if isinstance(block, ThinkingBlock)]
    name = _demanded_tool(body)
    if not name and not chosen.calls and _demands_any(body):
        name = next((offered for offered in _names(body) if offered not in turn_tools), "")
    if name and name not in [block.name for block in chosen.calls]:
        return reply(*thoughts, call(name, example_of(_form_of_tool(name, body))))
    if (form := _form_of_answer(request.dialect, body)) is not None and not chosen.calls and not _is_json(chosen.text):
        return reply(*thoughts, msgspec.json.encode(example_of(form)).decode())
    return chosen


def _demands_any(body: JsonObject) -> bool:
    """Whether the answer must be a call, of whatever tool."""
    choice = body.get("tool_choice")
    return (choice.get("type") if isinstance(choice, dict) else choice) in ("required", "any")


def _names(body: JsonObject) -> list[str]:
    """Of the tools that are offered; the last ones are often those that take the answer."""
    return [str((tool.get("function") or tool).get("name")) for tool in reversed(_offered(body))]


def _demanded_tool(body: JsonObject) -> str:
    choice = body.get("tool_choice")
    if not isinstance(choice, dict) or choice.get("type") not in ("function", "tool"):
        return ""
    function = choice.get("function")
    return str(function.get("name") if isinstance(function, dict) else choice.get("name"))


def _form_of_tool(name: str, body: JsonObject) -> Any:
    for tool in _offered(body):
        said: JsonObject = tool.get("function") or tool
        if said.get("name") == name:
            return said.get("parameters") or said.get("input_schema")
    return None


def _form_of_answer(dialect: Dialect, body: JsonObject) -> Any:
    """The schema that the answer is to have; None where any text will do."""
    where = {"chat": "response_format", "responses": "text", "anthropic": "output_config"}[dialect]
    asked = body.get(where) or {}
    form = asked if dialect == "chat" else asked.get("format") or {}
    return form.get("schema") or (form.get("json_schema") or {}).get("schema")


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True


_EXAMPLES: dict[str, Any] = {"string": "text", "integer": 1, "number": 1, "boolean": True, "null": None}


def example_of(form: Any, definitions: Mapping[str, Any] | None = None) -> Any:
    """A value that has the schema's form: all its properties, the first of its choices."""
    if not isinstance(form, dict):
        return {}
    known = definitions or form.get("$defs") or {}
    if (reference := form.get("$ref")) is not None:
        return example_of(known.get(str(reference).rpartition("/")[2]), known)
    if choices := next((form[key] for key in ("anyOf", "oneOf", "allOf") if form.get(key)), None):
        return example_of(choices[0], known)
    if fixed := form.get("enum") or ([form["const"]] if "const" in form else None):
        return fixed[0]
    if form.get("type") == "array":
        return [example_of(form.get("items"), known)]
    if form.get("type") in _EXAMPLES:
        return _EXAMPLES[form["type"]]
    return {name: example_of(inner, known) for name, inner in (form.get("properties") or {}).items()}
