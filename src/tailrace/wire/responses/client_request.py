"""A client's request for a response, parsed: the reverse of `provider_request`."""

from __future__ import annotations

from typing import Any

import msgspec

from tailrace.messages import File, Image, JsonObject, Message, ModelRequest, Part, Reasoning, Text, ToolResult
from tailrace.wire import client_request as wire_request
from tailrace.wire import openai_request
from tailrace.wire.client_request import ClientRequest, Conversation, InvalidRequest, UnmappedFields, converted
from tailrace.wire.peer_json import text_of
from tailrace.wire.reasoning_seal import is_sealed, unsealed
from tailrace.wire.responses.client_tools import as_functions, call_as_function, choice_as_function
from tailrace.wire.responses.compaction import compacted_text
from tailrace.wire.responses.completion import completion_from_body
from tailrace.wire.responses.item_ids import is_own_approval, run_key_of, with_items_of_providers
from tailrace.wire.translation.web_search import NAME, from_tool, is_allowed, is_web_search

# Fields that ask nothing of a model: the server keeps them with the request or obeys them.
_KEPT = frozenset(
    {
        *("metadata", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"),
        *("store", "background", "previous_response_id", "conversation", "stream_options", "client_metadata"),
    }
)
_DEFAULTS: dict[str, tuple[Any, ...]] = {"truncation": ("disabled",), "top_logprobs": (0,)}
_MEANING = frozenset({"top_logprobs", "prompt"})  # log probabilities, and a prompt that is stored at the provider
_LOGPROBS = "message.output_text.logprobs"  # what else `include` can ask for is never in another dialect's answer
_WORDS = {"messages": "input", "reasoning_effort": "reasoning.effort", "verbosity": "text.verbosity"}
_RESULTS = ("function_call_output", "custom_tool_call_output")


class _Fields(msgspec.Struct):
    """The fields that the neutral request has a place for."""

    model: wire_request.Name
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
    include: list[str] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None


_KNOWN = frozenset(_Fields.__struct_fields__) | _KEPT


def parse_client_request(body: JsonObject) -> ClientRequest:
    """Raises `InvalidRequest`. What came before, by `previous_response_id` or `conversation`, is not in it."""
    fields = converted(body, _Fields)
    unmapped = UnmappedFields(body, known=_KNOWN, defaults=_DEFAULTS, meaning=_MEANING)
    if _LOGPROBS in (fields.include or ()):
        unmapped.only.append("include")
    conversation = _Conversation()
    for index, item in enumerate(items_of(fields.input)):
        conversation.add(item, f"input[{index}]")
    conversation.end_answer()
    reasoning = fields.reasoning or {}
    effort = reasoning.get("effort")
    form = fields.text or {}
    verbosity = form.get("verbosity")
    offered = fields.tools or []
    searches = [from_tool(tool) for tool in offered if is_web_search(tool) and is_allowed(fields.tool_choice)]
    others = [tool for tool in offered if not is_web_search(tool)]
    functions = openai_request.function_tools(as_functions(others), unmapped, nested=False)
    choice = choice_as_function(fields.tool_choice)
    if searches and is_web_search(choice):
        choice = {"type": "function", "name": NAME}
    request = ModelRequest(
        model=fields.model,
        messages=tuple(conversation.messages),
        system=fields.instructions or "",
        tools=openai_request.offered_tools(functions, choice, nested=False),
        tool_choice=openai_request.tool_choice(choice, unmapped, nested=False),
        web_search=next(iter(searches), None),
        parallel_tool_calls=fields.parallel_tool_calls,
        max_tokens=fields.max_output_tokens,
        temperature=fields.temperature,
        top_p=fields.top_p,
        reasoning_effort=effort if isinstance(effort, str) else None,
        response_schema=openai_request.response_schema(form.get("format"), "text.format", unmapped, nested=False),
        json_object=openai_request.is_json_object(form.get("format")),
        verbosity=verbosity if isinstance(verbosity, str) else None,
        service_tier=openai_request.service_tier(fields.service_tier),
    )
    client_request = ClientRequest(
        "responses",
        request,
        with_items_of_providers(body),
        stream=bool(fields.stream),
        user=fields.safety_identifier or fields.user or "",
        opaque_at=conversation.opaque_at,
        reasoning=reasoning.get("summary") is not None or reasoning.get("generate_summary") is not None,
        words=_WORDS,
    )
    return unmapped.apply_to(client_request)


def items_of(given: str | list[JsonObject]) -> list[JsonObject]:
    """The input as items: a text is one message of the user's."""
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": given}]}]
    return given


def _returned(part: Part) -> Part:
    """A part of an answer that the client returns: reasoning of another dialect is under our seal (K131), or its
    text."""
    if not isinstance(part, Reasoning) or part.native is None:
        return part
    if is_sealed(sealed := part.native.get("encrypted_content")):
        return unsealed(part.text, sealed)
    return Reasoning(part.text) if run_key_of(part.native) is not None else part


class _Conversation(Conversation):
    """The items of the input. Consecutive items of the model's are one message."""

    def __init__(self) -> None:
        super().__init__("responses")
        self._answer_items: list[JsonObject] = []  # items of the model's that are not a message yet

    def add(self, item: JsonObject, where: str) -> None:
        """Adds the item that stands at `where`. Raises `InvalidRequest`."""
        kind, role = item.get("type"), item.get("role")
        if is_own_approval(item):
            return
        if kind in (None, "message") and role == "assistant":
            content = item.get("content")
            parts = [{"type": "output_text", "text": content}] if isinstance(content, str) else content
            self._answer_items.append({"type": "message", "content": parts, "phase": item.get("phase")})
        elif kind in (None, "message"):
            self.end_answer()
            self._add_message(item, role, where)
        elif kind in _RESULTS:
            self.end_answer()
            self._add_output(item, where)
        elif kind == "item_reference":  # its provider knows it, now and when a later response goes on from this one
            self.opaque_at = self.opaque_at or where
            self._answer_items.append(item)
        elif (summary := compacted_text(item)) is not None:
            self.end_answer()
            self.messages.append(Message("user", (Text(summary),)))
        elif isinstance(kind, str):
            self._answer_items.append(call_as_function(item))
        else:
            raise InvalidRequest("expected an object with a type", where)

    def end_answer(self) -> None:
        """Makes a message of the model's items so far."""
        if self._answer_items:
            answer = completion_from_body({"output": self._answer_items}).message
            self.messages.append(Message("assistant", tuple(map(_returned, answer.parts))))
            self._answer_items = []

    def _add_message(self, item: JsonObject, role: object, where: str) -> None:
        parts = tuple(self.parts_of(item.get("content"), f"{where}.content"))
        match role:
            case "user":
                self.messages.append(Message("user", parts))
            case "system" | "developer":
                self.messages.append(Message("system", parts))
            case _:
                raise wire_request.unknown_role(role, where)

    def _add_output(self, item: JsonObject, where: str) -> None:
        call_id, output = item.get("call_id"), item.get("output")
        if not isinstance(call_id, str):
            raise InvalidRequest("names the call that this is the result of", f"{where}.call_id")
        parts = self.parts_of(output, f"{where}.output")
        content = tuple(part for part in parts if isinstance(part, Text | Image | File))
        self.add_result(ToolResult(call_id, output if isinstance(output, str) else content))

    def neutral_part(self, part: JsonObject, where: str) -> Part | None:
        match part:
            case {"type": "input_text" | "output_text" | "text", "text": str(text)}:
                return Text(text)
            case {"type": "input_image", "image_url": str(url), **more}:
                return openai_request.image_of(url, more.get("detail"), f"{where}.image_url")
            case {"type": "input_file"}:
                return openai_request.file_of(part, text_of(part.get("file_url")))
            case _:
                return None
