"""Text in the JSON of a peer, and text that can be sent: no UTF-8 encoder takes a lone surrogate (A18)."""

from __future__ import annotations

import msgspec

from tailrace.messages import JsonObject


def text_of(value: object) -> str:
    """A field that should be text; empty where it is anything else."""
    return value if isinstance(value, str) else ""


def cleaned(text: str) -> str:
    """Halves that belong together become the character they mean, lone ones U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def sendable(body: JsonObject) -> JsonObject:
    """The same body, cleaned where that is needed: with a lone surrogate in it, it could not be sent at all."""
    try:
        msgspec.json.encode(body)
    except UnicodeEncodeError:
        return {cleaned(name): _cleaned(value) for name, value in body.items()}
    return body


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return cleaned(value)
    if isinstance(value, dict):
        return {cleaned(name): _cleaned(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(item) for item in value]
    return value
