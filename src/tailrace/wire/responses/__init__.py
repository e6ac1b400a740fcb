"""The dialect of OpenAI's Responses API and of the servers that speak it, both ways, without I/O."""

from tailrace.wire.responses.completion import completion_from_body
from tailrace.wire.responses.decode import ResponsesDecoder
from tailrace.wire.responses.encode import StreamEncoder, encode_body
from tailrace.wire.responses.provider_request import encode_request

__all__ = ["ResponsesDecoder", "StreamEncoder", "completion_from_body", "encode_body", "encode_request"]
