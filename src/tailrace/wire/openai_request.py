"""What requests to OpenAI's two APIs have in common: functions, the choice among them, JSON schemas, images.

The Responses API writes the fields of these beside their `type`. Chat Completions nests them in an object under a key
of its own (`nested`).
"""

from __future__ import annotations

import msgspec

from tailrace.messages import Image, JsonObject, NamedTool, ToolSpec
from tailrace.wire.client_request import InvalidRequest, ToolChoice, converted, image_url
from tailrace.wire.peer_json import text_of


class _Function(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


def function_tools(tools: list[JsonObject], dialect_only: list[str], *, nested: bool) -> tuple[ToolSpec, ...]:
    """The functions among the tools. Another kind of tool, one that the provider runs or defines, makes `tools` a field
    that only the client's dialect has. Raises `InvalidRequest`."""
    specs: list[ToolSpec] = []
    for index, tool in enumerate(tools):
        if tool.get("type", "function" if nested else None) != "function":
            dialect_only.append("tools")
            continue
        given, where = (tool.get("function"), ".function") if nested else (tool, "")
        function = converted(given, _Function, f"tools[{index}]{where}")
        spec = ToolSpec(function.name, function.description or "", strict=function.strict)
        if function.parameters is not None:
            spec = msgspec.structs.replace(spec, parameters=function.parameters)
        specs.append(spec)
    return tuple(specs)


def tool_choice(choice: str | JsonObject | None, dialect_only: list[str], *, nested: bool) -> ToolChoice:
    """Raises `InvalidRequest`."""
    match choice:
        case None | "auto" | "none" | "required":
            return choice
        case {"type": "function", "function": {"name": str(name)}} if nested:
            return NamedTool(name)
        case {"type": "function", "name": str(name)} if not nested:
            return NamedTool(name)
        case {"type": str()}:
            dialect_only.append("tool_choice")
            return None
        case _:
            raise InvalidRequest("expected auto, none, required or a tool", "tool_choice")


def response_schema(form: object, field: str, dialect_only: list[str], *, nested: bool) -> JsonObject | None:
    """The JSON schema that the answer must satisfy; its name becomes its title. Raises `InvalidRequest`."""
    match form:
        case None | {"type": "text"}:
            return None
        case {"type": "json_schema", "json_schema": {"schema": dict(schema), **more}} if nested:
            return _titled(schema, more.get("name"))
        case {"type": "json_schema", "schema": dict(schema), **more} if not nested:
            return _titled(schema, more.get("name"))
        case {"type": str()}:
            dialect_only.append(field)
            return None
        case _:
            raise InvalidRequest("expected an object with a type", field)


def _titled(schema: JsonObject, name: object) -> JsonObject:
    return {"title": name, **schema} if isinstance(name, str) and name else schema


def image_of(url: str, detail: object, where: str) -> Image:
    """Raises `InvalidRequest` for an address that is not an image's."""
    return Image(url=image_url(url, where), detail=text_of(detail))
