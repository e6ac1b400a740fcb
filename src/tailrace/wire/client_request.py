"""What a client of one of our APIs asks for: what every dialect can express, and what only the client's own can.

Owns the value that the three dialects' parsers of requests return, and what becomes of it at a provider of another
dialect: a field that asks nothing of the model, or only tunes it, is left out and named; a field that changes the
meaning is refused (K129). Nothing is ever dropped in silence. No I/O; knows no server.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec

from tailrace.errors import TailraceError
from tailrace.messages import Dialect, File, JsonObject, ModelRequest, NamedTool, Value
from tailrace.values.validation_words import validation_mistake
from tailrace.wire.translation.web_search import is_chosen, unsaid

T = TypeVar("T")


class InvalidRequest(TailraceError):
    """The request is malformed, or cannot be served. `param` names the field at fault, as the client wrote it."""

    details: JsonObject | None = None  # for programs, in the words of the client's API

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(f"{param}: {message}" if param else message)
        self.param = param


class UnsupportedParameter(InvalidRequest):
    """The model is there, and its API has no such parameter, or not with that value."""

    def __init__(self, param: str, model: str, dialect: Dialect) -> None:
        super().__init__(f"{model} cannot honour it: its API ({dialect}) has no word for it", param)


class ThreadsUnsupported(InvalidRequest):
    """Raised for a conversation that Anthropic would keep. Its SDKs know the code, and go on without a thread."""

    def __init__(self) -> None:
        super().__init__("threads are not kept here; send the whole conversation", "thread")
        self.details = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


class ClientRequest(Value, gc=False):
    """One request. `request` is its neutral form; `body` is what the client wrote, for a provider of the client's
    dialect, which may know more fields than we do."""

    dialect: Dialect
    request: ModelRequest
    body: JsonObject
    stream: bool = False
    include_usage: bool = False  # chat: a last chunk with the usage
    user: str = ""  # the client's own id of its end user
    dialect_only_fields: tuple[str, ...] = ()  # fields that only the client's dialect has, and that change the meaning
    optional_fields: tuple[str, ...] = ()  # likewise, and they ask nothing of the model or only tune it
    withheld_fields: tuple[str, ...] = ()  # fields that `body` does not have as the client wrote them
    opaque_at: str = ""  # the place of the first message or part that only the client's dialect has
    reasoning: bool = False  # the client wants to see the model think
    legacy_functions: bool = False  # chat: the client offers `functions`, and knows no tool calls
    headers: dict[str, str] = msgspec.field(default_factory=dict)  # of `FORWARDED_HEADERS`, as the client sent them

    @property
    def model(self) -> str:
        return self.request.model


# The headers of a request that a provider of the client's dialect is sent too (K128). Never a credential.
FORWARDED_HEADERS: dict[Dialect, tuple[str, ...]] = {
    "chat": ("openai-beta",),
    "responses": ("openai-beta",),
    "anthropic": ("anthropic-version", "anthropic-beta"),
}
_USAGE = "include_usage"
MAX_USER_CHARS = 64  # the longest id of an end user that every API takes
MAX_STOP_CHARS = 65_536  # of all stop strings of one request, where we look for them ourselves
_STOP: dict[Dialect, str] = {"chat": "stop", "responses": "stop", "anthropic": "stop_sequences"}
_CONVERSATION: dict[Dialect, tuple[str, ...]] = {
    "chat": ("messages",),
    "responses": ("input", "instructions"),
    "anthropic": ("messages", "system"),
}
# Between the client and our server alone: the provider's request has its own.
_OURS = frozenset({"model", "stream", "stream_options", "background", "previous_response_id", "conversation"})


def first_unsupported_param(client_request: ClientRequest, dialect: Dialect) -> str | None:
    """The first parameter that a provider of this dialect does not support; None where it supports all of them."""
    if dialect == client_request.dialect:
        return None
    if client_request.dialect_only_fields:
        return client_request.dialect_only_fields[0]
    if client_request.opaque_at:
        return client_request.opaque_at
    if not _can_choose(client_request.request, dialect):
        return "tool_choice"  # of tools that only the client's own provider runs
    if dialect == "responses" and sum(map(len, client_request.request.stop)) > MAX_STOP_CHARS:
        return _STOP[client_request.dialect]  # the answer is cut here
    if dialect == "chat" and _names_a_file(client_request.request):
        return _CONVERSATION[client_request.dialect][0]  # the API takes the files themselves
    return None


def _can_choose(request: ModelRequest, dialect: Dialect) -> bool:
    """Whether the tool that must be called is among those that a provider of this dialect is offered."""
    searches = request.web_search is not None and dialect != "chat"
    if is_chosen(request.tool_choice, request.web_search):
        return searches
    return request.tool_choice != "required" or bool(request.tools) or searches


def _names_a_file(request: ModelRequest) -> bool:
    """A document is given by its address."""
    return any(isinstance(part, File) and part.url for message in request.messages for part in message.parts)


def ignored_params(client_request: ClientRequest, dialect: Dialect, *, verbatim: bool = True) -> tuple[str, ...]:
    """The parameters that a provider of this dialect is not told, or is told less of: they only tune the answer.
    `verbatim`: a provider of the client's own dialect is sent what the client wrote, but for what it would refuse."""
    if verbatim and dialect == client_request.dialect:
        return client_request.withheld_fields
    request, ignored = client_request.request, [*client_request.optional_fields]
    if request.seed is not None and dialect != "chat":
        ignored.append("seed")
    if dialect == "anthropic" and request.temperature is not None and request.temperature > 1:
        ignored.append("temperature")  # its scale ends at 1
    if dialect == "anthropic" and any(stop.isspace() for stop in request.stop):
        ignored.append(_STOP[client_request.dialect])  # it refuses those that are blank
    if dialect == "anthropic" and request.verbosity is not None:
        ignored.append("text.verbosity" if client_request.dialect == "responses" else "verbosity")
    if dialect == "anthropic" and request.service_tier is not None:
        ignored.append("service_tier")
    if request.web_search is not None:
        ignored += unsaid(request.web_search, dialect) if verbatim else [request.web_search.word]
    return tuple(ignored)


def client_word(client_request: ClientRequest, field: str) -> str:
    """How the client wrote this field of the neutral request."""
    match client_request.dialect, field:
        case "responses", "reasoning_effort":
            return "reasoning.effort"
        case "anthropic", "reasoning_effort":
            config = client_request.body.get("output_config")
            return "output_config.effort" if isinstance(config, dict) and "effort" in config else "thinking"
        case "anthropic", "parallel_tool_calls":
            return "tool_choice.disable_parallel_tool_use"
        case _:
            return field


def extra_for(client_request: ClientRequest, dialect: Dialect, *, conversation: bool = True) -> JsonObject:
    """The fields that a provider of this dialect gets beside the neutral ones: in the client's own dialect all that the
    client wrote. Without `conversation` the neutral messages stand, for an answer that continues after a cut."""
    if dialect != client_request.dialect:
        user = _short_id(client_request.user)
        return {} if not user else {"metadata": {"user_id": user}} if dialect == "anthropic" else {"user": user}
    excluded = _OURS if conversation else _OURS.union(_CONVERSATION[dialect])
    fields = {name: value for name, value in client_request.body.items() if name not in excluded}
    if options := _stream_options(client_request.body):
        fields["stream_options"] = options
    return fields


def _stream_options(body: JsonObject) -> JsonObject:
    """How the client wants to be streamed to, where that is more than whether it gets the usage: we always ask for that
    ourselves."""
    options = body.get("stream_options")
    if not isinstance(options, dict) or not options.keys() - {_USAGE}:
        return {}
    return {**options, _USAGE: True} if _USAGE in options or "messages" in body else options


def _short_id(user: str) -> str:
    """An id that is too long for another API still tells one user from the next (K132)."""
    return user if len(user) <= MAX_USER_CHARS else hashlib.sha256(user.encode()).hexdigest()


# ── for the parsers ──────────────────────────────────────────────────────────────────────────────────────────

Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]
USUAL_TIERS = ("auto", "default")  # of OpenAI's two APIs: they ask for nothing
ToolChoice: TypeAlias = Literal["auto", "none", "required"] | NamedTool | None


def image_url(url: str, where: str = "") -> str:
    """An address that a provider can be given for an image; nothing is fetched here. Raises `InvalidRequest`."""
    scheme = url.partition(":")[0].lower() if ":" in url[:64] else ""
    if scheme in ("http", "https") or url[:11].lower() == "data:image/":
        return url
    found = url.partition(",")[0][:40] if scheme == "data" else f"{scheme}:" if scheme else "no scheme"
    raise InvalidRequest(f"an image's address is https:, http: or data:image/…, not {found}", where or None)


def converted(body: object, kind: type[T], where: str = "") -> T:
    """`body` as this type. Raises `InvalidRequest` that names the field."""
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as exc:
        place, message = validation_mistake(exc, kind)
        raise InvalidRequest(message, f"{where}{place}".lstrip(".") or None) from exc


class FieldsBeyond:
    """The fields of one request that the neutral one has no place for, in the order in which the client wrote them.
    `only`: they change the meaning; `optional`: they ask nothing of the model, or only tune it."""

    def __init__(
        self,
        body: Mapping[str, Any],
        *,
        known: Collection[str],
        defaults: Mapping[str, tuple[Any, ...]],
        meaning: Collection[str],
    ) -> None:
        """A field at one of its `defaults` asks for nothing. `meaning` are the fields that change the meaning."""
        self.only: list[str] = []
        self.optional: list[str] = []
        for name, value in body.items():
            if name not in known and value is not None and not any(value == same for same in defaults.get(name, ())):
                (self.only if name in meaning else self.optional).append(name)

    def named_in(self, client_request: ClientRequest) -> ClientRequest:
        """The request, with these fields named."""
        if not self.only and not self.optional:
            return client_request
        return msgspec.structs.replace(
            client_request,
            dialect_only_fields=tuple(dict.fromkeys(self.only)),
            optional_fields=tuple(dict.fromkeys(self.optional)),
        )
