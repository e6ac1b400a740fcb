"""The ids of items that we made name the run whose answer they are part of. No provider knows such an id: a message and
a call are sent without it, reasoning is not sent at all (K127)."""

from __future__ import annotations

import re

from tailrace.messages import JsonObject
from tailrace.wire.reasoning_seal import is_sealed
from tailrace.wire.responses.compaction import as_message, compacted_text

APPROVAL_REQUEST = "mcp_approval_request"
_APPROVALS = {APPROVAL_REQUEST: "id", "mcp_approval_response": "approval_request_id"}
_OURS = re.compile(r"(?:rs|msg|fc|in)_([0-9a-f]{24})_[0-9]+")  # as the encoder and the list of input items make them


def run_key_of(item: JsonObject) -> str | None:
    """What the ids of our runs have after their prefix, from an item of ours or a reference; None for any other."""
    item_id = item.get("id")
    made = _OURS.fullmatch(item_id) if isinstance(item_id, str) else None
    return made[1] if made else None


def is_own_approval(item: JsonObject) -> bool:
    """Whether it is a question of our agent's, or an answer to one: nothing for a model to read."""
    named = item.get(_APPROVALS.get(str(item.get("type")), ""))
    return isinstance(named, str) and named.startswith("apr_")


def is_reference(item: object) -> bool:
    return isinstance(item, dict) and item.get("type") == "item_reference"


def has_lost_its_seal(item: object) -> bool:
    """Reasoning of our making that a client returns without its encrypted content."""
    return (
        isinstance(item, dict)
        and item.get("type") == "reasoning"
        and not item.get("encrypted_content")
        and run_key_of(item) is not None
    )


def with_items_of_providers(body: JsonObject) -> JsonObject:
    """A request's body for a provider of this dialect: the same one where no item of ours is in it."""
    items = body.get("input")
    if not isinstance(items, list) or not any(map(_is_ours, items)):
        return body
    kept = [
        as_message(item)
        for item in items
        if not _is_ours(item) or not (item.get("type") == "reasoning" or is_own_approval(item))
    ]
    without_ids = [
        item if run_key_of(item) is None else {name: value for name, value in item.items() if name != "id"}
        for item in kept
    ]
    return {**body, "input": without_ids}


def _is_ours(item: JsonObject) -> bool:
    ours = run_key_of(item) is not None or is_sealed(item.get("encrypted_content")) or is_own_approval(item)
    return ours or compacted_text(item) is not None
