"""Reasoning of a provider on its way through a client of another API, and back (K131).

Some providers refuse a tool's result unless the reasoning before its call comes back as they sent or signed it. Clients
of two APIs return reasoning with an opaque text, a signature or encrypted content: our seal goes there, and says which
provider's it is and what it was. It holds no secret and is not trusted: a client could have written it itself."""

from __future__ import annotations

import base64
import binascii
from typing import Final, TypeGuard

import msgspec

from tailrace.messages import Dialect, JsonObject, Message, NativeDelta, Reasoning

# The fields for reasoning in the order of trust: a server that fills several fills them with the same text.
TEXT_FIELDS: Final = ("reasoning_content", "reasoning", "thinking", "reasoning_text")
USUAL_FIELD: Final = TEXT_FIELDS[0]  # where a chat provider's stream says no other
_PREFIX: Final = "tr1."
_MAX_CHARS: Final = 8_000_000  # encrypted reasoning is long
_FIELD: Final = "reasoning_field"
_OF_ITEM: Final = frozenset({"summary", "content", "status"})


class _Sealed(msgspec.Struct):
    provider: str
    field: str = ""
    item: JsonObject | None = None  # a block or an item of another dialect, whole


_decode = msgspec.json.Decoder(_Sealed).decode


def seal(provider: str, field: str = "", item: JsonObject | None = None) -> str:
    """`field`: empty for reasoning that no field takes back. `item`: a thinking block or a reasoning item, signed."""
    data = msgspec.json.encode(_Sealed(provider, field, item))
    return _PREFIX + base64.urlsafe_b64encode(data).decode().rstrip("=")


def sealed_native(delta: NativeDelta, text: str, provider: str) -> str | None:
    """The seal of the reasoning that another dialect's delta signs; None for another delta. `text`: its thoughts."""
    match delta.item:
        case {"delta": {"type": "signature_delta", "signature": str(signature)}}:
            return seal(provider, item={"type": "thinking", "thinking": text, "signature": signature})
        case {"start": {"type": "redacted_thinking", "data": str(data)}}:
            return seal(provider, item={"type": "redacted_thinking", "data": data})
        case {"reasoning": dict(item)}:
            return seal(provider, item=item)
        case _:
            return None


def _is_signed(item: JsonObject) -> Dialect | None:
    """The dialect of an item that its provider takes back."""
    match item:
        case {"type": "thinking", "thinking": str(), "signature": str(), **more} if not more:
            return "anthropic"
        case {"type": "redacted_thinking", "data": str(), **more} if not more:
            return "anthropic"
        case {"type": "reasoning", "id": str(), "encrypted_content": str(), **more} if more.keys() <= _OF_ITEM:
            return "responses"
        case _:
            return None


def is_sealed(text: object) -> TypeGuard[str]:
    return isinstance(text, str) and text.startswith(_PREFIX)


def unsealed(text: str, sealed: str) -> Reasoning:
    """The reasoning that a client returns under this seal; plain text where the seal names nothing known."""
    try:
        coded = sealed.removeprefix(_PREFIX)[:_MAX_CHARS]
        named = _decode(base64.urlsafe_b64decode(coded + "=" * (-len(coded) % 4)))
    except (binascii.Error, ValueError, RecursionError):  # a decoding error of msgspec is a ValueError
        return Reasoning(text)
    if named.item is not None and named.provider and (dialect := _is_signed(named.item)) is not None:
        return Reasoning(text, dialect, named.item, f"{named.provider}/")
    if named.field not in TEXT_FIELDS or not named.provider or not text:
        return Reasoning(text)
    return Reasoning(text, "chat", {named.field: text}, f"{named.provider}/")


def field_of(part: Reasoning) -> str:
    """The field of a chat message that the reasoning was in; empty where it was in none that has its text."""
    native = {} if part.native is None or is_signed_item(part) else part.native
    return next((field for field in TEXT_FIELDS if native.get(field) and isinstance(native[field], str)), "")


def is_signed_item(part: Reasoning) -> bool:
    """Whether the reasoning is a block or an item of its provider's, not a field of a chat message."""
    return part.native is not None and "type" in part.native


def signed_item(part: Reasoning) -> JsonObject | None:
    """The provider's own item, where another dialect's client can take it along."""
    native = part.native
    return native if native is not None and _is_signed(native) is not None else None


def seal_of(part: Reasoning) -> str:
    item = signed_item(part)
    return seal(part.maker.partition("/")[0], field_of(part) if item is None else "", item)


def provider_of(message: Message) -> str:
    """The provider that made the message's reasoning; empty where that is not known."""
    makers = (part.maker for part in message.parts if isinstance(part, Reasoning))
    return next((maker.partition("/")[0] for maker in makers if maker), "")


def field_delta(field: str, choice: int = 0) -> NativeDelta:
    """Says in which field the reasoning after it is. Without one it is in the usual field."""
    return NativeDelta("chat", {_FIELD: field}, choice)


def named_field(delta: NativeDelta) -> str | None:
    """The field that such a delta names; None for another delta."""
    field = delta.item.get(_FIELD)
    return field if isinstance(field, str) else None
