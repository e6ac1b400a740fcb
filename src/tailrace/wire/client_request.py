"""What a client of one of our APIs asks for, taken apart: what every dialect can say, and what only its own can.

Owns the shape that the three dialects' readers of requests fill in, and the one question that decides whether a
request can be put to a provider: is there anything in it that the provider's dialect has no word for? Nothing is ever
dropped in silence. No I/O; knows no server.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from tailrace.errors import TailraceError
from tailrace.messages import Dialect, JsonObject, ModelRequest, Value

T = TypeVar("T")


class InvalidRequest(TailraceError):
    """The request makes no sense, or cannot be honoured. `param` names the field at fault, as the client wrote it."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(f"{param}: {message}" if param else message)
        self.param = param


class UnsupportedParameter(InvalidRequest):
    """The model is there, and its API has no such parameter."""

    def __init__(self, param: str, model: str, dialect: Dialect) -> None:
        super().__init__(f"{model} cannot honour it: its API ({dialect}) has no such parameter", param)


class ClientRequest(Value):
    """One request. `request` says it in neutral words; `body` is what the client wrote, for a provider that speaks the
    client's dialect and may know more of it than we do."""

    dialect: Dialect
    request: ModelRequest
    body: JsonObject
    stream: bool = False
    include_usage: bool = False  # chat: a last chunk with the usage
    user: str = ""  # whom the client asks for, in words of its own
    beyond: tuple[str, ...] = ()  # fields that only the client's dialect can say
    opaque: str = ""  # where the conversation holds something that only the client's dialect can say
    reasoning: bool = False  # the client wants to see the model think

    @property
    def model(self) -> str:
        return self.request.model


# Of the neutral request, what a dialect has no word for, and what each dialect calls it.
_STOP: dict[Dialect, str] = {"chat": "stop", "responses": "stop", "anthropic": "stop_sequences"}
_CONVERSATION: dict[Dialect, tuple[str, ...]] = {
    "chat": ("messages",),
    "responses": ("input", "instructions"),
    "anthropic": ("messages", "system"),
}
# Between client and server alone: what is asked of a provider is decided here.
_OURS = frozenset({"model", "stream", "stream_options", "background", "previous_response_id", "conversation"})


def first_unsupported_param(asked: ClientRequest, dialect: Dialect) -> str | None:
    """The first parameter that a provider of this dialect could not be told; None where it can be told all."""
    if dialect == asked.dialect:
        return None
    request = asked.request
    if asked.beyond:
        return asked.beyond[0]
    if asked.opaque:
        return asked.opaque
    if request.seed is not None and dialect != "chat":
        return "seed"
    if request.stop and dialect == "responses":
        return _STOP[asked.dialect]
    if dialect == "anthropic" and request.temperature is not None and request.temperature > 1:
        return "temperature"
    return None


def extra_for(asked: ClientRequest, dialect: Dialect, *, conversation: bool = True) -> JsonObject:
    """The fields that go to a provider of this dialect beside the neutral ones: of the client's own dialect all that it
    wrote, word for word. Without `conversation` the neutral messages stand, for an answer that goes on from a cut."""
    if dialect != asked.dialect:
        return _identified(asked.user, dialect) if asked.user else {}
    left = _OURS if conversation else _OURS.union(_CONVERSATION[dialect])
    return {name: value for name, value in asked.body.items() if name not in left}


def _identified(user: str, dialect: Dialect) -> JsonObject:
    return {"metadata": {"user_id": user}} if dialect == "anthropic" else {"user": user}


# ── for the readers ──────────────────────────────────────────────────────────────────────────────────────────


def converted(body: object, kind: type[T], where: str = "") -> T:
    """`body` as this type. Raises `InvalidRequest` that names the field."""
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as exc:
        what, _, path = str(exc).partition(" - at `$")
        raise InvalidRequest(what, f"{where}{path.rstrip('`')}".lstrip(".") or None) from exc


def beyond_of(body: Mapping[str, Any], known: Collection[str], defaults: Mapping[str, tuple[Any, ...]]) -> list[str]:
    """The fields that say something which the neutral request does not. A field at its default says nothing."""
    return [
        name
        for name, value in body.items()
        if name not in known and value is not None and not any(value == default for default in defaults.get(name, ()))
    ]


def named(names: Iterable[str]) -> tuple[str, ...]:
    """Each once, in order."""
    return tuple(dict.fromkeys(names))
