"""`ModelRequest` to the body of a Chat Completions request."""

from __future__ import annotations

import re
from typing import Any

from tailrace import messages
from tailrace.messages import File, Image, JsonObject, ModelRequest, Native, Reasoning, Text, ToolCall, ToolResult
from tailrace.wire.openai_request import file_fields, named_schema, sendable
from tailrace.wire.reasoning_seal import TEXT_FIELDS

# OpenAI's reasoning models refuse `max_tokens`; most compatible servers know only that.
_COUNTS_REASONING = re.compile(r"(openai/)?(o\d|gpt-5)")
_LIMITS = ("max_tokens", "max_completion_tokens")


def encode_request(request: ModelRequest, *, stream: bool) -> JsonObject:
    """The request body. `extra` is merged last and wins: what it has is not made."""
    extra = sendable(request.extra, stream=stream)
    body: JsonObject = {"model": request.model, "messages": extra.get("messages") or _messages(request)}
    if stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    if request.verbatim:
        body.update(extra)
        return body
    body |= _tools(request) | _sampling(request)
    if request.response_schema is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": named_schema(request.response_schema)}
    elif request.json_object:
        body["response_format"] = {"type": "json_object"}
    return body | extra


def _sampling(request: ModelRequest) -> JsonObject:
    limit = "max_completion_tokens" if _COUNTS_REASONING.match(request.model) else "max_tokens"
    limited = not request.extra.keys().isdisjoint(_LIMITS)  # two spellings of one limit are refused (K130)
    fields = {
        limit: None if limited else request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "stop": list(request.stop) or None,
        "seed": request.seed,
        "reasoning_effort": request.reasoning_effort,
        "verbosity": request.verbosity,
        "service_tier": request.service_tier,
    }
    return {field: value for field, value in fields.items() if value is not None}


def _tools(request: ModelRequest) -> JsonObject:
    """The API refuses `tool_choice` without tools."""
    if not request.tools and "tools" not in request.extra:
        return {}
    fields: JsonObject = {"tools": [_tool(tool) for tool in request.tools]} if request.tools else {}
    match request.tool_choice:
        case messages.NamedTool(name=name):
            fields["tool_choice"] = {"type": "function", "function": {"name": name}}
        case str(choice):
            fields["tool_choice"] = choice
        case None:
            pass
    if request.parallel_tool_calls is not None:
        fields["parallel_tool_calls"] = request.parallel_tool_calls
    return fields


def _tool(tool: messages.ToolSpec) -> JsonObject:
    function: JsonObject = {"name": tool.name, "parameters": tool.parameters}
    if tool.description:
        function["description"] = tool.description
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


# ── messages ─────────────────────────────────────────────────────────────────────────────────────────────────


def _messages(request: ModelRequest) -> list[JsonObject]:
    encoded: list[JsonObject] = []
    if request.system:
        encoded.append({"role": "system", "content": request.system})
    for message in request.messages:
        encoded += [_assistant(message)] if message.role == "assistant" else _others(message)
    if request.prefill:
        encoded.append({"role": "assistant", "content": request.prefill})
    return encoded


def _others(message: messages.Message) -> list[JsonObject]:
    """Each tool result is a message of its own; an image or a file in one follows as the user's."""
    answers: list[JsonObject] = []
    content: list[Text | Image | File] = []
    for part in message.parts:
        match part:
            case Text() | Image() | File():
                content.append(part)
            case ToolResult():
                answers.append({"role": "tool", "tool_call_id": part.call_id, "content": part.text})
                content += [inner for inner in part.content if isinstance(inner, Image | File)]
            case Reasoning() | messages.Refusal() | ToolCall() | Native():
                pass  # an assistant's alone
    if content or not answers:
        role = "user" if message.role == "tool" else message.role
        answers.append({"role": role, "content": _content(content)})
    return answers


def _content(parts: list[Text | Image | File]) -> str | list[JsonObject]:
    """Plain text where it is nothing else: some servers take only that."""
    if len(parts) == 1 and isinstance(parts[0], Text):
        return parts[0].text
    return [_part(part) for part in parts] or ""


def _part(part: Text | Image | File) -> JsonObject:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Image():
            url = part.url or f"data:{part.media_type or 'image/png'};base64,{part.data}"
            return {"type": "image_url", "image_url": {"url": url} | ({"detail": part.detail} if part.detail else {})}
        case File():
            return {"type": "file", "file": file_fields(part)}


def _assistant(message: messages.Message) -> JsonObject:
    """Reasoning goes back to its own dialect; its plain text only beside tool calls: elsewhere some servers refuse
    it."""
    fields: JsonObject = {}
    content: list[JsonObject] = []  # in order; plain text stays plain where nothing else is among it
    calls: list[JsonObject] = []
    extras: dict[str, JsonObject] = {}
    called = bool(message.tool_calls)
    for part in message.parts:
        match part:
            case Text(text=text):
                content.append({"type": "text", "text": text})
            case messages.Refusal(text=text):
                fields["refusal"] = text
            case ToolCall():
                function = {"name": part.name, "arguments": part.arguments}
                calls.append({"id": part.id, "type": "function", "function": function})
            case Reasoning(dialect="chat", native=dict(native)):
                content += native.get("content", [])
                fields |= {k: v for k, v in native.items() if k != "content" and k not in TEXT_FIELDS}
                if called:
                    _add_thoughts(fields, native)
            case Native(dialect="chat", item=item):
                content += item.get("content", [])
                extras |= {extra["id"]: extra for extra in item.get("tool_calls", [])}
                fields |= {k: v for k, v in item.items() if k not in ("content", "tool_calls")}
            case Reasoning() | Native() | Image() | File() | ToolResult():
                pass  # another dialect's, or not allowed in an assistant's message
    said: JsonObject = {"role": "assistant", "content": _joined(content)}
    if calls:
        said["content"] = said["content"] or None
        said["tool_calls"] = [extras.get(call["id"], {}) | call for call in calls]
    return said | fields


def _add_thoughts(fields: JsonObject, native: JsonObject) -> None:
    """A client of another API may return the thoughts of one answer in several parts."""
    for name in (name for name in TEXT_FIELDS if name in native):
        before, new = fields.get(name), native[name]
        fields[name] = before + new if isinstance(before, str) and isinstance(new, str) else new


def _joined(content: list[JsonObject]) -> str | list[Any]:
    if all(part.get("type") == "text" and part.keys() == {"type", "text"} for part in content):
        return "".join(part["text"] for part in content)
    return content
