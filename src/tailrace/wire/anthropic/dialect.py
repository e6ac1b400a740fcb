"""The `anthropic` dialect as one object."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace import messages
from tailrace.wire.anthropic.client_request import parse_client_request
from tailrace.wire.anthropic.completion import STOPS, completion_from_body
from tailrace.wire.anthropic.decode import AnthropicDecoder
from tailrace.wire.anthropic.encode import StreamEncoder, encode_body, events_of_body
from tailrace.wire.anthropic.provider_request import CACHE_MARKS, encode_request
from tailrace.wire.dialect import OptionalField, TextSlot, insert_before, text_parts
from tailrace.wire.failure import anthropic_error_body
from tailrace.wire.peer_json import encode_object, objects_of
from tailrace.wire.served_dialect import ServedDialect
from tailrace.wire.translation.web_search import setting_words

_API_VERSION = "2023-06-01"
_CLAUDE = "claude"


class AnthropicDialect(ServedDialect):
    """The Anthropic Messages API."""

    name = "anthropic"
    error_format = "anthropic"
    error_event = "error"
    ping = b'event: ping\ndata: {"type":"ping"}\n\n'
    path = "/messages"
    version_is_last = True
    count_route = "/count_tokens"
    counted_fields = frozenset({"model", "messages", "system", "tools", "tool_choice", "thinking"})
    forwarded_headers = ("anthropic-version", "anthropic-beta")
    optional_fields = (
        OptionalField("output_config.effort", ("output_config.effort", "output_config", "effort"), "reasoning_effort"),
        OptionalField("thinking", ("thinking",), "reasoning_effort"),
        OptionalField(
            "tool_choice.disable_parallel_tool_use",
            ("tool_choice.disable_parallel_tool_use", "disable_parallel_tool_use"),
            "parallel_tool_calls",
        ),
        OptionalField(CACHE_MARKS, (CACHE_MARKS,), "cache_prompt", scattered=True),
    )
    has_web_search = True
    conversation_fields = ("messages", "system")
    answer_field = "content"
    stops = STOPS
    counts_cache_apart = True
    id_prefix = "msg_"

    encode_request = staticmethod(encode_request)
    decoder = staticmethod(AnthropicDecoder)
    completion_from_body = staticmethod(completion_from_body)
    parse_client_request = staticmethod(parse_client_request)
    new_encoder = staticmethod(StreamEncoder)
    encode_body = staticmethod(encode_body)

    def credentials(self, key: str) -> dict[str, str]:
        return {"anthropic-version": _API_VERSION, **({"x-api-key": key} if key else {})}

    def unsupported_settings(self, request: messages.ModelRequest) -> list[str]:
        unsupported = {
            "seed": request.seed is not None,
            "temperature": request.temperature is not None and request.temperature > 1,  # its scale ends at 1
            "stop": any(stop.isspace() for stop in request.stop),  # blank ones are refused
            "verbosity": request.verbosity is not None,
            "service_tier": request.service_tier is not None,
        }
        return [name for name, is_unsupported in unsupported.items() if is_unsupported]

    def unsupported_search(self, search: messages.WebSearch) -> list[str]:
        blocked = search.allowed_domains and search.blocked_domains
        return setting_words(search, search_context_size=search.context_size, blocked_domains=blocked)

    def user_fields(self, user: str) -> messages.JsonObject:
        return {"metadata": {"user_id": user}}

    def events_of_body(self, body: messages.JsonObject) -> Iterator[messages.EventDelta]:
        return (messages.EventDelta(self.name, event["type"], encode_object(event)) for event in events_of_body(body))

    def message_ending(self, completion: messages.Completion, *, texts: bool) -> Iterator[messages.AnyDelta]:
        *message, finish = super().message_ending(completion, texts=texts)
        yield from message
        if completion.refusal:
            yield messages.NativeDelta(self.name, {"refusal": completion.refusal})
        yield finish

    def text_slots(self, body: messages.JsonObject) -> Iterator[TextSlot]:
        return text_parts(body.get("content"))

    def insert_text(self, body: messages.JsonObject, text: str) -> None:
        insert_before(body, "content", {"type": "text", "text": text}, kind="tool_use")

    def remove_calls(self, body: messages.JsonObject) -> None:
        body["content"] = [block for block in objects_of(body.get("content")) if block.get("type") != "tool_use"]

    def honours_signature(self, made_by: str, model: str) -> bool:
        """Claude's signatures hold at every host of Claude."""
        return _CLAUDE in made_by and _CLAUDE in model

    def error_body(
        self, error: messages.ErrorDelta, _param: str | None, details: messages.JsonObject | None, request_id: str, /
    ) -> messages.JsonObject:
        body = anthropic_error_body(error)
        if details is not None:
            body["error"]["details"] = details
        return {"request_id": request_id, **body} if request_id else body
