"""A client's Chat Completions request, parsed: the reverse of `provider_request`."""

from __future__ import annotations

from typing import Any

import msgspec

from tailrace.messages import JsonObject, ModelRequest
from tailrace.wire.chat.messages import ChatConversation
from tailrace.wire.client_request import ClientRequest, FieldsBeyond, InvalidRequest, Name, converted
from tailrace.wire.openai_request import function_tools, is_json_object, offered_tools, response_schema, tool_choice

# Fields that ask nothing of a model: the server keeps them with the request.
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
    "functions": ([],),
    "function_call": ("auto", "none"),
}
# Several choices, log probabilities and sound are not in an answer of another dialect.
_MEANING = frozenset({"n", "logprobs", "top_logprobs", "modalities", "audio", "functions", "function_call"})


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Fields(msgspec.Struct):
    """The fields that the neutral request has a place for."""

    model: Name
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
    verbosity: str | None = None
    user: str | None = None
    safety_identifier: str | None = None


_KNOWN = frozenset(_Fields.__struct_fields__) | _KEPT


def parse_client_request(body: JsonObject) -> ClientRequest:
    """Raises `InvalidRequest`."""
    fields = converted(body, _Fields)
    if not fields.messages:
        raise InvalidRequest("at least one is needed", "messages")
    beyond = FieldsBeyond(body, known=_KNOWN, defaults=_DEFAULTS, meaning=_MEANING)
    conversation = ChatConversation()
    for index, message in enumerate(fields.messages):
        conversation.add(message, f"messages[{index}]")
    options = fields.stream_options
    request = ModelRequest(
        model=fields.model,
        messages=tuple(conversation.messages),
        system="\n\n".join(conversation.system),
        tools=offered_tools(function_tools(fields.tools or [], beyond, nested=True), fields.tool_choice, nested=True),
        tool_choice=tool_choice(fields.tool_choice, beyond, nested=True),
        parallel_tool_calls=fields.parallel_tool_calls,
        max_tokens=fields.max_completion_tokens or fields.max_tokens,
        temperature=fields.temperature,
        top_p=fields.top_p,
        stop=(fields.stop,) if isinstance(fields.stop, str) else tuple(fields.stop or ()),
        seed=fields.seed,
        reasoning_effort=fields.reasoning_effort,
        response_schema=response_schema(fields.response_format, "response_format", beyond, nested=True),
        json_object=is_json_object(fields.response_format),
        verbosity=fields.verbosity,
    )
    client_request = ClientRequest(
        "chat",
        request,
        body,
        stream=bool(fields.stream),
        include_usage=bool(options and options.include_usage),
        user=fields.safety_identifier or fields.user or "",
        opaque_at=conversation.opaque_at,
    )
    return beyond.named_in(client_request)
