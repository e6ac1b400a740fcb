"""A client's request for a response, read: the reverse of `request`."""

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
from tailrace.wire.client_request import ClientRequest, InvalidRequest, beyond_of, converted, named
from tailrace.wire.responses.completion import completion_from_body

# Fields that ask nothing of a model: whoever serves the request keeps or obeys them.
_KEPT = frozenset(
    {
        *("metadata", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"),
        *("store", "background", "previous_response_id", "conversation", "stream_options"),
    }
)
_DEFAULTS: dict[str, tuple[Any, ...]] = {
    "truncation": ("disabled",),
    "service_tier": ("auto", "default"),
    "include": ([], ["reasoning.encrypted_content"]),  # what there is of it nowhere else is not asked for
    "top_logprobs": (0,),
}
_RESULTS = frozenset({"function_call_output", "custom_tool_call_output"})


class _Fields(msgspec.Struct):
    """The fields that the neutral request has a place for."""

    model: str
    input: str | list[JsonObject]
    stream: bool | None = None
    instructions: str | None = None
    tools: list[JsonObject] | None = None
    tool_choice: str | JsonObject | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    reasoning: JsonObject | None = None
    text: JsonObject | None = None
    user: str | None = None
    safety_identifier: str | None = None


class _Function(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


_KNOWN = frozenset(_Fields.__struct_fields__) | _KEPT


def read_request(body: JsonObject) -> ClientRequest:
    """Raises `InvalidRequest`. What came before, by `previous_response_id` or `conversation`, is not in it."""
    fields = converted(body, _Fields)
    beyond = beyond_of(body, _KNOWN, _DEFAULTS)
    conversation = _Conversation()
    for index, item in enumerate(items_of(fields.input)):
        conversation.add(item, f"input[{index}]")
    reasoning = fields.reasoning or {}
    effort = reasoning.get("effort")
    request = ModelRequest(
        model=fields.model,
        messages=conversation.whole(),
        system=fields.instructions or "",
        tools=_tools(fields.tools or [], beyond),
        tool_choice=_choice(fields.tool_choice, beyond),
        parallel_tool_calls=fields.parallel_tool_calls,
        max_tokens=fields.max_output_tokens,
        temperature=fields.temperature,
        top_p=fields.top_p,
        reasoning_effort=effort if isinstance(effort, str) else None,
        response_schema=_schema(fields.text or {}, beyond),
    )
    return ClientRequest(
        "responses",
        request,
        body,
        stream=bool(fields.stream),
        user=fields.safety_identifier or fields.user or "",
        beyond=named(beyond),
        opaque=conversation.opaque,
        reasoning=reasoning.get("summary") is not None or reasoning.get("generate_summary") is not None,
    )


def items_of(given: str | list[JsonObject]) -> list[JsonObject]:
    """The input as items: a text is one message of the user's."""
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": given}]}]
    return given


class _Conversation:
    """The items, in neutral words: all that a model said in one go is one message."""

    def __init__(self) -> None:
        self.opaque = ""
        self._messages: list[Message] = []
        self._said: list[JsonObject] = []  # items of the model's, not yet a message

    def whole(self) -> tuple[Message, ...]:
        self._end_answer()
        return tuple(self._messages)

    def add(self, item: JsonObject, where: str) -> None:
        kind, role = item.get("type"), item.get("role")
        if kind in (None, "message") and role == "assistant":
            content = item.get("content")
            parts = [{"type": "output_text", "text": content}] if isinstance(content, str) else content
            self._said.append({"type": "message", "content": parts})
        elif kind in (None, "message"):
            self._end_answer()
            self._add_message(item, role, where)
        elif kind in _RESULTS:
            self._end_answer()
            self._add_result(item, where)
        elif kind == "item_reference":
            self.opaque = self.opaque or where
        elif isinstance(kind, str):
            self._said.append(item)
        else:
            raise InvalidRequest("expected an object with a type", where)

    def _end_answer(self) -> None:
        if self._said:
            self._messages.append(completion_from_body({"output": self._said}).message)
            self._said = []

    def _add_message(self, item: JsonObject, role: object, where: str) -> None:
        content = item.get("content")
        if isinstance(content, str):
            parts: tuple[Part, ...] = (Text(content),)
        elif isinstance(content, list):
            parts = tuple(self._part(part, f"{where}.content[{index}]") for index, part in enumerate(content))
        else:
            raise InvalidRequest("expected a text or a list of parts", f"{where}.content")
        match role:
            case "user":
                self._messages.append(Message("user", parts))
            case "system" | "developer":
                self._messages.append(Message("system", parts))
            case _:
                raise InvalidRequest(f"no such role: {str(role)[:40]!r}", f"{where}.role")

    def _add_result(self, item: JsonObject, where: str) -> None:
        call_id, output = item.get("call_id"), item.get("output")
        if not isinstance(call_id, str):
            raise InvalidRequest("names the call that this is the result of", f"{where}.call_id")
        result = ToolResult(call_id, output if isinstance(output, str) else "")
        if isinstance(output, list):
            parts = [self._part(part, f"{where}.output[{index}]") for index, part in enumerate(output)]
            result = ToolResult(call_id, tuple(part for part in parts if isinstance(part, Text | Image)))
        elif not isinstance(output, str):
            raise InvalidRequest("expected a text or a list of parts", f"{where}.output")
        last = self._messages[-1] if self._messages else None
        if last is not None and last.role == "tool":
            self._messages[-1] = Message("tool", (*last.parts, result))
        else:
            self._messages.append(Message("tool", (result,)))

    def _part(self, part: object, where: str) -> Part:
        match part:
            case {"type": "input_text" | "output_text" | "text", "text": str(text)}:
                return Text(text)
            case {"type": "input_image", "image_url": str(url), **more}:
                detail = more.get("detail")
                return Image(url=url, detail=detail if isinstance(detail, str) else "")
            case {"type": str()} if isinstance(part, dict):
                self.opaque = self.opaque or where
                return Native("responses", part)
            case _:
                raise InvalidRequest("expected an object with a type", where)


def _tools(tools: list[JsonObject], beyond: list[str]) -> tuple[ToolSpec, ...]:
    specs: list[ToolSpec] = []
    for index, tool in enumerate(tools):
        if tool.get("type") != "function":
            beyond.append("tools")  # a tool that the provider runs or defines
            continue
        function = converted(tool, _Function, f"tools[{index}]")
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
        case {"type": "function", "name": str(name)}:
            return NamedTool(name)
        case {"type": str()}:
            beyond.append("tool_choice")
            return None
        case _:
            raise InvalidRequest("expected auto, none, required or a tool", "tool_choice")


def _schema(text: JsonObject, beyond: list[str]) -> JsonObject | None:
    if text.get("verbosity") not in (None, "medium"):
        beyond.append("text.verbosity")
    match text.get("format"):
        case None | {"type": "text"}:
            return None
        case {"type": "json_schema", "schema": dict(schema), **more}:
            name = more.get("name")
            return {"title": name, **schema} if isinstance(name, str) and name else schema
        case {"type": str()}:
            beyond.append("text.format")
            return None
        case _:
            raise InvalidRequest("expected an object with a type", "text.format")
