"""`ModelRequest` to the body of a Responses API request.

Owns the request body alone. The API has no `stop` and no `seed`: they are left out. Reasoning and native items of other
dialects are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tailrace.messages import (
    Image,
    JsonObject,
    Message,
    ModelRequest,
    NamedTool,
    Native,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from tailrace.wire.schema_name import named_schema

# The API has no prefill: the partial answer is put before the model, and it is asked to go on from there.
CONTINUE = (
    "Your answer above was cut off in the middle. Continue it from exactly where it stopped: begin with the very next "
    "characters, repeat nothing of it, and write no preface."
)


def encode_request(request: ModelRequest, *, stream: bool) -> JsonObject:
    """The body of `POST /responses`. `extra` is merged in last and wins, object by object."""
    body: JsonObject = {"model": request.model, "input": list(_input_of(request))}
    if stream:
        body["stream"] = True
    if request.system:
        body["instructions"] = request.system
    if request.tools:
        body["tools"] = [_tool(spec) for spec in request.tools]
    if request.tools or "tools" in request.extra:  # the API refuses a tool_choice without tools
        if isinstance(request.tool_choice, NamedTool):
            body["tool_choice"] = {"type": "function", "name": request.tool_choice.name}
        elif request.tool_choice is not None:
            body["tool_choice"] = request.tool_choice
    if request.reasoning_effort is not None:
        body["reasoning"] = {"effort": request.reasoning_effort}
    if request.response_schema is not None:
        body["text"] = {"format": {"type": "json_schema", **named_schema(request.response_schema)}}
    settings = {
        "parallel_tool_calls": request.parallel_tool_calls,
        "max_output_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
    }
    body |= {name: value for name, value in settings.items() if value is not None}
    return _merged(body, request.extra)


def _merged(base: JsonObject, over: Mapping[str, Any]) -> JsonObject:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = _merged(below, value) if isinstance(below, dict) and isinstance(value, Mapping) else value
    return merged


def _tool(spec: ToolSpec) -> JsonObject:
    return {
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.parameters,
        "strict": bool(spec.strict),  # the API's default is true, the neutral one false
    }


# ── the conversation ─────────────────────────────────────────────────────────────────────────────────────────


def _input_of(request: ModelRequest) -> Iterator[JsonObject]:
    for message in request.messages:
        if message.role == "assistant":
            yield from _without_dangling_reasoning(_assistant_items(message))
        else:
            yield from _other_items(message)
    if request.prefill:
        yield _message("assistant", [{"type": "output_text", "text": request.prefill}])
        yield {"role": "user", "content": CONTINUE}


def _message(role: str, content: list[JsonObject]) -> JsonObject:
    return {"type": "message", "role": role, "content": content}


def _other_items(message: Message) -> Iterator[JsonObject]:
    """Items of a user, system or tool message; results are items of their own, in their place."""
    role = "system" if message.role == "system" else "user"
    content: list[JsonObject] = []
    for part in message.parts:
        if isinstance(part, Text | Image):
            content.append(_input_content(part))
            continue
        item = _result_or_native(part)
        if item is not None:
            if content:
                yield _easy_message(role, content)
                content = []
            yield item
    if content:
        yield _easy_message(role, content)


def _easy_message(role: str, content: list[JsonObject]) -> JsonObject:
    if all(part["type"] == "input_text" for part in content):  # the form every compatible server takes
        return {"role": role, "content": "".join(part["text"] for part in content)}
    return {"role": role, "content": content}


def _input_content(part: Text | Image) -> JsonObject:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    url = part.url or f"data:{part.media_type or 'image/png'};base64,{part.data}"
    return {"type": "input_image", "image_url": url, "detail": part.detail or "auto"}


def _result_or_native(part: Part) -> JsonObject | None:
    if isinstance(part, ToolResult):
        content = part.content
        output = content if isinstance(content, str) else [_input_content(inner) for inner in content]
        return {"type": "function_call_output", "call_id": part.call_id, "output": output}
    if isinstance(part, Native) and part.dialect == "responses":
        return part.item
    return None


def _assistant_items(message: Message) -> Iterator[JsonObject]:
    content: list[JsonObject] = []
    for part in message.parts:
        if isinstance(part, Text | Refusal):
            content.append(_output_content(part))
            continue
        item = _assistant_item(part)
        if item is not None:
            if content:
                yield _message("assistant", content)
                content = []
            yield item
    if content:
        yield _message("assistant", content)


def _output_content(part: Text | Refusal) -> JsonObject:
    if isinstance(part, Text):
        return {"type": "output_text", "text": part.text}
    return {"type": "refusal", "refusal": part.text}


def _assistant_item(part: Part) -> JsonObject | None:
    if isinstance(part, ToolCall):
        return {"type": "function_call", "call_id": part.id, "name": part.name, "arguments": part.arguments}
    if isinstance(part, Reasoning):
        return part.native if part.dialect == "responses" else None
    return _result_or_native(part)


def _without_dangling_reasoning(items: Iterator[JsonObject]) -> Iterator[JsonObject]:
    """A reasoning item must be followed by what it led to, or the API refuses the whole request."""
    held: list[JsonObject] = []
    for item in items:
        held.append(item)
        if item.get("type") != "reasoning":
            yield from held
            held = []
