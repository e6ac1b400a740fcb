"""The `chat` dialect: OpenAI Chat Completions and the many servers that speak it, both ways.

`decode` turns stream bytes into deltas and the provider's own body, `completion` turns that body into a `Completion`,
`provider_request` encodes a `ModelRequest`, `client_request` parses a client's request, and `encode` encodes an answer
for a client of our server, `encode_body` one that is not streamed.
"""

from __future__ import annotations

from tailrace.wire.chat.completion import completion_from_body
from tailrace.wire.chat.decode import ChatDecoder
from tailrace.wire.chat.encode import StreamEncoder
from tailrace.wire.chat.encode_body import encode_body
from tailrace.wire.chat.provider_request import encode_request

__all__ = ["ChatDecoder", "StreamEncoder", "completion_from_body", "encode_body", "encode_request"]
