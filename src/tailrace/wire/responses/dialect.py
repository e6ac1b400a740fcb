"""The `responses` dialect as one object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from tailrace import messages
from tailrace.wire.dialect import OptionalField, TextSlot, insert_before, text_parts
from tailrace.wire.failure import failure, failure_in
from tailrace.wire.peer_json import encode_object, objects_of
from tailrace.wire.responses.client_request import parse_client_request
from tailrace.wire.responses.completion import STOPS, completion_from_body, finish_reason_of
from tailrace.wire.responses.decode import ResponsesDecoder
from tailrace.wire.responses.encode import StreamEncoder, encode_body, events_of_body
from tailrace.wire.responses.item_ids import APPROVAL_REQUEST
from tailrace.wire.responses.provider_request import encode_request
from tailrace.wire.served_dialect import ServedDialect
from tailrace.wire.translation.stop_strings import MAX_STOP_CHARS
from tailrace.wire.translation.web_search import setting_words


class ResponsesDialect(ServedDialect):
    """OpenAI's Responses API, and the servers that speak it."""

    name = "responses"
    path = "/responses"
    count_route = "/input_tokens"
    counted_fields = frozenset({"model", "input", "instructions", "tools", "tool_choice", "text", "reasoning"})
    forwarded_headers = ("openai-beta",)
    common_dialect = "chat"
    optional_fields = (
        # Models that do not reason refuse it in these words.
        OptionalField("include", ("reasoning.encrypted_content", "Encrypted content")),
        OptionalField(
            "reasoning.effort", ("reasoning.effort", "reasoning_effort", "reasoning", "effort"), "reasoning_effort"
        ),
        OptionalField("parallel_tool_calls", ("parallel_tool_calls",), "parallel_tool_calls"),
        OptionalField("background", ("background", "Background")),
        OptionalField("store", ("store",)),
        OptionalField("include", ("include",)),
        OptionalField("stream_options", ("stream_options",)),
    )
    has_stop_strings = False
    has_web_search = True
    conversation_fields = ("input", "instructions")
    answer_field = "output"
    stops = STOPS
    keeps_answers = True
    logs_events = True
    id_prefix = "resp_"

    encode_request = staticmethod(encode_request)
    decoder = staticmethod(ResponsesDecoder)
    completion_from_body = staticmethod(completion_from_body)
    parse_client_request = staticmethod(parse_client_request)
    new_encoder = staticmethod(StreamEncoder)
    encode_body = staticmethod(encode_body)

    def unsupported_field(self, request: messages.ModelRequest) -> str | None:
        return "stop" if sum(map(len, request.stop)) > MAX_STOP_CHARS else None

    def unsupported_settings(self, request: messages.ModelRequest) -> list[str]:
        return ["seed"] if request.seed is not None else []

    def unsupported_search(self, search: messages.WebSearch) -> list[str]:
        return setting_words(search, max_uses=search.max_uses, blocked_domains=search.blocked_domains)

    def failure_of_body(self, body: messages.JsonObject) -> messages.ErrorDelta | None:
        if (error := failure_in(body)) is not None or (status := body.get("status")) not in ("failed", "cancelled"):
            return error
        return failure(f"the provider ended the response as {status}", code=f"response_{status}")

    def question_delta(
        self, approval_id: str, tool_name: str, arguments: messages.JsonObject, _line: str
    ) -> messages.AnyDelta:
        item = {"id": approval_id, "type": APPROVAL_REQUEST, "server_label": "tailrace", "name": tool_name}
        return messages.NativeDelta(self.name, {"item": {**item, "arguments": encode_object(arguments).decode()}})

    def events_of_body(self, body: messages.JsonObject) -> Iterator[messages.EventDelta]:
        return map(self._event, events_of_body(body))

    def message_ending(self, completion: messages.Completion, *, texts: bool) -> Iterator[messages.AnyDelta]:
        reason = finish_reason_of(completion.body, completion.finish_reason)
        return super().message_ending(msgspec.structs.replace(completion, finish_reason=reason), texts=texts)

    def deltas_of_log(self, items: Iterable[messages.JsonObject]) -> list[messages.AnyDelta]:
        return [*map(self._event, items)]

    def _event(self, event: messages.JsonObject) -> messages.EventDelta:
        return messages.EventDelta(self.name, event["type"], encode_object(event))

    def text_slots(self, body: messages.JsonObject) -> Iterator[TextSlot]:
        for item in objects_of(body.get("output")):
            if item.get("type") == "message":
                yield from text_parts(item.get("content"))

    def insert_text(self, body: messages.JsonObject, text: str) -> None:
        item = {
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        }
        insert_before(body, "output", item, kind="_call")

    def remove_calls(self, body: messages.JsonObject) -> None:
        body["output"] = [i for i in objects_of(body.get("output")) if not str(i.get("type")).endswith("_call")]
