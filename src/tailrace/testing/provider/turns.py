"""Turns of an agent written beforehand: what a model says at each step, chosen by the tool results it was given.

A request that offers no tools is no step of the turn but a chore beside it (a title, a check of the key, a summary):
it gets a short text. Where a schema or a call is demanded, the answer is made to fit: a demanded call that the turn
does not have is one of a tool that the turn does not use, which is how frameworks take a typed answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tailrace.messages import Dialect, JsonObject
from tailrace.testing.scripted.reply import Block, Reply, ThinkingBlock, call, reply, say, think
from tailrace.testing.scripted.request_reader import ScriptedRequest
from tailrace.values.validation_words import decoding_problem

CHORE = "Noted."
_RESULTS = ("function_call_output", "custom_tool_call_output", "tool_result")


class UnreadableTurns(ValueError):
    """A file of turns that cannot be read; `str()` of it says where."""


class AgenticTurns:
    """By model name, the answers of a turn in order. The last one has no calls, or is given again and again."""

    def __init__(self, turns: Mapping[str, Sequence[Reply]]) -> None:
        if empty := next((name for name, replies in turns.items() if not replies), None):
            raise ValueError(f"the turn '{empty}' has no answers")
        self._turns = {name: tuple(replies) for name, replies in turns.items()}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._turns)

    def reply(self, name: str, request: ScriptedRequest, conversation: list[JsonObject]) -> Reply:
        replies = self._turns[name]
        chosen = _step(replies, sum(map(_results, conversation)))
        if any(step.calls for step in replies) and not _offered(request.body):
            chosen = reply(CHORE)
        turn_tools = [made.name for step in replies for made in step.calls]
        return _fitting(chosen, turn_tools, request)


def turns_of(text: bytes | str) -> dict[str, list[Reply]]:
    """Turns written as JSON: `{"model": [[{"think": "…"}, {"call": "ls", "arguments": {}}], "Done."]}`.

    Raises `UnreadableTurns`.
    """
    try:
        read = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.MsgspecError as exc:
        raise UnreadableTurns(decoding_problem(exc)) from None
    return {name: _answers(name, written) for name, written in read.items()}


def _answers(name: str, written: msgspec.Raw) -> list[Reply]:
    """The answers of one model. A string is an answer of text alone."""
    try:
        answers = msgspec.json.decode(written, type=list[str | list[str | dict[str, Any]]])
        replies = [reply(*map(_block, [answer] if isinstance(answer, str) else answer)) for answer in answers]
    except (msgspec.MsgspecError, UnreadableTurns) as exc:
        raise UnreadableTurns(f"the turn '{name}': {decoding_problem(exc)}") from None
    if not replies:
        raise UnreadableTurns(f"the turn '{name}' has no answers")
    return replies


def _block(written: str | dict[str, Any]) -> Block:
    match written:
        case str():
            return say(written)
        case {"say": str(text)}:
            return say(text)
        case {"think": str(text)}:
            return think(text)
        case {"call": str(name)}:
            return call(name, written.get("arguments"))
        case _:
            raise UnreadableTurns(f"expected a text, or an object with say, think or call, and not {written}")


def _step(replies: Sequence[Reply], results: int) -> Reply:
    """The first answer whose calls do not all have their result yet."""
    for step in replies:
        if results < len(step.calls):
            return step
        results -= len(step.calls)
        if not step.calls:
            return step
    return replies[-1]


def _results(message: JsonObject) -> int:
    """How many tool results this message or item is or holds."""
    if message.get("role") == "tool" or message.get("type") in _RESULTS:
        return 1
    content = message.get("content")
    return sum(_results(block) for block in content if isinstance(block, dict)) if isinstance(content, list) else 0


def _offered(body: JsonObject) -> list[JsonObject]:
    return [*(body.get("tools") or ()), *(body.get("functions") or ())]


def _fitting(chosen: Reply, turn_tools: list[str], request: ScriptedRequest) -> Reply:
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
