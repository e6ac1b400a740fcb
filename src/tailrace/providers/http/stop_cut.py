"""An answer that ends at a stop string, of an API that has no such parameter: the Responses API. Nothing of the stop
string or after it is shown, and the stream ends there."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tailrace import messages
from tailrace.errors import ProviderError
from tailrace.messages import AnyDelta, Completion, ModelRequest, NativeDelta, TextDelta, UsageDelta
from tailrace.ports import AnswerStream
from tailrace.wire.dialect import WireDialect, stop_sequence_delta
from tailrace.wire.responses.response_fields import usage_body
from tailrace.wire.token_estimate import input_tokens, message_tokens
from tailrace.wire.translation.stop_strings import StopMatcher, cut_at_stop, without_last

STOPPED = "stop_sequence"  # the finish reason, as Anthropic's API names it


class _StopStringFound(Exception):
    """Ends the reading of the answer that is cut. Never leaves this module."""


class StopCutAnswer(AnswerStream):
    def __init__(self, inner: AnswerStream, request: ModelRequest, wire: WireDialect) -> None:
        self._inner = inner
        self._wire = wire
        self._request = request
        self._matcher = StopMatcher(request.stop)
        self._stopped = False
        self._unshown = 0  # characters that were held back when the stream failed

    @property
    def skipped(self) -> str:
        return self._inner.skipped

    async def pump(self, take: Callable[[list[AnyDelta]], None]) -> None:
        def take_cut(deltas: list[AnyDelta]) -> None:
            take(self._cut(deltas))
            if self._stopped:
                raise _StopStringFound

        try:
            await self._inner.pump(take_cut)
        except _StopStringFound:
            return
        except ProviderError:
            self._unshown = len(self._matcher.release())
            raise
        if held := self._matcher.release():
            take([TextDelta(held)])

    def completion(self) -> Completion:
        """Its usage is an estimate where it ended before the provider has said it."""
        received = self._inner.completion()
        body, stop = cut_at_stop(received.body, self._request.stop)
        if not stop:
            return self._wire.completion_from_body(without_last(body, self._unshown)) if self._unshown else received
        if not body.get("usage"):
            said = messages.Usage(input_tokens(self._request), message_tokens((received.message,)))
            body["usage"] = usage_body(said, self._wire)
        cut = self._wire.completion_from_body(body)
        reason = STOPPED if cut.stop == "end" else cut.finish_reason
        return msgspec.structs.replace(cut, finish_reason=reason, stop_sequence=stop)

    def _cut(self, deltas: list[AnyDelta]) -> list[AnyDelta]:
        out: list[AnyDelta] = []
        for delta in deltas:
            if isinstance(delta, TextDelta):
                text, stop = self._matcher.feed(delta.text)
                if text:
                    out.append(TextDelta(text))
                if stop:
                    self._stopped = True
                    return [*out, *self._ending(stop)]
            else:
                if _parts_texts(delta) and (held := self._matcher.release()):
                    out.append(TextDelta(held))
                out.append(delta)
        return out

    def _ending(self, stop: str) -> list[AnyDelta]:
        completion = self.completion()
        named = stop_sequence_delta(self._wire.name, stop)
        return [named, UsageDelta(completion.usage), messages.FinishDelta(completion.finish_reason)]


def _parts_texts(delta: AnyDelta) -> bool:
    """Whether a text that follows this is another one. An annotation stands in the middle of its text."""
    if isinstance(delta, NativeDelta):
        return "apart" in delta.item or "item" in delta.item
    return not isinstance(delta, UsageDelta)
