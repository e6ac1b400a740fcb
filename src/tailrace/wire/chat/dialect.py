"""The `chat` dialect as one object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tailrace.messages import AnyDelta, Completion, EventDelta, File, FinishDelta, JsonObject, ModelRequest, Reasoning
from tailrace.wire.chat.client_request import parse_client_request
from tailrace.wire.chat.completion import STOPS, completion_from_body
from tailrace.wire.chat.decode import ChatDecoder
from tailrace.wire.chat.encode import StreamEncoder
from tailrace.wire.chat.encode_body import chunks_of_body, encode_body
from tailrace.wire.chat.provider_request import encode_request
from tailrace.wire.chat.reasoning import text_of_message
from tailrace.wire.dialect import OptionalField, TextSlot, text_parts
from tailrace.wire.peer_json import encode_object, objects_of
from tailrace.wire.reasoning_seal import TEXT_FIELDS, USUAL_FIELD
from tailrace.wire.served_dialect import ServedDialect
from tailrace.wire.translation.message_deltas import message_deltas


class ChatDialect(ServedDialect):
    """OpenAI Chat Completions, and the many servers that speak it."""

    name = "chat"
    path = "/chat/completions"
    forwarded_headers = ("openai-beta",)
    optional_fields = (
        OptionalField("stream_options", ("stream_options", "include_usage")),
        OptionalField("reasoning_effort", ("reasoning_effort",), "reasoning_effort"),
        OptionalField("parallel_tool_calls", ("parallel_tool_calls",), "parallel_tool_calls"),
        OptionalField("store", ("store",)),
    )
    answer_field = "choices"
    stops = STOPS
    end_frame = b"data: [DONE]\n\n"
    keeps_order = False  # one field has all the thoughts and one all the texts
    reasoning_field = USUAL_FIELD
    id_prefix = "chatcmpl-"

    encode_request = staticmethod(encode_request)
    decoder = staticmethod(ChatDecoder)
    completion_from_body = staticmethod(completion_from_body)
    parse_client_request = staticmethod(parse_client_request)
    new_encoder = staticmethod(StreamEncoder)
    encode_body = staticmethod(encode_body)

    def unsupported_field(self, request: ModelRequest) -> str | None:
        """The API takes the files themselves, not their addresses."""
        parts = (part for message in request.messages for part in message.parts)
        return "messages" if any(isinstance(part, File) and part.url for part in parts) else None

    def events_of_body(self, body: JsonObject) -> Iterator[EventDelta]:
        return (EventDelta(self.name, "", encode_object(chunk)) for chunk in chunks_of_body(body))

    def message_ending(self, completion: Completion, *, texts: bool) -> Iterator[AnyDelta]:
        choices = objects_of(completion.body.get("choices"))
        if len(choices) <= 1:
            yield from super().message_ending(completion, texts=texts)
            return
        for number, choice in enumerate(choices):
            one = completion_from_body({**completion.body, "choices": [choice]})
            yield from message_deltas(one.message, choice=number, texts=texts)
            yield FinishDelta(one.finish_reason, number)

    def has_one_answer(self, body: JsonObject) -> bool:
        return len(objects_of(body.get("choices"))) <= 1

    def text_slots(self, body: JsonObject) -> Iterator[TextSlot]:
        message = _first_message(body)
        if isinstance(message.get("content"), str):
            yield message, "content"
        else:
            yield from text_parts(message.get("content"))

    def insert_text(self, body: JsonObject, text: str) -> None:
        _first_message(body)["content"] = text

    def with_thoughts(self, body: JsonObject, thoughts: Sequence[Reasoning]) -> JsonObject:
        """In the fields in which they came, each of which has the whole text."""
        choice = body["choices"][0]
        holders = [choice["message"], *(each.native or {} for each in thoughts)]
        fields = [field for field in TEXT_FIELDS if any(field in holder for holder in holders)] or [USUAL_FIELD]
        text = "".join(each.text for each in thoughts) + text_of_message(choice["message"])
        return {**body, "choices": [{**choice, "message": {**choice["message"], **dict.fromkeys(fields, text)}}]}

    def remove_calls(self, body: JsonObject) -> None:
        for choice in objects_of(body.get("choices")):
            if isinstance(message := choice.get("message"), dict):
                message.pop("tool_calls", None)
                message.pop("function_call", None)


def _first_message(body: JsonObject) -> JsonObject:
    if not objects_of(body.get("choices")):
        body["choices"] = [{"index": 0, "finish_reason": None, "message": {"role": "assistant"}}]
    message: JsonObject = body["choices"][0].setdefault("message", {"role": "assistant"})
    return message
