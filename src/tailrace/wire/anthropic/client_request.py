"""A client's Messages request, read: the reverse of `request`."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from tailrace.messages import (
    Image,
    JsonObject,
    Message,
    ModelRequest,
    NamedTool,
    Native,
    Part,
    Text,
    ToolResult,
    ToolSpec,
)
from tailrace.wire.anthropic.completion import completion_from_body
from tailrace.wire.client_request import ClientRequest, InvalidRequest, beyond_of, converted, named

_DEFAULTS: dict[str, tuple[Any, ...]] = {
    "service_tier": ("auto", "standard_only"),
    "mcp_servers": ([],),
    "context_management": ({},),
}
_LOW_BUDGET, _HIGH_BUDGET = 4096, 16_384  # tokens of thought below and above which others call the effort low or high


class _Metadata(msgspec.Struct):
    user_id: str | None = None


class _Fields(msgspec.Struct):
    """The fields that the neutral request has a place for."""

    model: str
    messages: list[JsonObject]
    max_tokens: int
    stream: bool | None = None
    system: str | list[JsonObject] | None = None
    tools: list[JsonObject] | None = None
    tool_choice: JsonObject | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop_sequences: list[str] | None = None
    thinking: JsonObject | None = None
    output_config: JsonObject | None = None
    metadata: _Metadata | None = None
    cache_control: JsonObject | None = None  # where to cache: changes what is paid, not what is said


class _Tool(msgspec.Struct):
    name: str
    input_schema: JsonObject
    description: str | None = None
    strict: bool | None = None


def read_request(body: JsonObject) -> ClientRequest:
    """Raises `InvalidRequest`."""
    fields = converted(body, _Fields)
    if fields.max_tokens < 1:
        raise InvalidRequest("expected a number of 1 or more", "max_tokens")
    if not fields.messages:
        raise InvalidRequest("at least one is needed", "messages")
    beyond = beyond_of(body, _Fields.__struct_fields__, _DEFAULTS)
    conversation = _Conversation()
    for index, message in enumerate(fields.messages):
        conversation.add(message, f"messages[{index}]")
    choice, parallel = _choice(fields.tool_choice)
    config = fields.output_config or {}
    beyond += [f"output_config.{name}" for name in config.keys() - {"effort", "format"}]
    request = ModelRequest(
        model=fields.model,
        messages=tuple(conversation.messages),
        system=_system(fields.system),
        tools=_tools(fields.tools or [], beyond),
        tool_choice=choice,
        parallel_tool_calls=parallel,
        max_tokens=fields.max_tokens,
        temperature=fields.temperature,
        top_p=fields.top_p,
        stop=tuple(fields.stop_sequences or ()),
        reasoning_effort=_effort(fields.thinking, config.get("effort")),
        response_schema=_schema(config.get("format")),
    )
    thinks = fields.thinking is not None and fields.thinking.get("type") in ("enabled", "adaptive")
    return ClientRequest(
        "anthropic",
        request,
        body,
        stream=bool(fields.stream),
        user=(fields.metadata.user_id if fields.metadata else None) or "",
        beyond=named(beyond),
        opaque=conversation.opaque,
        reasoning=thinks,
    )


class _Conversation:
    """The messages, in neutral words."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.opaque = ""

    def add(self, message: JsonObject, where: str) -> None:
        content = message.get("content")
        if isinstance(content, str):
            blocks: list[Any] = [{"type": "text", "text": content}]
        elif isinstance(content, list):
            blocks = content
        else:
            raise InvalidRequest("expected a text or a list of blocks", f"{where}.content")
        match message.get("role"):
            case "user":
                parts = [self._part(block, f"{where}.content[{index}]") for index, block in enumerate(blocks)]
                self.messages.append(Message("user", tuple(parts)))
            case "assistant":
                self.messages.append(completion_from_body({"content": blocks}).message)
            case "system":
                text = "".join(block["text"] for block in blocks if _is_text(block))
                self.messages.append(Message("system", (Text(text),)))
            case role:
                raise InvalidRequest(f"no such role: {str(role)[:40]!r}", f"{where}.role")

    def _part(self, block: object, where: str) -> Part:
        match block:
            case {"type": "text", "text": str(text)}:
                return Text(text)
            case {"type": "image", "source": dict(source)}:
                if (image := _image(source)) is not None:
                    return image
            case {"type": "tool_result", "tool_use_id": str(call_id)} if isinstance(block, dict):
                return self._result(call_id, block, where)
            case _:
                pass
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise InvalidRequest("expected an object with a type", where)
        self.opaque = self.opaque or where
        return Native("anthropic", block)

    def _result(self, call_id: str, block: JsonObject, where: str) -> ToolResult:
        content, ok = block.get("content"), not block.get("is_error")
        if content is None or isinstance(content, str):
            return ToolResult(call_id, content or "", ok)
        if not isinstance(content, list):
            raise InvalidRequest("expected a text or a list of blocks", f"{where}.content")
        parts = [self._part(inner, f"{where}.content[{index}]") for index, inner in enumerate(content)]
        kept = tuple(part for part in parts if isinstance(part, Text | Image))
        if all(isinstance(part, Text) for part in kept):
            return ToolResult(call_id, "".join(part.text for part in kept if isinstance(part, Text)), ok)
        return ToolResult(call_id, kept, ok)


def _is_text(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)


def _image(source: JsonObject) -> Image | None:
    match source:
        case {"type": "base64", "data": str(data), **more}:
            kind = more.get("media_type")
            return Image(data=data, media_type=kind if isinstance(kind, str) else "")
        case {"type": "url", "url": str(url)}:
            return Image(url=url)
        case _:
            return None


def _system(system: str | list[JsonObject] | None) -> str:
    if system is None or isinstance(system, str):
        return system or ""
    if not all(_is_text(block) for block in system):
        raise InvalidRequest("expected a text or a list of text blocks", "system")
    return "\n\n".join(block["text"] for block in system)


def _tools(tools: list[JsonObject], beyond: list[str]) -> tuple[ToolSpec, ...]:
    specs: list[ToolSpec] = []
    for index, tool in enumerate(tools):
        if tool.get("type") not in (None, "custom"):
            beyond.append("tools")  # a tool that Anthropic runs or defines
            continue
        known = converted(tool, _Tool, f"tools[{index}]")
        specs.append(ToolSpec(known.name, known.description or "", known.input_schema, known.strict))
    return tuple(specs)


def _choice(
    choice: JsonObject | None,
) -> tuple[Literal["auto", "none", "required"] | NamedTool | None, bool | None]:
    if choice is None:
        return None, None
    apart = choice.get("disable_parallel_tool_use")
    parallel = not apart if isinstance(apart, bool) else None
    match choice:
        case {"type": "auto"}:
            return "auto", parallel
        case {"type": "none"}:
            return "none", None
        case {"type": "any"}:
            return "required", parallel
        case {"type": "tool", "name": str(name)}:
            return NamedTool(name), parallel
        case _:
            raise InvalidRequest("expected auto, any, none or a tool", "tool_choice")


def _effort(thinking: JsonObject | None, effort: object) -> str | None:
    """How hard to think, in the one word that the other dialects have for it."""
    if isinstance(effort, str):
        return effort
    match thinking:
        case {"type": "enabled", "budget_tokens": int(budget)}:
            return "low" if budget < _LOW_BUDGET else "high" if budget > _HIGH_BUDGET else "medium"
        case None | {"type": "enabled" | "adaptive" | "disabled"}:
            return None
        case _:
            raise InvalidRequest("expected enabled, adaptive or disabled", "thinking.type")


def _schema(form: object) -> JsonObject | None:
    match form:
        case None:
            return None
        case {"type": "json_schema", "schema": dict(schema)}:
            return schema
        case _:
            raise InvalidRequest("expected a json_schema", "output_config.format")
