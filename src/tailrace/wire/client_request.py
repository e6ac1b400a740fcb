"""A client's request to one of our APIs: what every dialect can express, and what only the client's own can. At a
provider of another dialect a field that only tunes the model is left out and named, one that changes the meaning is
refused (K129): `WireDialect` decides which."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec

from tailrace import messages
from tailrace.errors import TailraceError
from tailrace.messages import Dialect, File, Image, JsonObject, Message, ModelRequest, NamedTool, Part, Text, Value
from tailrace.values.validation_words import validation_mistake

T = TypeVar("T")


class InvalidRequest(TailraceError):
    """The request is malformed, or cannot be served. `param` names the field at fault, as the client wrote it."""

    details: JsonObject | None = None  # for programs, in the words of the client's API

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(f"{param}: {message}" if param else message)
        self.param = param


class UnsupportedParameter(InvalidRequest):
    """The model is there, and its API does not support this parameter, at least not with that value."""

    def __init__(self, param: str, model: str, dialect: Dialect) -> None:
        super().__init__(f"{model} does not support it: the {dialect} API has no such parameter or value", param)


class ThreadsUnsupported(InvalidRequest):
    """Raised for a conversation that Anthropic would keep. Its SDKs know the code, and go on without a thread."""

    def __init__(self) -> None:
        super().__init__("threads are not kept here; send the whole conversation", "thread")
        self.details = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


class ClientRequest(Value, gc=False):
    """One request, in neutral form and as the client wrote it, for a provider of the client's dialect."""

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
    headers: dict[str, str] = msgspec.field(default_factory=dict)  # of the dialect's `forwarded_headers`
    words: dict[str, str] = msgspec.field(default_factory=dict)  # see `word`

    @property
    def model(self) -> str:
        return self.request.model

    def word(self, field: str) -> str:
        """How the client wrote this field of the neutral request."""
        return self.words.get(field, field)


_USAGE = "include_usage"
MAX_USER_CHARS = 64  # the longest id of an end user that every API takes
# Between the client and our server alone: the provider's request has its own.
_OURS = frozenset({"model", "stream", "stream_options", "background", "previous_response_id", "conversation"})


def fields_as_written(body: JsonObject, without: Collection[str] = ()) -> JsonObject:
    """What the client wrote that a provider of its dialect is sent as it is, `without` these fields."""
    fields = {name: value for name, value in body.items() if name not in _OURS and name not in without}
    if "stream_options" in body and (options := _stream_options(body)):
        fields["stream_options"] = options
    return fields


def _stream_options(body: JsonObject) -> JsonObject:
    """How the client wants to be streamed to, beside the usage: we always ask for that ourselves."""
    options = body.get("stream_options")
    if not isinstance(options, dict) or not options.keys() - {_USAGE}:
        return {}
    return {**options, _USAGE: True} if _USAGE in options or "messages" in body else options


def short_user_id(user: str) -> str:
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


class UnmappedFields:
    """The fields that the neutral request does not have: those that change the meaning (`only`), and the others."""

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

    def apply_to(self, client_request: ClientRequest) -> ClientRequest:
        """The request with these fields in `dialect_only_fields` and `optional_fields`."""
        if not self.only and not self.optional:
            return client_request
        return msgspec.structs.replace(
            client_request,
            dialect_only_fields=tuple(dict.fromkeys(self.only)),
            optional_fields=tuple(dict.fromkeys(self.optional)),
        )


class Conversation(ABC):
    """Collects `messages`. `opaque_at` is the place of the first part that only this dialect can express."""

    def __init__(self, dialect: Dialect) -> None:
        self.messages: list[Message] = []
        self.opaque_at = ""
        self._dialect: Dialect = dialect

    @abstractmethod
    def neutral_part(self, part: JsonObject, where: str) -> Part | None:
        """The part in neutral form; None where only this dialect can express it."""

    def parts_of(self, content: object, where: str, noun: str = "parts") -> list[Part]:
        """The parts of a `content` that stands at `where`: a text or a list. Raises `InvalidRequest`."""
        if isinstance(content, str):
            return [Text(content)]
        if not isinstance(content, list):
            raise InvalidRequest(f"expected a text or a list of {noun}", where)
        return [self.part(part, f"{where}[{index}]") for index, part in enumerate(content)]

    def part(self, part: object, where: str) -> Part:
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            raise InvalidRequest("expected an object with a type", where)
        if (neutral := self.neutral_part(part, where)) is not None:
            return neutral
        self.opaque_at = self.opaque_at or where
        return messages.Native(self._dialect, part)

    def add_result(self, result: messages.ToolResult) -> None:
        """The results of one answer's calls are one message."""
        last = self.messages[-1] if self.messages else None
        if last is not None and last.role == "tool":
            self.messages[-1] = Message("tool", (*last.parts, result))
        else:
            self.messages.append(Message("tool", (result,)))


def result_content(parts: Iterable[Part]) -> str | tuple[Text | Image | File, ...]:
    """What a tool returned: plain text where there is nothing else in it."""
    content = tuple(part for part in parts if isinstance(part, Text | Image | File))
    return joined_text(content) if all(isinstance(part, Text) for part in content) else content


def joined_text(parts: Iterable[Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Text))


def unknown_role(role: object, where: str) -> InvalidRequest:
    return InvalidRequest(f"no such role: {str(role)[:40]!r}", f"{where}.role")
