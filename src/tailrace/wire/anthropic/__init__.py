"""The Anthropic Messages API, both ways: what it streams and answers, and how it wants to be asked."""

from tailrace.wire.anthropic.completion import completion_from_body
from tailrace.wire.anthropic.decode import AnthropicDecoder
from tailrace.wire.anthropic.encode import StreamEncoder, encode_body
from tailrace.wire.anthropic.provider_request import encode_request

__all__ = ["AnthropicDecoder", "StreamEncoder", "completion_from_body", "encode_body", "encode_request"]
