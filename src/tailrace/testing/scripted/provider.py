"""A provider in the same process that plays what was written beforehand: no socket, no key, no surprises.

Each reply is rendered in the dialect's own words and read back by the dialect's own decoder, so what comes out is
what a real endpoint would have given, streamed or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from typing import NoReturn, TypeAlias, assert_never

from tailrace import messages
from tailrace.config.quirks import NONE
from tailrace.errors import ProviderError, Rejected, StreamCut
from tailrace.ports import AnswerStream, StreamDecoder
from tailrace.testing.scripted.failures import FAILURES, error_body, error_events
from tailrace.testing.scripted.render import body_of, events_of, frame
from tailrace.testing.scripted.reply import Reply, reply
from tailrace.testing.scripted.request_reader import ScriptedRequest, Sse, scripted_request
from tailrace.wire.dialect import WireDialect
from tailrace.wire.dialects import DIALECTS
from tailrace.wire.failure import failure_in, stream_cut, to_exception


class Stall(messages.Value):
    """The reply's first `after` pieces, and then silence until the caller gives up."""

    reply: Reply = Reply()
    after: int = 0


class Cut(messages.Value):
    """The reply's first `after` pieces, and then the end of the connection."""

    reply: Reply = Reply()
    after: int = 0


class Fail(messages.Value):
    """The reply's first `after` pieces, and then the provider's word for what went wrong: a key of `FAILURES`."""

    kind: str
    reply: Reply = Reply()
    after: int = 0

    def __post_init__(self) -> None:
        if self.kind not in FAILURES:
            raise ValueError(f"'{self.kind}' is none of {', '.join(FAILURES)}")


ScriptItem: TypeAlias = Reply | Stall | Cut | Fail | ProviderError


class ScriptedProvider:
    """Satisfies `ports.Provider`. Each call, streamed or not, takes the next item of the script.

    Text stands for a reply of that text; an error is raised in place of an answer. The script may be an endless
    iterator; a call past its end is rejected. `requests` keeps what was asked.
    """

    def __init__(
        self,
        script: Iterable[ScriptItem | str],
        *,
        dialect: messages.Dialect = "chat",
        name: str = "scripted",
        pace_s: float = 0.0,
    ) -> None:
        """`pace_s` passes on the loop's clock before each event of a stream."""
        self.name = name
        self.dialect: messages.Dialect = dialect
        self.requests: list[messages.ModelRequest] = []
        self._script = iter(script)
        self._pace_s = pace_s

    @asynccontextmanager
    async def stream(self, request: messages.ModelRequest) -> AsyncGenerator[AnswerStream, None]:
        turn = self._next(request)
        scripted = self._scripted(request, stream=True)
        async with aclosing(_ScriptedAnswer(turn, scripted, DIALECTS[self.dialect], self.name, self._pace_s)) as answer:
            yield answer

    async def complete(self, request: messages.ModelRequest) -> messages.Completion:
        turn = self._next(request)
        scripted = self._scripted(request, stream=False)
        await asyncio.sleep(0)  # a place to be cancelled, as every real call has
        if isinstance(turn, Reply):
            return DIALECTS[self.dialect].completion_from_body(body_of(self.dialect, turn, scripted))
        if isinstance(turn, Stall):
            await _silence()
        if isinstance(turn, Cut):
            raise StreamCut("the connection ended in the middle of the answer", provider=self.name)
        failure = FAILURES[turn.kind]
        error = failure_in(error_body(self.dialect, failure, scripted), status=failure.status)
        raise to_exception(error or stream_cut(), provider=self.name)

    def _next(self, request: messages.ModelRequest) -> Reply | Stall | Cut | Fail:
        self.requests.append(request)
        turn = next(self._script, None)
        if turn is None:
            raise Rejected(f"the script ended before call {len(self.requests)}", provider=self.name)
        if isinstance(turn, ProviderError):
            turn.provider = turn.provider or self.name
            raise turn
        return reply(turn) if isinstance(turn, str) else turn

    def _scripted(self, request: messages.ModelRequest, *, stream: bool) -> ScriptedRequest:
        return scripted_request(self.dialect, DIALECTS[self.dialect].encode_request(request, stream=stream))


class _ScriptedAnswer(AnswerStream):
    """The frames of one reply, through the decoder."""

    def __init__(
        self, turn: Reply | Stall | Cut | Fail, scripted: ScriptedRequest, wire: WireDialect, name: str, pace_s: float
    ) -> None:
        self._turn = turn
        self._request = scripted
        self._wire = wire
        self._name = name
        self._pace_s = pace_s
        self._decoder: StreamDecoder = wire.decoder(NONE)
        self._deltas = self._play()

    async def pump(self, take: Callable[[list[messages.AnyDelta]], None]) -> None:
        async for deltas in self._deltas:
            take(deltas)

    def completion(self) -> messages.Completion:
        return self._wire.completion_from_body(self._decoder.rebuilt_body())

    async def aclose(self) -> None:
        await self._deltas.aclose()

    async def _play(self) -> AsyncGenerator[list[messages.AnyDelta], None]:
        played, limit = (self._turn, None) if isinstance(self._turn, Reply) else (self._turn.reply, self._turn.after)
        sent = 0
        for event in events_of(self._wire.name, played, self._request):
            if limit is not None and sent >= limit:
                break
            await asyncio.sleep(self._pace_s)
            deltas = self._feed([event])
            sent += sum(map(_is_content, deltas))
            if deltas:
                yield deltas
        if limit is not None:
            await self._break()
        if deltas := self._decoder.close():
            yield deltas

    async def _break(self) -> None:
        match self._turn:
            case Stall():
                await _silence()
            case Fail(kind=kind):
                self._feed(error_events(self._wire.name, FAILURES[kind], self._request))
            case Cut():
                self._raise_for(self._decoder.close())
            case Reply():
                pass
            case _:
                assert_never(self._turn)

    def _feed(self, events: list[Sse]) -> list[messages.AnyDelta]:
        deltas = [delta for event in events for delta in self._decoder.feed(frame(event))]
        self._raise_for(deltas)
        return deltas

    def _raise_for(self, deltas: list[messages.AnyDelta]) -> None:
        if deltas and isinstance(error := deltas[-1], messages.ErrorDelta):
            raise to_exception(error, provider=self._name)


def _is_content(delta: messages.AnyDelta) -> bool:
    match delta:
        case messages.TextDelta(text=text) | messages.ReasoningDelta(text=text) | messages.RefusalDelta(text=text):
            return bool(text)
        case messages.ToolCallDelta(arguments=arguments):
            return bool(arguments)
        case _:
            return False


async def _silence() -> NoReturn:
    """Until the caller is cancelled."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError("the future is never resolved")
