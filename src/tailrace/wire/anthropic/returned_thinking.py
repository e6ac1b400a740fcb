"""Thinking that a client returns: what it was where it is under a seal of ours, and what a provider is sent of it."""

from __future__ import annotations

from tailrace.messages import JsonObject, Part, Reasoning
from tailrace.wire.peer_json import objects_of, text_of
from tailrace.wire.reasoning_seal import is_sealed, unsealed

_CLAUDE = "claude"  # refuses thinking that it has not signed; other models of this API may want theirs back unsigned


def returned_part(part: Part) -> Part:
    """A part of an answer as it was before it went out: reasoning under a seal of ours is a chat provider's (K131)."""
    if isinstance(part, Reasoning) and part.native is not None and is_sealed(part.native.get("signature")):
        return unsealed(part.text, part.native["signature"])
    return part


def with_thinking_of_providers(body: JsonObject) -> JsonObject:
    """A request's body for a provider of this dialect: without the thinking of other providers, which it would refuse.
    The same body where there is none."""
    claude = _CLAUDE in text_of(body.get("model"))

    def is_foreign(block: JsonObject) -> bool:
        signature = block.get("signature")
        return block.get("type") == "thinking" and (is_sealed(signature) or (claude and not signature))

    messages: list[JsonObject] = []
    changed = False
    for message in objects_of(body.get("messages")):
        content = message.get("content")
        kept = content
        if message.get("role") == "assistant" and isinstance(content, list):
            kept = [block for block in content if not (isinstance(block, dict) and is_foreign(block))]
        if kept == content:
            messages.append(message)
            continue
        changed = True
        if kept:  # the API refuses an empty message
            messages.append({**message, "content": kept})
    return {**body, "messages": messages} if changed else body
