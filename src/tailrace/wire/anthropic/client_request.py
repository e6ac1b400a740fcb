"""A client's Messages request, parsed: the reverse of `provider_request`."""

from __future__ import annotations

from typing import Any

import msgspec

from tailrace import messages
from tailrace.messages import File, Image, JsonObject, Message, ModelRequest, NamedTool, Part, Reasoning, Text, ToolSpec
from tailrace.wire import client_request as wire_request
from tailrace.wire.anthropic.completion import completion_from_body
from tailrace.wire.client_request import (
    ClientRequest,
    Conversation,
    InvalidRequest,
    ToolChoice,
    UnmappedFields,
    converted,
    image_url,
    joined_text,
    result_content,
    unknown_role,
)
from tailrace.wire.peer_json import object_of, objects_of, text_of
from tailrace.wire.reasoning_seal import is_sealed, unsealed
from tailrace.wire.translation.citations import is_foreign_page
from tailrace.wire.translation.web_search import from_tool, is_web_search

_DEFAULTS: dict[str, tuple[Any, ...]] = {
    "service_tier": ("auto", "standard_only"),
    "mcp_servers": ([],),
    "context_management": ({},),
    "diagnostics": ({},),
    "speed": ("standard",),
}
# Where the model runs and how fast, what it is given to work with, and how much it may spend.
_MEANING = frozenset({"mcp_servers", "container", "inference_geo", "speed"})
_TASK_BUDGET = "task_budget"
# Edits that shorten the provider's context: without them the model sees all of it.
_SHORTENING_EDITS = ("clear_", "compact_")
_BILLING_LINE = "x-anthropic-billing-header:"  # for Anthropic alone; it changes, and would spoil other caches
_WORDS = {"stop": "stop_sequences", "parallel_tool_calls": "tool_choice.disable_parallel_tool_use"}
_LOW_BUDGET, _HIGH_BUDGET = 4096, 16_384  # tokens: a smaller budget is low effort, a larger one high
_CLAUDE = "claude"  # refuses thinking that it has not signed; other models of this API may want theirs back unsigned
_CLAUDE_CALL = "toolu_"  # how the ids of its calls begin


class _Metadata(msgspec.Struct):
    user_id: str | None = None


class _Fields(msgspec.Struct):
    """The fields that the neutral request has a place for."""

    model: wire_request.Name
    messages: list[JsonObject]
    max_tokens: int
    stream: bool | None = None
    system: str | list[JsonObject] | None = None
    tools: list[JsonObject] | None = None
    tool_choice: JsonObject | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop_sequences: list[str] | None = None
    thinking: JsonObject | None = None
    output_config: JsonObject | None = None
    metadata: _Metadata | None = None
    cache_control: JsonObject | None = None  # changes the price, not the answer
    thread: JsonObject | None = None


class _Tool(msgspec.Struct):
    name: str
    input_schema: JsonObject
    description: str | None = None
    strict: bool | None = None


def parse_client_request(body: JsonObject) -> ClientRequest:
    """Raises `InvalidRequest`."""
    fields = converted(body, _Fields)
    if fields.max_tokens < 0:
        raise InvalidRequest("expected a number of 0 or more", "max_tokens")
    if fields.thread is not None:
        raise wire_request.ThreadsUnsupported
    if not fields.messages:
        raise InvalidRequest("at least one is needed", "messages")
    unmapped = UnmappedFields(body, known=_Fields.__struct_fields__, defaults=_DEFAULTS, meaning=_MEANING)
    if fields.max_tokens == 0:
        unmapped.only.append("max_tokens")  # it warms Anthropic's cache, and asks for no answer
    if not _only_shortens(body.get("context_management")):
        unmapped.only.append("context_management")
    conversation = _Conversation("anthropic")
    for index, message in enumerate(fields.messages):
        conversation.add(message, f"messages[{index}]")
    choice, parallel = _choice(fields.tool_choice)
    config = fields.output_config or {}
    for name in (name for name in config if name not in ("effort", "format")):
        (unmapped.only if name == _TASK_BUDGET else unmapped.optional).append(f"output_config.{name}")
    request = ModelRequest(
        model=fields.model,
        messages=tuple(conversation.messages),
        system=_system(fields.system),
        tools=_tools(fields.tools or [], choice, unmapped),
        tool_choice=choice,
        web_search=next((from_tool(tool) for tool in fields.tools or [] if is_web_search(tool)), None),
        parallel_tool_calls=parallel,
        max_tokens=fields.max_tokens,
        max_answer_bytes=messages.MAX_RAW_ANSWER_BYTES,
        temperature=fields.temperature,
        top_p=fields.top_p,
        stop=tuple(fields.stop_sequences or ()),
        reasoning_effort=_effort(fields.thinking, config.get("effort")),
        response_schema=_schema(config.get("format")),
    )
    thinks = fields.thinking is not None and fields.thinking.get("type") in ("enabled", "adaptive")
    sent = _with_thinking_of_providers(body)
    client_request = ClientRequest(
        "anthropic",
        request,
        sent,
        stream=bool(fields.stream),
        user=(fields.metadata.user_id if fields.metadata else None) or "",
        opaque_at=conversation.opaque_at,
        reasoning=thinks,
        words={**_WORDS, "reasoning_effort": "output_config.effort" if "effort" in config else "thinking"},
        withheld_fields=("thinking",) if sent.get("thinking") != body.get("thinking") else (),
    )
    return unmapped.apply_to(client_request)


class _Conversation(Conversation):
    def add(self, message: JsonObject, where: str) -> None:
        """Adds the message that stands at `where`. Raises `InvalidRequest`."""
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not isinstance(blocks, list):
            raise InvalidRequest("expected a text or a list of blocks", f"{where}.content")
        match message.get("role"):
            case "user":
                self.messages.append(Message("user", tuple(self.parts_of(blocks, f"{where}.content"))))
            case "assistant":
                answer = completion_from_body({"content": blocks}).message
                self.messages.append(Message("assistant", tuple(map(_returned_part, answer.parts))))
            case "system":
                text = "".join(block["text"] for block in blocks if _is_text(block))
                self.messages.append(Message("system", (Text(text),)))
            case role:
                raise unknown_role(role, where)

    def neutral_part(self, part: JsonObject, where: str) -> Part | None:
        match part:
            case {"type": "text", "text": str(text)}:
                return Text(text)
            case {"type": "image", "source": dict(source)}:
                return _image(source, f"{where}.source")
            case {"type": "document", "source": dict(source)}:
                return self._document(part, source, where)
            case {"type": "search_result", "content": list(found)}:
                texts = joined_text(self.parts_of(found, f"{where}.content", "blocks"))
                return _titled_text(part, texts, text_of(part.get("source")))
            case {"type": "tool_result", "tool_use_id": str(call_id)}:
                content = part.get("content")
                parts = self.parts_of("" if content is None else content, f"{where}.content", "blocks")
                return messages.ToolResult(call_id, result_content(parts), not part.get("is_error"))
            case _:
                return None

    def _document(self, block: JsonObject, source: JsonObject, where: str) -> Part | None:
        """None for a file that Anthropic keeps."""
        name = text_of(block.get("title"))
        match source:
            case {"type": "base64", "data": str(data), **more}:
                return File(data=data, media_type=text_of(more.get("media_type")), name=name)
            case {"type": "url", "url": str(url)}:
                return File(url=url, name=name)
            case {"type": "text", "data": str(text)}:
                return _titled_text(block, text)
            case {"type": "content", "content": content}:
                return _titled_text(block, joined_text(self.parts_of(content, f"{where}.source.content", "blocks")))
            case _:
                return None


def _titled_text(block: JsonObject, text: str, source: str = "") -> Text:
    """A document or a search result of plain text, with what tells it from the others."""
    heading = " ".join(filter(None, (text_of(block.get("title")), source)))
    return Text(f"{heading}\n{text}" if heading else text)


def _is_text(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)


def _image(source: JsonObject, where: str) -> Image | None:
    match source:
        case {"type": "base64", "data": str(data), **more}:
            media_type = text_of(more.get("media_type"))
            if media_type and not media_type.lower().startswith("image/"):
                raise InvalidRequest(f"not an image's: {media_type[:40]}", f"{where}.media_type")
            return Image(data=data, media_type=media_type)
        case {"type": "url", "url": str(url)}:
            return Image(url=image_url(url, f"{where}.url"))
        case _:
            return None


def _system(system: str | list[JsonObject] | None) -> str:
    if system is None or isinstance(system, str):
        return system or ""
    if not all(_is_text(block) for block in system):
        raise InvalidRequest("expected a text or a list of text blocks", "system")
    return "\n\n".join(block["text"] for block in system if not block["text"].startswith(_BILLING_LINE))


def _only_shortens(management: object) -> bool:
    """It asks for nothing but edits that shorten the context."""
    if management is None:
        return True
    edits = management.get("edits") if isinstance(management, dict) else None
    return all(text_of(edit.get("type")).startswith(_SHORTENING_EDITS) for edit in objects_of(edits))


def _tools(tools: list[JsonObject], choice: ToolChoice, unmapped: UnmappedFields) -> tuple[ToolSpec, ...]:
    specs: list[ToolSpec] = []
    for index, tool in enumerate(tools):
        if is_web_search(tool):
            continue
        if (kind := tool.get("type")) not in (None, "custom"):  # a tool that Anthropic runs or defines
            unmapped.optional.append(f"tools.{text_of(kind)}")
            if isinstance(choice, NamedTool) and choice.name == tool.get("name"):
                unmapped.only.append("tool_choice")
            continue
        known = converted(tool, _Tool, f"tools[{index}]")
        specs.append(ToolSpec(known.name, known.description or "", known.input_schema, known.strict))
    return tuple(specs)


def _choice(choice: JsonObject | None) -> tuple[ToolChoice, bool | None]:
    if choice is None:
        return None, None
    disabled = choice.get("disable_parallel_tool_use")
    parallel = not disabled if isinstance(disabled, bool) else None
    match choice:
        case {"type": "auto"}:
            return "auto", parallel
        case {"type": "none"}:
            return "none", None
        case {"type": "any"}:
            return "required", parallel
        case {"type": "tool", "name": str(name)}:
            return NamedTool(name), parallel
        case _:
            raise InvalidRequest("expected auto, any, none or a tool", "tool_choice")


def _effort(thinking: JsonObject | None, effort: object) -> str | None:
    """How hard to think, as the other dialects name it."""
    if isinstance(effort, str):
        return effort
    match thinking:
        case {"type": "enabled", "budget_tokens": int(budget)}:
            return "low" if budget < _LOW_BUDGET else "high" if budget > _HIGH_BUDGET else "medium"
        case None | {"type": "enabled" | "adaptive" | "disabled"}:
            return None
        case _:
            raise InvalidRequest("expected enabled, adaptive or disabled", "thinking.type")


def _schema(form: object) -> JsonObject | None:
    match form:
        case None:
            return None
        case {"type": "json_schema", "schema": dict(schema)}:
            return schema
        case _:
            raise InvalidRequest("expected a json_schema", "output_config.format")


# ── thinking that a client returns: unsealed where the seal is ours, removed where the provider would refuse it ──


def _returned_part(part: Part) -> Part:
    """The part, with reasoning under a seal of ours as the other provider that made it sent it (K131)."""
    if isinstance(part, Reasoning) and part.native is not None and is_sealed(sealed := _opaque_text(part.native)):
        return unsealed(part.text, sealed)
    return part


def _opaque_text(block: JsonObject) -> object:
    return block.get("data") if block.get("type") == "redacted_thinking" else block.get("signature")


def _without_foreign_pages(block: Any) -> Any:
    """A text block without the citations that another provider's text was given (`Citation.page`)."""
    citations = block.get("citations") if isinstance(block, dict) else None
    if not isinstance(citations, list) or not any(map(is_foreign_page, citations)):
        return block
    kept = [citation for citation in citations if not is_foreign_page(citation)]
    rest = {name: value for name, value in block.items() if name != "citations"}
    return {**rest, "citations": kept} if kept else rest


def _with_thinking_of_providers(body: JsonObject) -> JsonObject:
    """A request's body for a provider of this dialect, without the thinking of other providers, which it would refuse.
    A model with a budget for thinking must begin a turn with tools by thinking: a turn that another provider began goes
    on without a budget until it is over."""
    claude = _CLAUDE in text_of(body.get("model"))

    def is_foreign(block: JsonObject) -> bool:
        if block.get("type") not in ("thinking", "redacted_thinking"):
            return False
        opaque = _opaque_text(block)
        return is_sealed(opaque) or (claude and not opaque)

    messages: list[JsonObject] = []
    changed = False
    for message in objects_of(body.get("messages")):
        content = message.get("content")
        kept = content
        if message.get("role") == "assistant" and isinstance(content, list):
            kept = [
                _without_foreign_pages(block)
                for block in content
                if not (isinstance(block, dict) and is_foreign(block))
            ]
        if kept == content:
            messages.append(message)
            continue
        changed = True
        if kept:  # the API refuses an empty message
            messages.append({**message, "content": kept})
    sent = {**body, "messages": messages} if changed else body
    if not _goes_on_without_thinking(sent):
        return sent
    return _without_budget(sent) if changed or (claude and _has_foreign_calls(messages)) else sent


def _goes_on_without_thinking(body: JsonObject) -> bool:
    """Tools have answered, there is a budget for thinking, and the answer with the calls does not begin with it."""
    if object_of(body.get("thinking")).get("type") != "enabled":
        return False
    nothing: JsonObject = {}
    *_, answer, last = [nothing, nothing, *objects_of(body.get("messages"))]
    first = [block.get("type") for block in objects_of(answer.get("content"))[:1]]
    answered = any(block.get("type") == "tool_result" for block in objects_of(last.get("content")))
    return answered and first not in (["thinking"], ["redacted_thinking"])


def _has_foreign_calls(messages: list[JsonObject]) -> bool:
    """A stand-in of Claude has called tools, and need not have thought."""
    calls = (block for message in messages for block in objects_of(message.get("content")))
    return any(
        block.get("type") == "tool_use" and not text_of(block.get("id")).startswith(_CLAUDE_CALL) for block in calls
    )


def _without_budget(body: JsonObject) -> JsonObject:
    """The body without a budget for thinking, and without edits of thinking, which the API refuses then."""
    paused: JsonObject = {**body, "thinking": {"type": "disabled"}}
    management = object_of(body.get("context_management"))
    if edits := objects_of(management.get("edits")):
        kept = [edit for edit in edits if not text_of(edit.get("type")).startswith("clear_thinking")]
        paused["context_management"] = {**management, "edits": kept}
    return paused
