"""The `chat` dialect: OpenAI Chat Completions and the many servers that speak it, both ways.

`decode` turns stream bytes into deltas and the provider's own body, `read` turns that body into a `Completion`,
`request` puts a `ModelRequest` into the dialect's words, `encode` serves an answer to somebody else's client.
"""

from __future__ import annotations

from tailrace.wire.chat.completion import read
from tailrace.wire.chat.decode import ChatDecoder
from tailrace.wire.chat.encode import StreamEncoder, encode_body, error_body
from tailrace.wire.chat.provider_request import encode_request

__all__ = ["ChatDecoder", "StreamEncoder", "encode_body", "encode_request", "error_body", "read"]
