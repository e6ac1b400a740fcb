"""What requests to OpenAI's two APIs have in common. The Responses API writes the fields of functions and schemas
beside their `type`; Chat Completions nests them in an object of its own (`nested`)."""

from __future__ import annotations

import re

import msgspec

from tailrace.messages import File, Image, JsonObject, NamedTool, ToolSpec
from tailrace.wire.client_request import USUAL_TIERS, InvalidRequest, ToolChoice, UnmappedFields, converted, image_url
from tailrace.wire.peer_json import objects_of, text_of

_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")
DATA_URL = re.compile(r"data:(?P<media_type>[^;,]*)(?:;[^,]*)?;base64,(?P<data>.*)", re.DOTALL)


class _Function(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


def function_tools(tools: list[JsonObject], unmapped: UnmappedFields, *, nested: bool) -> tuple[ToolSpec, ...]:
    """The functions among the tools; a tool of another kind is not offered to other providers. Raises
    `InvalidRequest`."""
    specs: list[ToolSpec] = []
    for index, tool in enumerate(tools):
        kind = tool.get("type", "function" if nested else None)
        if not isinstance(kind, str):
            raise InvalidRequest("expected an object with a type", f"tools[{index}]")
        if kind != "function":
            unmapped.optional.append(f"tools.{kind}")
            continue
        given, where = (tool.get("function"), ".function") if nested else (tool, "")
        function = converted(given, _Function, f"tools[{index}]{where}")
        spec = ToolSpec(function.name, function.description or "", strict=function.strict)
        if function.parameters is not None:
            spec = msgspec.structs.replace(spec, parameters=function.parameters)
        specs.append(spec)
    return tuple(specs)


def tool_choice(choice: str | JsonObject | None, unmapped: UnmappedFields, *, nested: bool) -> ToolChoice:
    """A choice of a tool that only the client's dialect has changes the meaning. Raises `InvalidRequest`."""
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        choice = _allowed(choice, nested=nested).get("mode")
        if choice not in ("auto", "required"):
            raise InvalidRequest("expected auto or required", "tool_choice.mode")
    match choice:
        case None | "auto" | "none" | "required":
            return choice
        case {"type": "function", "function": {"name": str(name)}} if nested:
            return NamedTool(name)
        case {"type": "function", "name": str(name)} if not nested:
            return NamedTool(name)
        case {"type": str()}:
            unmapped.only.append("tool_choice")
            return None
        case _:
            raise InvalidRequest("expected auto, none, required or a tool", "tool_choice")


def offered_tools(
    tools: tuple[ToolSpec, ...], choice: str | JsonObject | None, *, nested: bool
) -> tuple[ToolSpec, ...]:
    """The tools that a choice of `allowed_tools` leaves; all of them with any other choice."""
    if not isinstance(choice, dict) or choice.get("type") != "allowed_tools":
        return tools
    given = _allowed(choice, nested=nested).get("tools")
    named = [tool.get("function") if nested and isinstance(tool, dict) else tool for tool in objects_of(given)]
    names = {tool.get("name") for tool in named if isinstance(tool, dict)}
    return tuple(tool for tool in tools if tool.name in names)


def _allowed(choice: JsonObject, *, nested: bool) -> JsonObject:
    allowed = choice.get("allowed_tools") if nested else choice
    if not isinstance(allowed, dict):
        raise InvalidRequest("expected an object with a mode and tools", "tool_choice.allowed_tools")
    return allowed


def service_tier(tier: object) -> str | None:
    """The tier that the request asks for; None for the usual one."""
    return tier if isinstance(tier, str) and tier not in USUAL_TIERS else None


def sendable(extra: JsonObject, *, stream: bool) -> JsonObject:
    """The fields to merge into a body: both APIs refuse options of a stream where none is asked for."""
    return extra if stream else {name: value for name, value in extra.items() if name != "stream_options"}


def is_json_object(form: object) -> bool:
    """Any JSON object is asked for, with no schema."""
    return isinstance(form, dict) and form.get("type") == "json_object"


def response_schema(form: object, field: str, unmapped: UnmappedFields, *, nested: bool) -> JsonObject | None:
    """The JSON schema that the answer must satisfy; its name becomes its title. Raises `InvalidRequest`."""
    match form:
        case None | {"type": "text" | "json_object"}:
            return None
        case {"type": "json_schema", "json_schema": {"schema": dict(schema), **more}} if nested:
            return _titled(schema, more.get("name"))
        case {"type": "json_schema", "schema": dict(schema), **more} if not nested:
            return _titled(schema, more.get("name"))
        case {"type": str()}:
            unmapped.only.append(field)
            return None
        case _:
            raise InvalidRequest("expected an object with a type", field)


def _titled(schema: JsonObject, name: object) -> JsonObject:
    return {"title": name, **schema} if isinstance(name, str) and name else schema


def named_schema(schema: JsonObject) -> JsonObject:
    """The schema with a valid name, made of its title."""
    title = schema.get("title")
    name = _NOT_IN_A_NAME.sub("_", title)[:64] if isinstance(title, str) and title else "answer"
    return {"name": name, "schema": schema, "strict": is_strict(schema)}


def is_strict(schema: object) -> bool:
    """Whether strict mode takes this schema: each object closed, with all its properties required. Else it is a 400."""
    nodes: list[object] = [schema]
    while nodes:
        node = nodes.pop()
        if isinstance(node, list):
            nodes += node
        elif isinstance(node, dict):
            properties = node.get("properties")
            if isinstance(properties, dict) or node.get("type") == "object":
                required = node.get("required")
                wanted = set(required) if isinstance(required, list) else set()
                if node.get("additionalProperties") is not False or wanted != set(properties or ()):
                    return False
            nodes += node.values()
    return True


def file_of(file: JsonObject, url: str = "") -> File | None:
    """A file that the request brings along or names by its address; None for one that the provider keeps."""
    name, data = text_of(file.get("filename")), file.get("file_data")
    if url:
        return File(url=url, name=name)
    if not isinstance(data, str) or not data:
        return None
    if (inline := DATA_URL.fullmatch(data)) is None:
        return File(data=data, media_type="application/pdf", name=name)
    return File(data=inline["data"], media_type=inline["media_type"], name=name)


def file_fields(file: File) -> JsonObject:
    """A file in the words of both APIs."""
    kind = file.media_type or "application/pdf"
    return {"filename": file.name or "document.pdf", "file_data": f"data:{kind};base64,{file.data}"}


def image_of(url: str, detail: object, where: str) -> Image:
    """Raises `InvalidRequest` for an address that is not an image's."""
    return Image(url=image_url(url, where), detail=text_of(detail))
