"""One answer out of several attempts: the text of the earlier ones in the body of the last.

Owns where each dialect's body keeps its text and its tool calls. The result is read back by the dialect's own
reader, so the completion says what its body says.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import msgspec

from tailrace.messages import Completion, JsonObject
from tailrace.wire.dialects import DIALECTS

MARK = "tailrace"  # the field in which a joined body says so


def can_be_continued(partial: Completion) -> bool:
    """One text can be gone on from; several alternatives at once cannot."""
    return partial.dialect != "chat" or len(_objects(partial.body.get("choices"))) <= 1


def continued(last: Completion, *, shown: str, removed: int) -> Completion:
    """`last`, whose text goes on from `shown` but for its first `removed` characters, as one answer."""
    body = copy.deepcopy(last.body)
    slots = list(_text_slots(last, body))
    for holder, key in slots:
        text = holder[key]
        holder[key] = text[removed:]
        removed -= min(removed, len(text))
    if slots:
        holder, key = slots[0]
        holder[key] = shown + holder[key]
    else:
        _insert_text(last, body, shown)
    body[MARK] = {"continued": True, "shown_characters": len(shown)}
    joined = DIALECTS[last.dialect].completion_from_body(body)
    if not last.stop_sequence:
        return joined
    return msgspec.structs.replace(joined, finish_reason=last.finish_reason, stop_sequence=last.stop_sequence)


def without_calls(partial: Completion) -> Completion:
    """A cut answer as it may be kept: no call of it was received for certain, so none is in it (B34)."""
    if not partial.tool_calls:
        return partial
    body = copy.deepcopy(partial.body)
    match partial.dialect:
        case "chat":
            for choice in _objects(body.get("choices")):
                if isinstance(message := choice.get("message"), dict):
                    message.pop("tool_calls", None)
                    message.pop("function_call", None)
        case "responses":
            body["output"] = [i for i in _objects(body.get("output")) if not str(i.get("type")).endswith("_call")]
        case "anthropic":
            body["content"] = [b for b in _objects(body.get("content")) if b.get("type") != "tool_use"]
    return DIALECTS[partial.dialect].completion_from_body(body)


def _text_slots(completion: Completion, body: JsonObject) -> Iterator[tuple[JsonObject, str]]:
    """The objects that hold the answer's text, in order, with the key under which they do."""
    match completion.dialect:
        case "chat":
            message = _chat_message(body)
            if isinstance(message.get("content"), str):
                yield message, "content"
            else:
                yield from _text_parts(message.get("content"))
        case "responses":
            for item in _objects(body.get("output")):
                if item.get("type") == "message":
                    yield from _text_parts(item.get("content"))
        case "anthropic":
            yield from _text_parts(body.get("content"))


def _text_parts(parts: object) -> Iterator[tuple[JsonObject, str]]:
    for part in _objects(parts):
        if part.get("type") in ("text", "output_text") and isinstance(part.get("text"), str):
            yield part, "text"


def _insert_text(completion: Completion, body: JsonObject, text: str) -> None:
    """For a last attempt that had none of its own: before its calls, after its thoughts."""
    match completion.dialect:
        case "chat":
            _chat_message(body)["content"] = text
        case "responses":
            item = {
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": text, "annotations": []}],
            }
            _insert(body, "output", item, before="_call")
        case "anthropic":
            _insert(body, "content", {"type": "text", "text": text}, before="tool_use")


def _insert(body: JsonObject, key: str, item: JsonObject, *, before: str) -> None:
    items: list[Any] = body.setdefault(key, [])
    at = next((i for i, other in enumerate(_objects(items)) if str(other.get("type")).endswith(before)), len(items))
    items.insert(at, item)


def _chat_message(body: JsonObject) -> JsonObject:
    if not _objects(body.get("choices")):
        body["choices"] = [{"index": 0, "finish_reason": None, "message": {"role": "assistant"}}]
    message: JsonObject = body["choices"][0].setdefault("message", {"role": "assistant"})
    return message


def _objects(value: object) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
