"""An answer of any dialect as a chat completion, for clients of our own server: streamed or whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, assert_never

import msgspec

from tailrace.messages import (
    AnyDelta,
    Completion,
    Dialect,
    ErrorDelta,
    FinishDelta,
    JsonObject,
    NativeDelta,
    ReasoningDelta,
    RefusalDelta,
    Stop,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageDelta,
)
from tailrace.wire.chat.usage import usage_body
from tailrace.wire.error_bodies import openai_error_body

_encode = msgspec.json.Encoder().encode
_REASONS: dict[Stop, str] = {
    "end": "stop",
    "length": "length",
    "tools": "tool_calls",
    "filter": "content_filter",
    "pause": "stop",
    "unknown": "stop",
}
# The finish reasons of other dialects in this one; a reason that is not here is kept.
_REASON_OF = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "completed": "stop",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "incomplete": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_DONE = b"data: [DONE]\n\n"


class StreamEncoder:
    """Deltas in, bytes of the event stream out. `source` is the dialect that the deltas were decoded from.

    The first chunk of each choice carries the role. Finish reasons are held until `close`: text may still follow one,
    and the caller of `close` may override it.
    """

    def __init__(
        self,
        *,
        id: str,  # noqa: A002 - the field's own name
        model: str,
        created: int,
        include_usage: bool = False,
        source: Dialect = "chat",
    ) -> None:
        head = {"id": id, "object": "chat.completion.chunk", "created": created, "model": model}
        self._head = b"data: " + _encode(head)[:-1]
        # Where the last chunk has the usage, the others have `usage: null` (H93).
        self._tail = b',"usage":null}\n\n' if include_usage else b"}\n\n"
        self._include_usage = include_usage
        self._source = source
        self._usage = usage_body(Usage(), source)
        self._open: dict[int, tuple[bytes, bytes]] = {}  # by choice: the bytes before and after a text
        self._reasons: dict[int, str] = {}
        self._called: set[int] = set()  # choices with tool calls
        self._ended = False

    def start(self) -> bytes:
        """The first chunk, as soon as the request is accepted; else it comes with the first delta."""
        out: list[bytes] = []
        self._begin(0, out)
        return b"".join(out)

    def encode(self, deltas: Iterable[AnyDelta]) -> bytes:
        """The chunks of these deltas."""
        out: list[bytes] = []
        for delta in deltas:
            if self._ended:
                break
            match delta:
                case TextDelta(text=text, choice=choice):
                    before, after = self._open.get(choice) or self._begin(choice, out)
                    out += (before, _encode(text), after)
                case ReasoningDelta() | RefusalDelta() | ToolCallDelta():
                    self._begin(delta.choice, out)
                    if isinstance(delta, ToolCallDelta):
                        self._called.add(delta.choice)
                    out.append(self._chunk(delta.choice, _delta_fields(delta), None))
                case NativeDelta("chat", item, choice):  # fields that only this dialect has, from its own decoder
                    self._begin(choice, out)
                    out.append(self._chunk(choice, item.get("delta", {}), None, item.get("logprobs")))
                case NativeDelta():
                    pass
                case FinishDelta(reason=reason, choice=choice):
                    self._reasons[choice] = _REASON_OF.get(reason, reason)
                case UsageDelta(usage=usage, body=body):
                    own = body if self._source == "chat" else {}
                    self._usage = own or usage_body(usage, self._source)
                case ErrorDelta():
                    self._ended = True
                    out.append(b"data: %b\n\n" % _encode(openai_error_body(delta)))
                case _:
                    assert_never(delta)
        return b"".join(out)

    def close(self, stop: Stop | None = None) -> bytes:
        """The end of the answer; `stop` overrides the reason of the deltas. Nothing after an error event (H94)."""
        if self._ended:
            return b""
        self._ended = True
        out: list[bytes] = []
        for choice in sorted({0, *self._open, *self._reasons}):
            self._begin(choice, out)
            reason = _REASONS[stop] if stop else self._reasons.get(choice, "stop")
            if reason == "stop" and choice in self._called:
                reason = "tool_calls"  # clients run the calls only under this reason
            out.append(self._chunk(choice, {}, reason))
        if self._include_usage:
            out.append(b'%b,"choices":[],"usage":%b}\n\n' % (self._head, _encode(self._usage)))
        return b"".join(out) + _DONE

    def _begin(self, choice: int, out: list[bytes]) -> tuple[bytes, bytes]:
        """Begins the choice unless it has begun. The bytes before and after a text of it."""
        if choice in self._open:
            return self._open[choice]
        out.append(self._chunk(choice, {"role": "assistant", "content": ""}, None))
        before = b'%b,"choices":[{"index":%d,"delta":{"content":' % (self._head, choice)
        after = b'},"finish_reason":null}]' + self._tail
        self._open[choice] = before, after
        return before, after

    def _chunk(self, choice: int, delta: JsonObject, reason: str | None, logprobs: JsonObject | None = None) -> bytes:
        probable = {"logprobs": logprobs} if logprobs else {}
        said = _encode([{"index": choice, "delta": delta, **probable, "finish_reason": reason}])
        return b'%b,"choices":%b%b' % (self._head, said, self._tail)


def _delta_fields(delta: ReasoningDelta | RefusalDelta | ToolCallDelta) -> JsonObject:
    match delta:
        case ReasoningDelta(text=text):
            return {"reasoning_content": text}
        case RefusalDelta(text=text):
            return {"refusal": text}
        case ToolCallDelta(index, id_, name, arguments):
            head = {"index": index, "id": id_, "type": "function"} if id_ else {"index": index}
            function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
            return {"tool_calls": [{**head, "function": function}]}
        case _:
            assert_never(delta)


def encode_body(completion: Completion, *, id: str = "", model: str = "", created: int = 0) -> JsonObject:  # noqa: A002
    """The answer as a non-streaming body. An answer of this dialect keeps its own body."""
    if completion.dialect == "chat":
        return completion.body
    message: dict[str, Any] = {"role": "assistant", "content": completion.text or None, "refusal": completion.refusal}
    if completion.reasoning:
        message["reasoning_content"] = completion.reasoning
    if completion.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in completion.tool_calls
        ]
    elif message["content"] is None and completion.refusal is None:
        message["content"] = ""
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _REASONS[completion.stop]}
    return {
        "id": id or completion.id,
        "object": "chat.completion",
        "created": created,
        "model": model or completion.model,
        "choices": [choice],
        "usage": usage_body(completion.usage, completion.dialect),
    }
