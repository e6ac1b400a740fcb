"""A client's Chat Completions request, read: the reverse of `request`."""

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
from tailrace.wire.chat.completion import completion_from_body
from tailrace.wire.client_request import ClientRequest, InvalidRequest, beyond_of, converted, named

# Fields that ask nothing of a model: whoever serves the request keeps them with it.
_KEPT = frozenset({"metadata", "store", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"})
_DEFAULTS: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "service_tier": ("auto", "default"),
    "verbosity": ("medium",),
    "functions": ([],),
    "function_call": ("auto", "none"),
}


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Fields(msgspec.Struct):
    """The fields that the neutral request has a place for."""

    model: str
    messages: list[JsonObject]
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    tools: list[JsonObject] | None = None
    tool_choice: str | JsonObject | None = None
    parallel_tool_calls: bool | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    reasoning_effort: str | None = None
    response_format: JsonObject | None = None
    user: str | None = None
    safety_identifier: str | None = None


class _Function(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


_KNOWN = frozenset(_Fields.__struct_fields__) | _KEPT


def read_request(body: JsonObject) -> ClientRequest:
    """Raises `InvalidRequest`."""
    fields = converted(body, _Fields)
    if not fields.messages:
        raise InvalidRequest("at least one is needed", "messages")
    beyond = beyond_of(body, _KNOWN, _DEFAULTS)
    conversation = _Conversation()
    for index, message in enumerate(fields.messages):
        conversation.add(message, f"messages[{index}]")
    options = fields.stream_options
    request = ModelRequest(
        model=fields.model,
        messages=tuple(conversation.messages),
        system="\n\n".join(conversation.system),
        tools=_tools(fields.tools or [], beyond),
        tool_choice=_choice(fields.tool_choice, beyond),
        parallel_tool_calls=fields.parallel_tool_calls,
        max_tokens=fields.max_completion_tokens or fields.max_tokens,
        temperature=fields.temperature,
        top_p=fields.top_p,
        stop=(fields.stop,) if isinstance(fields.stop, str) else tuple(fields.stop or ()),
        seed=fields.seed,
        reasoning_effort=fields.reasoning_effort,
        response_schema=_schema(fields.response_format, beyond),
    )
    return ClientRequest(
        "chat",
        request,
        body,
        stream=bool(fields.stream),
        include_usage=bool(options and options.include_usage),
        user=fields.safety_identifier or fields.user or "",
        beyond=named(beyond),
        opaque=conversation.opaque,
    )


class _Conversation:
    """The messages, in neutral words. What stands before the first question is the system prompt."""

    def __init__(self) -> None:
        self.system: list[str] = []
        self.messages: list[Message] = []
        self.opaque = ""

    def add(self, message: JsonObject, where: str) -> None:
        match message.get("role"):
            case "system" | "developer":
                text = "".join(part.text for part in self._parts(message, where) if isinstance(part, Text))
                if self.messages:
                    self.messages.append(Message("system", (Text(text),)))
                else:
                    self.system.append(text)
            case "user":
                self.messages.append(Message("user", tuple(self._parts(message, where))))
            case "assistant":
                said = completion_from_body({"choices": [{"message": message}]}).message
                self.messages.append(said)
            case "tool":
                self._add_result(message, where)
            case "function":
                self.opaque = self.opaque or where
                self.messages.append(Message("user", (Native("chat", message),)))
            case role:
                raise InvalidRequest(f"no such role: {str(role)[:40]!r}", f"{where}.role")

    def _add_result(self, message: JsonObject, where: str) -> None:
        """Results of one answer's calls stand together."""
        call_id = message.get("tool_call_id")
        if not isinstance(call_id, str):
            raise InvalidRequest("names the call that this is the result of", f"{where}.tool_call_id")
        parts = self._parts(message, where)
        content = tuple(part for part in parts if isinstance(part, Text | Image))
        plain = all(isinstance(part, Text) for part in content)
        result = ToolResult(call_id, "".join(part.text for part in content if isinstance(part, Text)))
        if not plain:
            result = ToolResult(call_id, content)
        last = self.messages[-1] if self.messages else None
        if last is not None and last.role == "tool":
            self.messages[-1] = Message("tool", (*last.parts, result))
        else:
            self.messages.append(Message("tool", (result,)))

    def _parts(self, message: JsonObject, where: str) -> list[Part]:
        content = message.get("content")
        if isinstance(content, str):
            return [Text(content)]
        if not isinstance(content, list):
            raise InvalidRequest("expected a text or a list of parts", f"{where}.content")
        return [self._part(part, f"{where}.content[{index}]") for index, part in enumerate(content)]

    def _part(self, part: object, where: str) -> Part:
        match part:
            case {"type": "text", "text": str(text)}:
                return Text(text)
            case {"type": "image_url", "image_url": {"url": str(url), **more}}:
                detail = more.get("detail")
                return Image(url=url, detail=detail if isinstance(detail, str) else "")
            case {"type": "image_url", "image_url": str(url)}:
                return Image(url=url)
            case {"type": str()} if isinstance(part, dict):
                self.opaque = self.opaque or where
                return Native("chat", part)
            case _:
                raise InvalidRequest("expected an object with a type", where)


def _tools(tools: list[JsonObject], beyond: list[str]) -> tuple[ToolSpec, ...]:
    specs: list[ToolSpec] = []
    for index, tool in enumerate(tools):
        if tool.get("type", "function") != "function":
            beyond.append("tools")
            continue
        function = converted(tool.get("function"), _Function, f"tools[{index}].function")
        spec = ToolSpec(function.name, function.description or "", strict=function.strict)
        if function.parameters is not None:
            spec = msgspec.structs.replace(spec, parameters=function.parameters)
        specs.append(spec)
    return tuple(specs)


def _choice(
    choice: str | JsonObject | None, beyond: list[str]
) -> Literal["auto", "none", "required"] | NamedTool | None:
    match choice:
        case None:
            return None
        case "auto" | "none" | "required":
            return choice
        case {"type": "function", "function": {"name": str(name)}}:
            return NamedTool(name)
        case {"type": str()}:
            beyond.append("tool_choice")
            return None
        case _:
            raise InvalidRequest("expected auto, none, required or a tool", "tool_choice")


def _schema(form: JsonObject | None, beyond: list[str]) -> JsonObject | None:
    match form:
        case None | {"type": "text"}:
            return None
        case {"type": "json_schema", "json_schema": {"schema": dict(schema), **more}}:
            name = more.get("name")
            return {"title": name, **schema} if isinstance(name, str) and name else schema
        case {"type": str()}:
            beyond.append("response_format")
            return None
        case _:
            raise InvalidRequest("expected an object with a type", "response_format")
