"""A JSON schema in words, for a provider that knows no structured output."""

from __future__ import annotations

import msgspec

from tailrace.errors import Permanent, ProviderError
from tailrace.messages import ModelRequest
from tailrace.values.error_texts import says


def refuses_schema(error: ProviderError, request: ModelRequest) -> bool:
    """Whether it was refused for its schema."""
    if request.response_schema is None or not isinstance(error, Permanent) or error.status not in (400, 404, 422):
        return False
    return says("no_schema", str(error))


def in_words(request: ModelRequest) -> ModelRequest:
    """The same with its schema as an instruction."""
    asked = msgspec.json.encode(request.response_schema).decode()
    words = f"Answer with JSON alone, without words around it, that satisfies this JSON schema: {asked}"
    system = f"{request.system}\n\n{words}" if request.system else words
    return msgspec.structs.replace(request, system=system, response_schema=None)
