"""`ModelRequest` to the body of a Messages API request. The API has no `seed`: it is left out."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from tailrace.messages import JsonObject, ModelRequest, NamedTool, ToolSpec
from tailrace.wire.anthropic.content import conversation, system_of
from tailrace.wire.peer_json import objects_of
from tailrace.wire.translation.web_search import anthropic_tool

# The API wants a limit in every request and refuses one above the model's own. First match wins.
_DEFAULT_MAX_TOKENS: tuple[tuple[re.Pattern[str], int], ...] = (
    (re.compile(r"claude-(2|instant|3-(opus|sonnet|haiku))"), 4096),
    (re.compile(r"claude-3-5"), 8192),
    (re.compile(r"claude"), 32_000),
    (re.compile(r""), 8192),  # compatible servers: within the context window of nearly all they serve
)
JSON_OBJECT = "Answer with one JSON object and nothing else: no preface, no explanation, no code fence."
CACHE_MARKS: Final = "cache_control"  # the field of a block up to which the API caches the prompt
_MARK: Final[JsonObject] = {"type": "ephemeral"}
_MAX_MARKS: Final = 4  # that the API takes in one request
_MARKABLE: Final = frozenset({"text", "image", "document", "tool_use", "tool_result"})
# What structured outputs take of a JSON schema.
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"})
_PLAIN = frozenset(
    {"type", "enum", "const", "description", "title", "default", "required", "$ref", "additionalProperties"}
)
_NAMED_SCHEMAS = frozenset({"properties", "$defs", "definitions"})
_SCHEMAS = {"anyOf": "anyOf", "oneOf": "anyOf", "allOf": "allOf"}
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}


def encode_request(request: ModelRequest, *, stream: bool) -> JsonObject:
    """The request body. `extra` is merged in last and wins."""
    if request.verbatim:
        request = request.without_settings()
    body: JsonObject = {
        "model": request.model,
        "max_tokens": request.max_tokens or default_max_tokens(request.model),
        "messages": request.extra.get("messages") or conversation(request.messages, request.prefill),
    }
    system = system_of(request.system, request.messages)
    if request.json_object:  # the API has no JSON mode
        system = f"{system}\n\n{JSON_OBJECT}".strip()
    if system:
        body["system"] = system
    tools = [_tool(tool) for tool in request.tools]
    if request.web_search is not None:
        tools.append(anthropic_tool(request.web_search))
    if tools:
        body["tools"] = tools
    if tools or "tools" in request.extra:
        body |= _tool_choice(request)
    body |= _sampling(request)
    if output := _output_config(request):
        body["output_config"] = output
    if stream:
        body["stream"] = True
    if request.cache_prompt:
        body = _with_cache_marks(body)
    return body | request.extra


def default_max_tokens(model: str) -> int:
    return next(limit for pattern, limit in _DEFAULT_MAX_TOKENS if pattern.search(model))


def _tool(tool: ToolSpec) -> JsonObject:
    encoded: JsonObject = {"name": tool.name, "input_schema": {"type": "object", **tool.parameters}}
    if tool.description:
        encoded["description"] = tool.description
    if tool.strict is not None:
        encoded["strict"] = tool.strict
    return encoded


def _tool_choice(request: ModelRequest) -> JsonObject:
    choice: JsonObject
    match request.tool_choice:
        case NamedTool(name):
            choice = {"type": "tool", "name": name}
        case "required":
            choice = {"type": "any"}
        case "none":
            return {"tool_choice": {"type": "none"}}
        case "auto" | None:
            choice = {"type": "auto"}
    if request.parallel_tool_calls is not None:
        choice["disable_parallel_tool_use"] = not request.parallel_tool_calls
    elif request.tool_choice is None:
        return {}
    return {"tool_choice": choice}


def _sampling(request: ModelRequest) -> JsonObject:
    heat = request.temperature
    fields = {
        "temperature": None if heat is None else min(max(heat, 0.0), 1.0),  # other dialects go to 2, this one to 1
        "top_p": request.top_p,
        "stop_sequences": [stop for stop in request.stop if stop.strip()] or None,  # blank ones are refused
        "thinking": {"type": "disabled"} if request.reasoning_effort == "none" else None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _output_config(request: ModelRequest) -> JsonObject:
    config: JsonObject = {}
    if effort := _EFFORTS.get(request.reasoning_effort or ""):
        config["effort"] = effort
    if request.response_schema is not None:
        config["format"] = {"type": "json_schema", "schema": output_schema(request.response_schema)}
    return config


def _with_cache_marks(body: JsonObject) -> JsonObject:
    """The body with marks at the end of its tools, its system prompt and its last message of a user, as far as blocks
    of the conversation have left any: each call of a turn reads what the one before has written."""
    messages = objects_of(body.get("messages"))
    left = _MAX_MARKS - sum(
        CACHE_MARKS in block for message in messages for block in objects_of(message.get("content"))
    )
    marked = dict(body)
    if left > 0 and (spoken := _with_mark(messages)) is not None:
        marked["messages"], left = spoken, left - 1
    if left > 0 and isinstance(system := body.get("system"), str):
        marked["system"], left = [{"type": "text", "text": system, CACHE_MARKS: _MARK}], left - 1
    if left > 0 and (tools := objects_of(body.get("tools"))):
        marked["tools"] = [*tools[:-1], {**tools[-1], CACHE_MARKS: _MARK}]
    return marked


def _with_mark(messages: list[JsonObject]) -> list[JsonObject] | None:
    """The messages with a mark on the last block of the last one of a user; None where there is no place for it."""
    for at in reversed(range(len(messages))):
        blocks = objects_of(messages[at].get("content"))
        if messages[at].get("role") != "user" or not blocks:
            continue
        last = blocks[-1]
        if last.get("type") not in _MARKABLE or CACHE_MARKS in last:
            return None
        return [
            *messages[:at],
            {**messages[at], "content": [*blocks[:-1], {**last, CACHE_MARKS: _MARK}]},
            *messages[at + 1 :],
        ]
    return None


def output_schema(schema: JsonObject) -> JsonObject:
    """The nearest schema that the API accepts. A constraint outside its subset becomes part of the description: the
    model still reads it, and the caller validates the answer against the original schema."""
    kept: JsonObject = {}
    loose: JsonObject = {}  # constraints that go into the description
    for name, value in schema.items():
        if name in _NAMED_SCHEMAS and isinstance(value, dict):
            kept[name] = {key: _schema(item) for key, item in value.items()}
        elif name in _SCHEMAS and isinstance(value, list):
            kept[_SCHEMAS[name]] = [_schema(item) for item in value]
        elif name == "items" and isinstance(value, dict):
            kept[name] = output_schema(value)
        elif _supported(name, value):
            kept[name] = value
        elif not name.startswith("$"):  # "$schema", "$id", "$comment" constrain nothing
            loose[name] = value
    if kept.get("type") == "object" or "properties" in kept:
        kept["additionalProperties"] = False
    if loose:
        said = msgspec.json.encode(loose).decode()
        kept["description"] = f"{kept['description']}\n\n{said}" if kept.get("description") else said
    return kept


def _supported(name: str, value: Any) -> bool:
    if name == "format":
        return value in _FORMATS
    if name == "minItems":
        return value in (0, 1)
    return name in _PLAIN


def _schema(value: Any) -> Any:
    return output_schema(value) if isinstance(value, dict) else value  # `true` and `false` are schemas, too
