"""Responses that the misbehaving provider keeps: those that were asked for with `background` and `store`.

Pure. As at OpenAI, such a response is made whatever becomes of the connection: it can be fetched whole, streamed again
after any event, and cancelled.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qs

import msgspec

from tailrace.messages import JsonObject, Value
from tailrace.testing.provider.compose import JSON, Response, encode_body, failed, instead_of_answer, streamed_events
from tailrace.testing.provider.http import HttpRequest
from tailrace.testing.provider.scenario import Scenario
from tailrace.testing.scripted.failures import INVALID, Failure
from tailrace.testing.scripted.render import body_of, events_of
from tailrace.testing.scripted.request_reader import ScriptedRequest, Sse, scripted_request

_PATH = re.compile(r"/v1/responses/(?P<id>resp_[0-9a-f]+)(?P<cancel>/cancel)?")
_NO_REQUEST = scripted_request("responses", {})


class KeptResponse(Value):
    body: JsonObject
    events: tuple[Sse, ...]


class KeptResponses:
    """By id. `cancelled` names those that were cancelled, in order."""

    def __init__(self) -> None:
        self._kept: dict[str, KeptResponse] = {}
        self.cancelled: list[str] = []

    def keep(self, scenario: Scenario, request: ScriptedRequest) -> None:
        """Keeps the answer to this request, where the request asks for that."""
        if request.body.get("background") is True and request.body.get("store") is not False:
            body = body_of("responses", scenario.reply, request)
            events = tuple(events_of("responses", scenario.reply, request))
            self._kept[str(body["id"])] = KeptResponse({**body, "background": True}, events)

    def forget(self) -> None:
        """Every response expires."""
        self._kept.clear()

    @staticmethod
    def is_asked_for(request: HttpRequest) -> bool:
        return _PATH.fullmatch(request.path) is not None and (
            request.method == "GET" or (request.method == "POST" and request.path.endswith("/cancel"))
        )

    def respond(self, request: HttpRequest, scenario: Scenario) -> Response:
        """What a request for a kept response gets, with the faults of the scenario; its reply counts for nothing."""
        found = _PATH.fullmatch(request.path)
        if found is None:
            raise ValueError(request.path)
        kept = self._kept.get(found["id"])
        if kept is None:
            text = f"Response with id '{found['id']}' not found."
            return failed(Failure(404, text, INVALID, "not_found_error"), "responses", _NO_REQUEST)
        if found["cancel"]:
            self.cancelled.append(found["id"])
            return _json({**kept.body, "status": "cancelled", "output": [], "usage": None})
        if (fault := instead_of_answer(scenario, "responses", _NO_REQUEST, streamed=True)) is not None:
            return fault
        query = parse_qs(request.query)
        if query.get("stream") != ["true"] or scenario.instead == "json":
            return _json(kept.body)
        after = int(query["starting_after"][0]) if "starting_after" in query else -1
        return streamed_events([event for event in kept.events if _number(event) > after], scenario, "responses")


def _json(body: JsonObject) -> Response:
    return Response(200, JSON, (encode_body(body),))


def _number(event: Sse) -> int:
    data = event.data if isinstance(event.data, dict) else msgspec.json.decode(event.data)
    number: int = data["sequence_number"]
    return number
