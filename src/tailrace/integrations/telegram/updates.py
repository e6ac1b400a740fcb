"""Updates on their way into the client library: one that it cannot read is passed over and holds up no other.

A Bot API server of another version than the library's may leave out a field that the library requires. The offset
confirms updates in their order, so such an update would come back with every poll.
"""

from __future__ import annotations

import logging
from typing import Any

import telegram

from tailrace.integrations.telegram.replies import Connections

log = logging.getLogger("tailrace.integrations.telegram")
NONSENSE = (AttributeError, KeyError, TypeError, ValueError)  # what the library raises for an object it cannot read


class UpdateConnections(Connections):
    """The connections for `getUpdates`."""

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        answer = Connections.parse_json_payload(payload)
        if isinstance(updates := answer.get("result"), list):
            answer["result"] = [readable(update) for update in updates]
        return answer


def readable(update: Any) -> Any:
    """The update, or only its id where the library cannot read it. One without an id is left to the library."""
    if not isinstance(update, dict) or not isinstance(update_id := update.get("update_id"), int):
        return update
    try:
        telegram.Update.de_json(update, None)
    except NONSENSE as exc:
        log.warning("telegram: update %d is passed over: the client library cannot read it: %s", update_id, exc)
        return {"update_id": update_id}
    return update
