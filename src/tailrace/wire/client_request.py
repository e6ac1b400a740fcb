"""What a client of one of our APIs asks for: what every dialect can express, and what only the client's own can.

Owns the value that the three dialects' parsers of requests return, and the check whether a provider of another dialect
can be asked the same. Nothing is ever dropped in silence. No I/O; knows no server.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec

from tailrace.errors import TailraceError, validation_mistake
from tailrace.messages import Dialect, JsonObject, ModelRequest, NamedTool, Value

T = TypeVar("T")


class InvalidRequest(TailraceError):
    """The request is malformed, or cannot be served. `param` names the field at fault, as the client wrote it."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(f"{param}: {message}" if param else message)
        self.param = param


class UnsupportedParameter(InvalidRequest):
    """The model is there, and its API has no such parameter."""

    def __init__(self, param: str, model: str, dialect: Dialect) -> None:
        super().__init__(f"{model} cannot honour it: its API ({dialect}) has no such parameter", param)


class ClientRequest(Value):
    """One request. `request` is its neutral form; `body` is what the client wrote, for a provider of the client's
    dialect, which may know more fields than we do."""

    dialect: Dialect
    request: ModelRequest
    body: JsonObject
    stream: bool = False
    include_usage: bool = False  # chat: a last chunk with the usage
    user: str = ""  # the client's own id of its end user
    dialect_only_fields: tuple[str, ...] = ()  # fields that only the client's dialect has
    opaque_at: str = ""  # the place of the first message or part that only the client's dialect has
    reasoning: bool = False  # the client wants to see the model think

    @property
    def model(self) -> str:
        return self.request.model


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
    request = client_request.request
    if client_request.dialect_only_fields:
        return client_request.dialect_only_fields[0]
    if client_request.opaque_at:
        return client_request.opaque_at
    if request.seed is not None and dialect != "chat":
        return "seed"
    if request.stop and dialect == "responses":
        return _STOP[client_request.dialect]
    if dialect == "anthropic" and request.temperature is not None and request.temperature > 1:
        return "temperature"
    return None


def extra_for(client_request: ClientRequest, dialect: Dialect, *, conversation: bool = True) -> JsonObject:
    """The fields that a provider of this dialect gets beside the neutral ones: in the client's own dialect all that the
    client wrote. Without `conversation` the neutral messages stand, for an answer that continues after a cut."""
    if dialect != client_request.dialect:
        user = client_request.user
        return {} if not user else {"metadata": {"user_id": user}} if dialect == "anthropic" else {"user": user}
    excluded = _OURS if conversation else _OURS.union(_CONVERSATION[dialect])
    return {name: value for name, value in client_request.body.items() if name not in excluded}


# ── for the parsers ──────────────────────────────────────────────────────────────────────────────────────────

Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]
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
        place, message = validation_mistake(exc)
        raise InvalidRequest(message, f"{where}{place}".lstrip(".") or None) from exc


def dialect_only_fields(
    body: Mapping[str, Any], known: Collection[str], defaults: Mapping[str, tuple[Any, ...]]
) -> list[str]:
    """The fields that the neutral request has no place for. A field at its default asks for nothing."""
    return [
        name
        for name, value in body.items()
        if name not in known and value is not None and not any(value == default for default in defaults.get(name, ()))
    ]
