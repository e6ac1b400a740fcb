"""One API of model providers as an object: how it is asked, what its answers are, and what it cannot express. Code
outside a dialect's folder calls these methods and never compares a dialect's name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

import msgspec

from tailrace import messages
from tailrace.config.quirks import NONE, WireQuirks
from tailrace.messages import AnyDelta, Completion, Dialect, JsonObject, ModelRequest, NativeDelta, Stop, Usage
from tailrace.ports import StreamDecoder
from tailrace.wire.client_request import ClientRequest, fields_as_written, short_user_id
from tailrace.wire.failure import failure_in
from tailrace.wire.peer_json import object_of, objects_of
from tailrace.wire.translation.message_deltas import message_deltas
from tailrace.wire.translation.web_search import is_chosen

TextSlot = tuple[JsonObject, str]  # an object of a body, and the key under which it holds a text of the answer


class OptionalField(msgspec.Struct, frozen=True):
    """A field of a request that `encode_request` writes and that may be left out: it serves us or only tunes."""

    path: str  # dotted
    words: tuple[str, ...]  # by which an error names it
    source: str = ""  # the field of `ModelRequest` that it is made from
    scattered: bool = False  # inside other fields, wherever `cache_prompt` puts it


class WireDialect(ABC):
    """The provider's side of a dialect. Subclasses have no state: one instance serves the whole process."""

    name: ClassVar[Dialect]

    # ── the endpoint ─────────────────────────────────────────────────────────────────────────────────────────

    path: ClassVar[str]  # of the route that answers, below the version
    version_is_last: ClassVar[bool] = False  # a version counts only as the last segment of a base URL
    count_route: ClassVar[str] = ""  # below `path`: counts the tokens of a request
    counted_fields: ClassVar[frozenset[str]] = frozenset()  # of a request, that `count_route` takes
    forwarded_headers: ClassVar[tuple[str, ...]] = ()  # of a client's request, for a provider of its dialect (K128)
    common_dialect: ClassVar[Dialect | None] = None  # of servers that are compatible with its vendor; None: itself

    def credentials(self, key: str) -> dict[str, str]:
        """The headers that every request needs; `key` may be empty."""
        return {"authorization": f"Bearer {key}"} if key else {}

    # ── a request ────────────────────────────────────────────────────────────────────────────────────────────

    optional_fields: ClassVar[tuple[OptionalField, ...]] = ()
    has_stop_strings: ClassVar[bool] = True  # else answers are cut here: see `cut_at_stop`
    has_web_search: ClassVar[bool] = False
    conversation_fields: ClassVar[tuple[str, ...]] = ("messages",)  # of a body

    @abstractmethod
    def encode_request(self, request: ModelRequest, *, stream: bool) -> JsonObject:
        """The body of the request."""

    def unsupported_field(self, request: ModelRequest) -> str | None:
        """A field of the request that changes its meaning and that this API does not support."""
        del request
        return None

    def unsupported_settings(self, request: ModelRequest) -> list[str]:
        """The fields that only tune the answer and that this API does not support: they are left out or changed."""
        del request
        return []

    def unsupported_search(self, search: messages.WebSearch) -> list[str]:
        """What of a web search this API does not support, in the client's words."""
        return [search.word]

    def user_fields(self, user: str) -> JsonObject:
        """The fields of a body that name the client's end user."""
        return {"user": user}

    # ── an answer ────────────────────────────────────────────────────────────────────────────────────────────

    answer_field: ClassVar[str]  # of a body: tells an answer from another object
    stops: ClassVar[Mapping[str, Stop]]  # what its finish reasons mean, in lower case
    end_frame: ClassVar[bytes] = b""  # ends a stream and is no event of JSON
    keeps_answers: ClassVar[bool] = False  # a broken stream can be resumed at the provider
    counts_cache_apart: ClassVar[bool] = False  # its count of input tokens leaves out the cached ones
    keeps_order: ClassVar[bool] = True  # thoughts, texts and calls stand in the order in which they came
    reasoning_field: ClassVar[str] = ""  # of a message, that has its reasoning unless the stream names another
    logs_events: ClassVar[bool] = False  # the log keeps its events for clients of stored answers

    @abstractmethod
    def decoder(self, quirks: WireQuirks = NONE, *, keep_events: bool = False) -> StreamDecoder:
        """A decoder for one answer. `keep_events`: it gives the provider's own events too, as `EventDelta`s."""

    @abstractmethod
    def completion_from_body(self, body: JsonObject) -> Completion:
        """The answer of a body, streamed or not. Never raises."""

    @abstractmethod
    def events_of_body(self, body: JsonObject) -> Iterator[messages.EventDelta]:
        """A non-streaming body as the events in which its provider would have streamed it, with every field."""

    @abstractmethod
    def text_slots(self, body: JsonObject) -> Iterator[TextSlot]:
        """Where the answer's text is in a body, in order."""

    @abstractmethod
    def insert_text(self, body: JsonObject, text: str) -> None:
        """Adds a text to a body that has none: before its calls, after its thoughts."""

    @abstractmethod
    def remove_calls(self, body: JsonObject) -> None:
        """Removes the tool calls from a body."""

    def with_thoughts(self, body: JsonObject, thoughts: Sequence[messages.Reasoning]) -> JsonObject:
        """The body with thoughts of this dialect before its own."""
        return {**body, self.answer_field: [*(each.native for each in thoughts), *body[self.answer_field]]}

    def has_one_answer(self, body: JsonObject) -> bool:
        """Whether the body has one answer at most, which can be continued; several alternatives cannot."""
        del body
        return True

    def failure_of_body(self, body: JsonObject) -> messages.ErrorDelta | None:
        """The error that a body with a status of success reports all the same (D56)."""
        return failure_in(body)

    def honours_signature(self, made_by: str, model: str) -> bool:
        """Whether this model takes back reasoning that a model at another provider has signed."""
        del made_by, model
        return False

    def stop_of(self, reason: str) -> Stop:
        """What a finish reason of this dialect means."""
        return self.stops.get(reason.lower(), "unknown")

    def usage_with_cached(self, usage: Usage) -> Usage:
        """The usage with the cached tokens among the input's."""
        if not self.counts_cache_apart:
            return usage
        return msgspec.structs.replace(usage, input_tokens=usage.input_tokens + usage.cached_tokens)

    def deltas_of_completion(self, completion: Completion, *, texts: bool = True) -> Iterator[AnyDelta]:
        """A non-streaming answer as the deltas in which it would have been streamed, after the events for a client of
        the same dialect. Without `texts`: what follows streamed texts."""
        yield from self.events_of_body(completion.body)
        yield from self.message_ending(completion, texts=texts)
        yield messages.UsageDelta(completion.usage, object_of(completion.body.get("usage")))

    def message_ending(self, completion: Completion, *, texts: bool) -> Iterator[AnyDelta]:
        """The message, part by part, and why it ended."""
        yield from message_deltas(completion.message, texts=texts)
        if completion.stop_sequence:
            yield stop_sequence_delta(self.name, completion.stop_sequence)
        yield messages.FinishDelta(completion.finish_reason)

    def deltas_of_log(self, items: Iterable[JsonObject]) -> list[AnyDelta]:
        """The deltas of which the log has kept these items, or of the events that it has kept."""
        return [NativeDelta(self.name, item) for item in items]

    # ── a client's request at a provider of this dialect ─────────────────────────────────────────────────────

    def first_unsupported_param(self, client_request: ClientRequest) -> str | None:
        """The first parameter that this API does not support; None where it supports all of them."""
        if client_request.dialect == self.name:
            return None
        if client_request.dialect_only_fields:
            return client_request.dialect_only_fields[0]
        if client_request.opaque_at:
            return client_request.opaque_at
        if not self._offers_chosen_tool(client_request.request):
            return "tool_choice"  # of tools that only the client's own provider runs
        field = self.unsupported_field(client_request.request)
        return None if field is None else client_request.word(field)

    def _offers_chosen_tool(self, request: ModelRequest) -> bool:
        searches = request.web_search is not None and self.has_web_search
        if is_chosen(request.tool_choice, request.web_search):
            return searches
        return request.tool_choice != "required" or bool(request.tools) or searches

    def ignored_params(self, client_request: ClientRequest, *, verbatim: bool = True) -> tuple[str, ...]:
        """The parameters that are left out or changed for this API: they only tune the answer. `verbatim`: a provider
        of the client's own dialect is sent what the client wrote, but for what it would refuse."""
        if verbatim and client_request.dialect == self.name:
            return client_request.withheld_fields
        request = client_request.request
        unsupported = map(client_request.word, self.unsupported_settings(request))
        ignored = [*client_request.optional_fields, *unsupported]
        if (search := request.web_search) is not None:
            ignored += self.unsupported_search(search) if verbatim else [search.word]
        return tuple(ignored)

    def extra_for(self, client_request: ClientRequest, *, conversation: bool = True) -> JsonObject:
        """The fields of a body beside the neutral ones: in the client's own dialect all that the client wrote. Without
        `conversation` the neutral messages stand, for an answer that continues after a cut."""
        if client_request.dialect == self.name:
            return fields_as_written(client_request.body, () if conversation else self.conversation_fields)
        user = short_user_id(client_request.user)
        return self.user_fields(user) if user else {}


def stop_sequence_delta(dialect: Dialect, stop: str) -> NativeDelta:
    """Names the stop string at which the answer ended."""
    return NativeDelta(dialect, {"stop_sequence": stop})


def text_parts(parts: object) -> Iterator[TextSlot]:
    """The texts among the parts or blocks of a content."""
    for part in objects_of(parts):
        if part.get("type") in ("text", "output_text") and isinstance(part.get("text"), str):
            yield part, "text"


def insert_before(body: JsonObject, key: str, item: JsonObject, *, kind: str) -> None:
    """Inserts the item into a list of the body, before the first whose type ends so, else at the end."""
    items: list[JsonObject] = body.setdefault(key, [])
    at = next((at for at, other in enumerate(objects_of(items)) if str(other.get("type")).endswith(kind)), len(items))
    items.insert(at, item)
