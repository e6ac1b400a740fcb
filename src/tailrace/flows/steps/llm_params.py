"""The parameters of `llm_call`, and the request that they describe.

Messages, tools and tool choices may be written in our own short form or as Chat Completions has them: people paste.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from tailrace.flows.definition.definition import Seconds
from tailrace.flows.steps.base import Params, StepError
from tailrace.flows.steps.images import MAX_IMAGE_BYTES, ImageParam, resolve
from tailrace.messages import Dialect, Image, JsonObject, Message, ModelRequest, NamedTool, Role, Text, ToolSpec, user
from tailrace.values.validation_words import decoding_problem
from tailrace.wire.chat.messages import ChatConversation
from tailrace.wire.client_request import InvalidRequest, ToolChoice


class ProviderParam(Params):
    """One of `providers`: whom to ask, in order."""

    provider: str = ""
    model: str = ""
    base_url: str = ""
    api_key_env: str = ""
    dialect: Dialect | None = None


class MessageParam(Params):
    role: Role
    content: str | list[JsonObject] | None = None
    tool_calls: list[JsonObject] = msgspec.field(default_factory=list)
    tool_call_id: str = ""
    name: str = ""


class LlmParams(Params, kw_only=True):
    messages: list[MessageParam] = msgspec.field(default_factory=list)
    prompt: str = ""  # a single message of the user's, after the others
    system: str = ""  # the system prompt
    provider: str = ""  # one of the config, or a preset; empty: the configured one
    model: str = ""  # empty: the configured one
    base_url: str = ""  # of an endpoint that the config does not have
    api_key_env: str = ""  # the variable that has its key, listed in flows.env_allow
    dialect: Dialect | None = None  # that it speaks
    providers: list[ProviderParam] = msgspec.field(default_factory=list)  # in order, in place of provider and model
    tools: list[JsonObject] = msgspec.field(default_factory=list)
    tool_choice: str | JsonObject | None = None
    parallel_tool_calls: bool | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    reasoning_effort: str | None = None
    extra: JsonObject = msgspec.field(default_factory=dict)
    images: list[ImageParam] = msgspec.field(default_factory=list)
    max_image_bytes: Annotated[int, Meta(ge=1)] = MAX_IMAGE_BYTES
    response_schema: JsonObject | None = None  # a JSON schema that the answer must satisfy
    max_repair_attempts: Annotated[int, Meta(ge=0, le=5)] = 2  # of an answer that does not
    stream: bool = False  # viewers see the answer while it grows
    # None: 30 for the idle time-out of a step, the config's for the others.
    stream_idle_timeout_secs: Seconds | None = None  # from the moment the stream is open
    first_token_timeout_secs: Seconds | None = None
    per_provider_timeout_secs: Seconds | None = None
    total_timeout_secs: Seconds | None = None
    dry_run: bool = False

    def refs(self) -> list[ProviderParam]:
        """Whom to ask, in order; one that says nothing is the configured model."""
        if self.providers:
            return self.providers
        return [ProviderParam(self.provider, self.model, self.base_url, self.api_key_env, self.dialect)]


async def request_of(params: LlmParams, directory: Path) -> ModelRequest:
    """The request, images read. Raises `StepError`."""
    messages = await _messages(params, directory)
    if params.prompt:
        messages.append(user(params.prompt))
    if params.images:
        messages = _with_images(messages, [await resolve(i, directory, params.max_image_bytes) for i in params.images])
    if not messages:
        raise StepError("nothing is asked: give messages or prompt", code="params")
    return ModelRequest(
        model=params.model,
        messages=tuple(messages),
        system=params.system,
        tools=tuple(map(_tool, params.tools)),
        tool_choice=_tool_choice(params.tool_choice),
        parallel_tool_calls=params.parallel_tool_calls,
        max_tokens=params.max_tokens,
        temperature=params.temperature,
        top_p=params.top_p,
        stop=(params.stop,) if isinstance(params.stop, str) else tuple(params.stop or ()),
        seed=params.seed,
        reasoning_effort=params.reasoning_effort,
        response_schema=params.response_schema,
        extra=params.extra,
        required=("reasoning_effort", "parallel_tool_calls"),  # as the definition has them, or refused by name
    )


async def _messages(params: LlmParams, directory: Path) -> list[Message]:
    conversation = ChatConversation()
    try:
        for index, message in enumerate(params.messages):
            conversation.add(await _chat_message(message, params, directory), f"messages[{index}]")
    except InvalidRequest as exc:
        raise StepError(str(exc), code="params") from exc
    return [*(Message("system", (Text(text),)) for text in conversation.system), *conversation.messages]


async def _chat_message(message: MessageParam, params: LlmParams, directory: Path) -> JsonObject:
    """The message as Chat Completions writes it, its images read."""
    content: object = message.content
    if message.role == "tool" and not isinstance(content, str):
        content = msgspec.json.encode(content).decode()
    elif isinstance(message.content, list):
        content = [await _part(block, params, directory) for block in message.content]
    return {
        "role": message.role,
        "content": "" if content is None else content,
        "tool_calls": [_tool_call(call) for call in message.tool_calls],
        "tool_call_id": message.tool_call_id or None,
    }


async def _part(block: JsonObject, params: LlmParams, directory: Path) -> JsonObject | Image:
    match block:
        case {"type": "text", "text": str()}:
            return block
        case {"type": "image_url", "image_url": str(url)} | {"type": "image_url", "image_url": {"url": str(url)}}:
            detail = block["image_url"].get("detail", "") if isinstance(block["image_url"], dict) else ""
            return await resolve(ImageParam(url=url, detail=detail), directory, params.max_image_bytes)
        case {"type": "image", "source": {"type": "base64", "data": str(data)} as source}:
            image = ImageParam(data=data, media_type=str(source.get("media_type", "")))
            return await resolve(image, directory, params.max_image_bytes)
        case {"type": "image"}:
            try:
                image = msgspec.convert(block, ImageParam)
            except msgspec.ValidationError as exc:
                raise StepError(f"an image: {decoding_problem(exc, ImageParam)}", code="params") from exc
            return await resolve(image, directory, params.max_image_bytes)
        case _:
            raise StepError(f"a part of a message is text or an image, not {block.get('type')!r}", code="params")


def _with_images(messages: list[Message], images: list[Image]) -> list[Message]:
    """Beside what the user said last."""
    for number in range(len(messages) - 1, -1, -1):
        if messages[number].role == "user":
            messages[number] = Message("user", (*messages[number].parts, *images))
            return messages
    return [*messages, Message("user", tuple(images))]


def _tool_call(call: JsonObject) -> JsonObject:
    function = call.get("function", call)
    named = {"name": str(function.get("name", "")), "arguments": function.get("arguments")}
    return {"id": str(call.get("id", "")), "function": named}


def _tool(tool: JsonObject) -> ToolSpec:
    spec = tool.get("function", tool)
    try:
        return msgspec.convert({key: value for key, value in spec.items() if key != "type"}, ToolSpec)
    except msgspec.ValidationError as exc:
        raise StepError(f"tools: {decoding_problem(exc, ToolSpec)}", code="params") from exc


def _tool_choice(choice: str | JsonObject | None) -> ToolChoice:
    match choice:
        case None | "auto" | "none" | "required":
            return choice
        case "any":
            return "required"
        case {"function": {"name": str(name)}} | {"name": str(name)}:
            return NamedTool(name)
        case _:
            raise StepError(f"tool_choice is auto, none, required or a tool's name, not {choice!r}", code="params")
