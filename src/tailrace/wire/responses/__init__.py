"""The dialect of OpenAI's Responses API and of the servers that speak it, both ways, without I/O."""

from tailrace.wire.responses.decode import ResponsesDecoder
from tailrace.wire.responses.read import read
from tailrace.wire.responses.request import encode_request

__all__ = ["ResponsesDecoder", "encode_request", "read"]
