"""A client's Chat Completions request, parsed: the reverse of `provider_request`."""

from __future__ import annotations

from typing import Any

import msgspec

from tailrace.messages import MAX_RAW_ANSWER_BYTES, JsonObject, ModelRequest
from tailrace.wire import openai_request
from tailrace.wire.chat.messages import ChatConversation
from tailrace.wire.client_request import ClientRequest, InvalidRequest, Name, UnmappedFields, converted
from tailrace.wire.translation.web_search import from_options

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
}
# Several choices, log probabilities and sound are not in an answer of another dialect.
_MEANING = frozenset({"n", "logprobs", "top_logprobs", "modalities", "audio"})


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
    service_tier: str | None = None
    web_search_options: JsonObject | None = None
    functions: list[JsonObject] | None = None  # what `tools` and `tool_choice` were before
    function_call: str | JsonObject | None = None


_KNOWN = frozenset(_Fields.__struct_fields__) | _KEPT


def parse_client_request(body: JsonObject) -> ClientRequest:
    """Raises `InvalidRequest`."""
    fields = converted(body, _Fields)
    if not fields.messages:
        raise InvalidRequest("at least one is needed", "messages")
    unmapped = UnmappedFields(body, known=_KNOWN, defaults=_DEFAULTS, meaning=_MEANING)
    conversation = ChatConversation()
    for index, message in enumerate(fields.messages):
        conversation.add(message, f"messages[{index}]")
    options, form = fields.stream_options, fields.response_format
    tools, choice = fields.tools or [], fields.tool_choice
    if legacy := bool(fields.functions) and not tools:
        tools = [{"type": "function", "function": function} for function in fields.functions or []]
        choice = fields.function_call
        if isinstance(choice, dict):
            choice = {"type": "function", "function": choice}
    functions = openai_request.function_tools(tools, unmapped, nested=True) if tools else ()
    request = ModelRequest(
        model=fields.model,
        messages=tuple(conversation.messages),
        system="\n\n".join(conversation.system) if conversation.system else "",
        tools=openai_request.offered_tools(functions, choice, nested=True) if functions else (),
        tool_choice=None if choice is None else openai_request.tool_choice(choice, unmapped, nested=True),
        parallel_tool_calls=False if legacy else fields.parallel_tool_calls,
        max_tokens=fields.max_completion_tokens or fields.max_tokens,
        max_answer_bytes=MAX_RAW_ANSWER_BYTES,
        temperature=fields.temperature,
        top_p=fields.top_p,
        stop=(fields.stop,) if fields.stop.__class__ is str else tuple(fields.stop or ()),
        seed=fields.seed,
        reasoning_effort=fields.reasoning_effort,
        response_schema=(
            None if form is None else openai_request.response_schema(form, "response_format", unmapped, nested=True)
        ),
        json_object=form is not None and openai_request.is_json_object(form),
        verbosity=fields.verbosity,
        service_tier=fields.service_tier and openai_request.service_tier(fields.service_tier),
        web_search=None if fields.web_search_options is None else from_options(fields.web_search_options),
    )
    client_request = ClientRequest(
        "chat",
        request,
        body,
        stream=bool(fields.stream),
        include_usage=bool(options and options.include_usage),
        user=fields.safety_identifier or fields.user or "",
        opaque_at=conversation.opaque_at,
        legacy_functions=legacy,
    )
    return unmapped.apply_to(client_request)
