"""`ModelRequest` to the body of a Responses API request. The API has no `stop` and no `seed`: they are left out, and
`providers.http.stop_cut` cuts answers at stop strings."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tailrace import messages
from tailrace.messages import File, Image, JsonObject, ModelRequest, NamedTool, Part, Reasoning, Text, ToolResult
from tailrace.wire.openai_request import file_fields, named_schema, sendable
from tailrace.wire.peer_json import merged
from tailrace.wire.responses.client_tools import calls_as_offered
from tailrace.wire.translation.web_search import NAME, is_chosen, responses_tool

# The API has no prefill: the partial answer is put before the model, and it is asked to go on from there.
CONTINUE = (
    "Your answer above was cut off in the middle. Continue it from exactly where it stopped: begin with the very next "
    "characters, repeat nothing of it, and write no preface."
)

_NO_REASONING = re.compile(r"(openai/)?(gpt-3|gpt-4|chatgpt-4)")  # OpenAI's models that refuse to be asked for it


def encode_request(request: ModelRequest, *, stream: bool) -> JsonObject:
    """The body of `POST /responses`. `extra` is merged in last and wins, object by object."""
    if request.verbatim:
        request = request.without_settings()
    body: JsonObject = {"model": request.model, "input": request.extra.get("input")}
    if not body["input"]:
        body["input"] = list(calls_as_offered(_input_of(request), request.extra.get("tools")))
    if stream:
        body["stream"] = True
    if request.system:
        body["instructions"] = request.system
    body |= _tools(request)
    if request.reasoning_effort is not None:
        body["reasoning"] = {"effort": request.reasoning_effort}
    if request.response_schema is not None:
        body["text"] = {"format": {"type": "json_schema", **named_schema(request.response_schema)}}
    elif request.json_object:
        body["text"] = {"format": {"type": "json_object"}}
    if request.verbosity is not None:
        body.setdefault("text", {})["verbosity"] = request.verbosity
    settings = {
        "parallel_tool_calls": request.parallel_tool_calls,
        "max_output_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "service_tier": request.service_tier,
    }
    body |= {name: value for name, value in settings.items() if value is not None}
    if not request.verbatim:
        body |= _unstored(request.model)
    return merged(body, sendable(request.extra, stream=stream))


def _unstored(model: str) -> JsonObject:
    """The API stores every response for a month unless `store` is false. Reasoning then comes sealed."""
    kept = {} if _NO_REASONING.match(model) else {"include": ["reasoning.encrypted_content"]}
    return {"store": False, **kept}


def _tools(request: ModelRequest) -> JsonObject:
    """The API refuses a `tool_choice` without tools."""
    searches = [] if request.web_search is None else [responses_tool(request.web_search)]
    tools, choice = [*map(_tool, request.tools), *searches], request.tool_choice
    fields: JsonObject = {"tools": tools} if tools else {}
    if choice is None or not (tools or "tools" in request.extra):
        return fields
    if is_chosen(choice, request.web_search):
        return fields | {"tool_choice": {"type": NAME}}
    named = {"type": "function", "name": choice.name} if isinstance(choice, NamedTool) else choice
    return fields | {"tool_choice": named}


def _tool(spec: messages.ToolSpec) -> JsonObject:
    return {
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.parameters,
        "strict": bool(spec.strict),  # the API's default is true, the neutral one false
    }


# ── the conversation ─────────────────────────────────────────────────────────────────────────────────────────


def _input_of(request: ModelRequest) -> Iterator[JsonObject]:
    stored = request.verbatim or request.extra.get("store") is True
    for message in request.messages:
        items = _items_of(message)
        if message.role == "assistant":
            items = _without_dangling_reasoning(item for item in items if stored or not _is_only_named(item))
        yield from items
    if request.prefill:
        yield _message("assistant", [{"type": "output_text", "text": request.prefill}])
        yield {"role": "user", "content": CONTINUE}


def _is_only_named(item: JsonObject) -> bool:
    """Reasoning that the provider would have to look up: it has neither its thoughts nor their seal."""
    return item.get("type") == "reasoning" and not item.get("encrypted_content") and not item.get("content")


def _items_of(message: messages.Message) -> Iterator[JsonObject]:
    """What the message says, and the parts that are items of their own, in their place."""
    role = "user" if message.role == "tool" else message.role
    content: list[JsonObject] = []
    phase: JsonObject = {}  # of the message that is being built
    for part in message.parts:
        if said := _content(part, role):
            content.append(said)
        elif item := _item(part, role):
            if content:
                yield _message(role, content, phase)
                content, phase = [], {}
            if item.keys() == {"phase"}:
                phase = item
            else:
                yield item
    if content:
        yield _message(role, content, phase)


def _message(role: str, content: list[JsonObject], phase: JsonObject | None = None) -> JsonObject:
    if role == "assistant":
        return {"type": "message", "role": role, "content": content, **(phase or {})}
    if all(part["type"] == "input_text" for part in content):  # the form every compatible server takes
        return {"role": role, "content": "".join(part["text"] for part in content)}
    return {"role": role, "content": content}


def _content(part: Part, role: str) -> JsonObject | None:
    match part:
        case Text(text):
            return {"type": "output_text" if role == "assistant" else "input_text", "text": text}
        case messages.Refusal(text) if role == "assistant":
            return {"type": "refusal", "refusal": text}
        case Image() if role != "assistant":
            url = part.url or f"data:{part.media_type or 'image/png'};base64,{part.data}"
            return {"type": "input_image", "image_url": url, "detail": part.detail or "auto"}
        case File(url=url) if role != "assistant":
            return {"type": "input_file", **({"file_url": url} if url else file_fields(part))}
        case _:
            return None


def _item(part: Part, role: str) -> JsonObject | None:
    match part:
        case ToolResult(call_id, content):
            return {"type": "function_call_output", "call_id": call_id, "output": _output(part, content)}
        case messages.Native("responses", item):  # of a text with citations the text is enough
            return None if item.get("type") == "output_text" else item
        case messages.ToolCall(call_id, name, arguments) if role == "assistant":
            return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
        case Reasoning(dialect="responses", native=native) if role == "assistant":
            return native
        case _:
            return None


def _output(result: ToolResult, content: str | tuple[Text | Image | File, ...]) -> str | list[JsonObject | None]:
    """The API has no other place for an error than the text."""
    if isinstance(content, str):
        return result.text
    if not result.ok:
        content = (Text(result.text), *(part for part in content if not isinstance(part, Text)))
    return [_content(part, "tool") for part in content]


def _without_dangling_reasoning(items: Iterator[JsonObject]) -> Iterator[JsonObject]:
    """A reasoning item must be followed by what it led to, or the API refuses the whole request."""
    held: list[JsonObject] = []
    for item in items:
        held.append(item)
        if item.get("type") != "reasoning":
            yield from held
            held = []
