"""Compaction items of ours: a conversation as one opaque item, for the input of any later request.

It holds the text that stands for the conversation. It is no secret, and a client could have written it itself.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from tailrace.messages import JsonObject

_PREFIX: Final = "tr1c."


def compaction_item(item_id: str, text: str) -> JsonObject:
    coded = base64.urlsafe_b64encode(text.encode("utf-8", "replace")).decode()
    return {"id": item_id, "type": "compaction", "encrypted_content": _PREFIX + coded}


def compacted_text(item: JsonObject) -> str | None:
    """What the item stands for; None for an item of another kind or maker."""
    sealed = item.get("encrypted_content")
    if item.get("type") != "compaction" or not isinstance(sealed, str) or not sealed.startswith(_PREFIX):
        return None
    try:
        return base64.urlsafe_b64decode(sealed.removeprefix(_PREFIX)).decode()
    except (binascii.Error, ValueError):
        return None


def as_message(item: JsonObject) -> JsonObject:
    """The item as its provider can read it: a message where it is a compaction item of ours."""
    if (text := compacted_text(item)) is None:
        return item
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
