"""The Anthropic Messages API, both ways: what it streams and answers, and how it wants to be asked."""

from tailrace.wire.anthropic.decode import AnthropicDecoder
from tailrace.wire.anthropic.read import read
from tailrace.wire.anthropic.request import encode_request

__all__ = ["AnthropicDecoder", "encode_request", "read"]
