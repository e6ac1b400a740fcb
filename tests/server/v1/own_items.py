"""A provider of the Responses API that refuses items which it has not made, as OpenAI's does."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.messages import JsonObject
from tailrace.testing.provider import FaultyProvider, Scenario
from tailrace.testing.provider.names import scenario
from tailrace.testing.scripted.request_reader import ScriptedRequest
from tailrace.testing.scripted.responses import answer_body


class OwnItemsOnly(FaultyProvider):
    """`complaints` are the reasons of its refusals."""

    def __init__(self) -> None:
        super().__init__()
        self.complaints: list[str] = []
        self._made: dict[str, JsonObject] = {}

    def choose(self, request: ScriptedRequest) -> Scenario:
        given = request.body.get("input")
        complaints = list(self._problems(given)) if isinstance(given, list) else []
        self.complaints += complaints
        if complaints:
            return scenario("status-400")
        chosen = super().choose(request)
        if "input" in request.body:
            self._made |= {item["id"]: item for item in answer_body(chosen.reply, request)["output"]}
        return chosen

    def _problems(self, items: list[JsonObject]) -> Iterator[str]:
        for item in items:
            made = self._made.get(item.get("id", ""))
            if "id" in item and made is None:
                yield f"Item with id '{item['id']}' not found."
            if item.get("type") == "reasoning" and (
                made is None or item.get("encrypted_content") != made.get("encrypted_content")
            ):
                yield f"The encrypted content for item {item.get('id')} could not be verified."
