"""Tools that only this API has, as functions for every other provider, and back: a tool in a namespace is the function
`<namespace>__<name>`, a custom tool a function with the one argument `input`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from tailrace.errors import PeerError
from tailrace.messages import JsonObject
from tailrace.wire.peer_json import decode_object, encode_object, object_of, objects_of, text_of

MAX_NAME_CHARS = 64  # of a function, in the Chat Completions API
_DIGEST_CHARS = 8
_INPUT: JsonObject = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}


def as_functions(tools: Iterable[JsonObject], namespace: str = "") -> list[JsonObject]:
    """The tools with functions in place of those that other providers do not know."""
    functions: list[JsonObject] = []
    for tool in tools:
        name = _flat(namespace, text_of(tool.get("name")))
        match tool.get("type"):
            case "namespace" if not namespace:  # there is none within another
                functions += as_functions(objects_of(tool.get("tools")), name)
            case "custom":
                functions.append(
                    {"type": "function", "name": name, "description": _description(tool), "parameters": _INPUT}
                )
            case "function" if namespace:
                functions.append({**tool, "name": name})
            case _:
                functions.append(tool)
    return functions


def choice_as_function(choice: str | JsonObject | None) -> str | JsonObject | None:
    """The choice of such a tool as the choice of its function; a choice among tools, as one among their functions."""
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        return {**choice, "tools": [choice_as_function(tool) for tool in objects_of(choice.get("tools"))]}
    if (
        isinstance(choice, dict)
        and choice.get("type") in ("custom", "function")
        and isinstance(choice.get("name"), str)
    ):
        return {"type": "function", "name": _flat(text_of(choice.get("namespace")), choice["name"])}
    return choice


def call_as_function(item: JsonObject) -> JsonObject:
    """An item of the history: a call of such a tool as the call of its function."""
    kind = item.get("type")
    if kind not in ("function_call", "custom_tool_call"):
        return item
    named = {**item, "name": _flat(text_of(item.get("namespace")), text_of(item.get("name")))}
    if kind == "custom_tool_call":
        named |= {"type": "function_call", "arguments": encode_object({"input": text_of(item.get("input"))}).decode()}
    return named


class OfferedTools:
    """The tools that a request offers, by the names of their functions."""

    def __init__(self, tools: object, namespace: str = "") -> None:
        self._items: dict[str, JsonObject] = {}  # the fields of a call's item that tell the tool
        for tool in objects_of(tools):
            name = text_of(tool.get("name"))
            if tool.get("type") == "namespace" and not namespace:
                self._items |= OfferedTools(tool.get("tools"), name)._items
            elif namespace or tool.get("type") == "custom":
                where = {"namespace": namespace} if namespace else {}
                kind = "custom_tool_call" if tool.get("type") == "custom" else "function_call"
                self._items[_flat(namespace, name)] = {"type": kind, "name": name, **where}

    def item_fields(self, function: str) -> JsonObject:
        """The fields of the item for a call of this function that differ from any function's."""
        return self._items.get(function, {})


def calls_as_offered(items: Iterable[JsonObject], tools: object) -> Iterator[JsonObject]:
    """The items of a conversation, with the calls of functions as calls of the tools that stand for them."""
    offered, custom = OfferedTools(tools), set[str]()
    for item in items:
        kind, call_id = item.get("type"), text_of(item.get("call_id"))
        fields = offered.item_fields(text_of(item.get("name"))) if kind == "function_call" else {}
        if fields.get("type") == "custom_tool_call":
            custom.add(call_id)
            yield {**fields, "call_id": call_id, "input": custom_input(text_of(item.get("arguments")))}
        elif kind == "function_call_output" and call_id in custom:
            yield {**item, "type": "custom_tool_call_output"}
        else:
            yield {**item, **fields}


def custom_input(arguments: str) -> str:
    """The text for a custom tool; all of what the model wrote where it is not the one argument."""
    try:
        value = decode_object(arguments.encode()).get("input")
    except (PeerError, UnicodeEncodeError):
        return arguments
    return value if isinstance(value, str) else arguments


def _flat(namespace: str, name: str) -> str:
    """The function's name. One that is too long for other APIs is cut, and still tells tools apart."""
    if not namespace:
        return name
    flat = f"{namespace}__{name}"
    if len(flat) <= MAX_NAME_CHARS:
        return flat
    digest = hashlib.sha256(flat.encode()).hexdigest()[:_DIGEST_CHARS]
    return f"{flat[: MAX_NAME_CHARS - _DIGEST_CHARS - 1]}_{digest}"


def _description(tool: JsonObject) -> str:
    grammar = object_of(tool.get("format"))
    definition = text_of(grammar.get("definition"))
    rule = f"The input follows this {text_of(grammar.get('syntax'))} grammar:\n{definition}" if definition else ""
    return "\n\n".join(filter(None, (text_of(tool.get("description")), rule)))
