"""`ModelRequest` to the body of a Messages API request.

Owns the names of the request's fields. The API has no `seed`: it is left out.
"""

from __future__ import annotations

import re

from tailrace.messages import JsonObject, ModelRequest, NamedTool, ToolSpec
from tailrace.wire.anthropic.content import conversation, system_of
from tailrace.wire.anthropic.output_schema import output_schema
from tailrace.wire.anthropic.prompt_cache import with_cache_marks
from tailrace.wire.translation.web_search import anthropic_tool

# The API wants a limit in every request and refuses one above the model's own. First match wins.
_DEFAULT_MAX_TOKENS: tuple[tuple[re.Pattern[str], int], ...] = (
    (re.compile(r"claude-(2|instant|3-(opus|sonnet|haiku))"), 4096),
    (re.compile(r"claude-3-5"), 8192),
    (re.compile(r"claude"), 32_000),
    (re.compile(r""), 8192),  # compatible servers: within the context window of nearly all they serve
)
JSON_OBJECT = "Answer with one JSON object and nothing else: no preface, no explanation, no code fence."
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
        body = with_cache_marks(body)
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
