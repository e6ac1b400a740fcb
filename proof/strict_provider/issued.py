"""What the provider has handed out and recognises: its items, its responses, and the seals on its thoughts.

A signature and encrypted content are checked by making them anew, so they hold across restarts. Items and responses
are remembered, those of `store: false` as made but not kept.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

from proof.strict_provider.wording import objects_in
from tailrace.messages import JsonObject, Value

_SEAL = "gAAAAAB"  # how OpenAI's encrypted content begins


def thinking_signature(thinking: str) -> str:
    """The one signature with which this thought is accepted again."""
    digest = hashlib.sha512(b"thinking" + thinking.encode(errors="surrogatepass")).digest()
    return "Eu" + base64.b64encode(digest).decode()


def encrypted_for(item_id: str) -> str:
    """Encrypted content that is bound to the item."""
    proof = hashlib.sha256(b"item" + item_id.encode()).hexdigest()
    return _SEAL + base64.urlsafe_b64encode(f"{proof}:{item_id}".encode()).decode()


def item_of_encrypted(content: str) -> str | None:
    """The item that encrypted content is bound to; None for content that is not of this provider."""
    try:
        opened = base64.urlsafe_b64decode(content.removeprefix(_SEAL)).decode()
    except ValueError:
        return None
    item_id = opened.partition(":")[2]
    return item_id if encrypted_for(item_id) == content else None


class _Made(Value):
    item: JsonObject
    persisted: bool
    thought_before: str | None


@dataclass(frozen=True)
class _Stored:
    items: list[JsonObject]  # what was asked and what was answered, in order


class Issued:
    """Everything that a provider has made so far."""

    def __init__(self) -> None:
        self._items: dict[str, _Made] = {}
        self._responses: dict[str, _Stored] = {}
        self._reasoning: dict[str, str] = {}  # by the id of a chat tool call

    def add_response(self, body: JsonObject, response: JsonObject) -> None:
        stored = body.get("store") is not False
        thought: str | None = None
        for item in response["output"]:
            self._items[item["id"]] = _Made(item, stored, thought)
            thought = item["id"] if item["type"] == "reasoning" else None
        if stored:
            self._responses[response["id"]] = _Stored([*self.whole_input(body), *response["output"]])

    def add_chat(self, response: JsonObject) -> None:
        message = response["choices"][0]["message"]
        for call in message.get("tool_calls", ()):
            self._reasoning[call["id"]] = message.get("reasoning_content", "")

    def made(self, item_id: str) -> bool:
        return item_id in self._items

    def persisted(self, item_id: str) -> bool:
        return item_id in self._items and self._items[item_id].persisted

    def thought_before(self, item_id: str) -> str | None:
        return self._items[item_id].thought_before if item_id in self._items else None

    def knows_response(self, response_id: str) -> bool:
        return response_id in self._responses

    def reasoning_of_call(self, call_id: str) -> str:
        return self._reasoning.get(call_id, "")

    def whole_input(self, body: JsonObject) -> list[JsonObject]:
        """The items of a request with those of its previous response before them, references looked up."""
        before = self._responses.get(str(body.get("previous_response_id")))
        given = body.get("input")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else objects_in(given)
        return [*(before.items if before else ()), *map(self._looked_up, items)]

    def _looked_up(self, item: JsonObject) -> JsonObject:
        made = self._items.get(str(item.get("id"))) if item.get("type") == "item_reference" else None
        return made.item if made else item
