"""`POST /v1/responses` as the client wrote it, read once.

Pure. One reading of the body says which model is asked, how the response is stored, what it follows, which stored items
it refers to, and what the response repeats of it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tailrace.messages import JsonObject, Value
from tailrace.server.http.api_errors import ApiError
from tailrace.wire.client_request import ClientRequest, converted
from tailrace.wire.dialects import RESPONSES
from tailrace.wire.responses.client_request import items_of
from tailrace.wire.responses.item_ids import has_lost_its_seal, is_reference
from tailrace.wire.responses.response_fields import echoed_fields


class _Conversation(msgspec.Struct):
    id: str


class _StorageFields(msgspec.Struct):
    """How the response is stored and what it follows."""

    store: bool | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    conversation: str | _Conversation | None = None
    metadata: dict[str, str] | None = None  # stored with the response, so its values must be texts


def refers_to_items(body: JsonObject) -> bool:
    """Whether the input has items that only our store knows whole: references, and reasoning without its seal."""
    given = body.get("input")
    return isinstance(given, list) and any(is_reference(item) or has_lost_its_seal(item) for item in given)


class ResponsesRequest(Value):
    """`body` is what the client wrote, with the stored items in place of references to them. A provider's reasoning is
    still under its seal there."""

    body: JsonObject
    client_request: ClientRequest
    is_stored: bool
    background: bool
    previous_response_id: str  # empty: the response follows none
    session: str  # empty: no conversation

    @classmethod
    def of(cls, body: JsonObject, headers: Mapping[str, str]) -> ResponsesRequest:
        """`headers` are those that a provider of the same dialect is sent. Raises `InvalidRequest`, and `ApiError` 400
        for fields that contradict each other."""
        client_request = msgspec.structs.replace(RESPONSES.parse_client_request(body), headers=dict(headers))
        fields = converted(body, _StorageFields)
        given = fields.conversation
        session = given.id if isinstance(given, _Conversation) else given or ""
        if fields.previous_response_id and session:
            raise ApiError(
                400, "give either previous_response_id or conversation, not both", param="previous_response_id"
            )
        if fields.background and fields.store is False:
            raise ApiError(400, "background needs store: true", param="store")
        stored, background = fields.store is not False, bool(fields.background)
        return cls(body, client_request, stored, background, fields.previous_response_id or "", session)

    @property
    def model(self) -> str:
        return self.client_request.model

    @property
    def stream(self) -> bool:
        return self.client_request.stream

    @property
    def items(self) -> list[JsonObject]:
        return items_of(self.body["input"])

    @property
    def echoed(self) -> JsonObject:
        """The fields that the response repeats."""
        return echoed_fields(self.body)

    @property
    def state(self) -> JsonObject:
        """The fields of the response that say what we do, whatever its provider says of itself."""
        state: JsonObject = {}
        if self.is_stored:
            state |= {"store": True, "background": self.background}
        if self.session:
            state["conversation"] = {"id": self.session}
        if self.is_stored or self.previous_response_id:
            state["previous_response_id"] = self.previous_response_id or None
        return state
