"""The ids of items that we made, and their removal from requests to providers.

An item of our making names the run whose answer it is part of. No provider knows it, so the id never reaches one: a
message and a call are sent without it, reasoning is not sent at all (K127).
"""

from __future__ import annotations

import re

from tailrace.messages import JsonObject
from tailrace.wire.reasoning_seal import is_sealed

_OURS = re.compile(r"(?:rs|msg|fc|in)_([0-9a-f]{24})_[0-9]+")  # as the encoder and the list of input items make them


def run_key_of(item: JsonObject) -> str | None:
    """What the ids of our runs and responses have after their prefix, from an item of ours or a reference to one; None
    for any other item."""
    item_id = item.get("id")
    made = _OURS.fullmatch(item_id) if isinstance(item_id, str) else None
    return made[1] if made else None


def is_reference(item: object) -> bool:
    return isinstance(item, dict) and item.get("type") == "item_reference"


def has_lost_its_seal(item: object) -> bool:
    """Reasoning of our making that a client returns without its encrypted content, as for models that it thinks have
    none."""
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
    kept = [_without_our_id(item) for item in items if item.get("type") != "reasoning" or not _is_ours(item)]
    return {**body, "input": kept}


def _is_ours(item: JsonObject) -> bool:
    return run_key_of(item) is not None or is_sealed(item.get("encrypted_content"))


def _without_our_id(item: JsonObject) -> JsonObject:
    if run_key_of(item) is None:
        return item
    return {name: value for name, value in item.items() if name != "id"}
