"""Cache marks: the Messages API caches a prompt up to the blocks that the request marks, and no other.

A turn calls the model again and again with the same beginning: each call reads what the last one has written.
"""

from __future__ import annotations

from typing import Final

from tailrace.messages import JsonObject
from tailrace.wire.peer_json import objects_of

MARK: Final[JsonObject] = {"type": "ephemeral"}
CACHE_MARKS: Final = "cache_control"  # the field of a block
_MAX_MARKS: Final = 4  # that the API takes in one request
_MARKABLE: Final = frozenset({"text", "image", "document", "tool_use", "tool_result"})


def with_cache_marks(body: JsonObject) -> JsonObject:
    """The body with marks at the end of its tools, its system prompt and its last message of a user, as far as blocks
    of the conversation have left any."""
    messages = objects_of(body.get("messages"))
    left = _MAX_MARKS - sum(
        CACHE_MARKS in block for message in messages for block in objects_of(message.get("content"))
    )
    marked = dict(body)
    if left > 0 and (spoken := _with_mark(messages)) is not None:
        marked["messages"], left = spoken, left - 1
    if left > 0 and isinstance(system := body.get("system"), str):
        marked["system"], left = [{"type": "text", "text": system, CACHE_MARKS: MARK}], left - 1
    if left > 0 and (tools := objects_of(body.get("tools"))):
        marked["tools"] = [*tools[:-1], {**tools[-1], CACHE_MARKS: MARK}]
    return marked


def _with_mark(messages: list[JsonObject]) -> list[JsonObject] | None:
    """The messages with a mark on the last block of the last one of a user; None where there is no place for it."""
    for at in reversed(range(len(messages))):
        blocks = objects_of(messages[at].get("content"))
        if messages[at].get("role") != "user" or not blocks:
            continue
        last = blocks[-1]
        if last.get("type") not in _MARKABLE or CACHE_MARKS in last:
            return None
        return [
            *messages[:at],
            {**messages[at], "content": [*blocks[:-1], {**last, CACHE_MARKS: MARK}]},
            *messages[at + 1 :],
        ]
    return None
