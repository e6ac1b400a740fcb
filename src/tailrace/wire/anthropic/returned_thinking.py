"""Thinking that a client returns: unsealed where the seal is ours, removed where the provider would refuse it."""

from __future__ import annotations

from typing import Any

from tailrace.messages import JsonObject, Part, Reasoning
from tailrace.wire.peer_json import object_of, objects_of, text_of
from tailrace.wire.reasoning_seal import is_sealed, unsealed
from tailrace.wire.translation.citations import is_foreign_page

_CLAUDE = "claude"  # refuses thinking that it has not signed; other models of this API may want theirs back unsigned
_CLAUDE_CALL = "toolu_"  # how the ids of its calls begin


def returned_part(part: Part) -> Part:
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


def with_thinking_of_providers(body: JsonObject) -> JsonObject:
    """A request's body for a provider of this dialect: without the thinking of other providers, which it would refuse.
    The same body where there is none.

    A model with a budget for thinking must begin a turn with tools by thinking. A turn that another provider began goes
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
