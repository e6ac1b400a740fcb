"""What `GET /v1/models` says: every word that can be a model's name by itself."""

from __future__ import annotations

import msgspec

from tailrace.messages import JsonObject
from tailrace.testing.provider.replies import REPLIES
from tailrace.testing.scripted.request_reader import CREATED


def models_body(*, anthropic: bool) -> bytes:
    """In the words of the family that asked: Anthropic's clients always send their version header."""
    names = list(REPLIES)
    if anthropic:
        made = "2025-10-09T08:53:20Z"
        data = [{"type": "model", "id": name, "display_name": name, "created_at": made} for name in names]
        said: JsonObject = {"data": data, "has_more": False, "first_id": names[0], "last_id": names[-1]}
    else:
        data = [{"id": name, "object": "model", "created": CREATED, "owned_by": "tailrace"} for name in names]  # type: ignore[dict-item]
        said = {"object": "list", "data": data}
    return msgspec.json.encode(said)
