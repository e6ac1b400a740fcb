"""Cut at every place of three reference streams per dialect: the right class, no doubled and no lost text, and never
a tool call from incomplete arguments.

Each call is cut at one byte and goes on with a second attempt. The bytes come over a transport in this process, so
that thousands can be tried; every 97th is tried again over a real socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

import pytest

from providers.faulty_calls import DIALECTS, Told, faulty
from tailrace.config.sections import CallPolicy
from tailrace.errors import Retryable, StreamCut
from tailrace.messages import Completion, Dialect, ModelRequest, user
from tailrace.providers.attempt import Route
from tailrace.providers.call import Caller, CallResult
from tailrace.providers.http.endpoint import Endpoint
from tailrace.providers.http.provider import HttpProvider
from tailrace.providers.transport.port import HttpReply
from tailrace.testing.provider import Break, FaultyProvider, Offset, Reply, Scenario, call, reply, think

_WEATHER = call("get_weather", {"city": "Zürich"})
STREAMS: dict[str, Reply] = {
    "text": reply("Water turns \u2028 on. 👩‍👧"),
    "text-and-tool": reply("I look.", _WEATHER),
    "thought-and-tool": reply(think("Hm.", "c2lnbmVk"), _WEATHER),
}
SOCKET_STRIDE = 97
ASK = ModelRequest("ok", (user("Where?"),))
POLICY = CallPolicy(max_attempts=3, backoff_s=0.000001)  # the second attempt streams, the last one might not


class CutReply(HttpReply):
    """A body that breaks off where its transport says."""

    status = 200
    headers: Mapping[str, str] = {"content-type": "text/event-stream"}

    def __init__(self, body: bytes, *, broken: bool) -> None:
        self._pieces = [body] if body else []
        self._broken = broken
        self.closed = False

    @property
    def at_end(self) -> bool:
        return not self._pieces and not self._broken

    async def read(self) -> bytes:
        if self._pieces:
            return self._pieces.pop()
        if self._broken:
            raise StreamCut("the connection broke in the middle of the answer", code="stream_cut")
        return b""

    def close(self) -> None:
        self.closed = True


class CutTransport:
    """Answers the first request up to a byte, and the second in full."""

    def __init__(self, body: bytes, cut_at: int) -> None:
        self.replies = [CutReply(body[:cut_at], broken=True), CutReply(body, broken=False)]
        self.asked = 0

    async def post(
        self, url: str, *, headers: Mapping[str, str], body: bytes, connect_timeout_s: float, socket_path: str = ""
    ) -> HttpReply:
        self.asked += 1
        return self.replies[self.asked - 1]

    async def get(
        self, url: str, *, headers: Mapping[str, str], connect_timeout_s: float, socket_path: str = ""
    ) -> HttpReply:
        raise AssertionError("a call never gets")


def places(body: bytes) -> list[int]:
    """Every byte around the end of a line, where what was said changes, and every third one within: another third in
    each event. The events of a stream are alike, so that together they are cut at every byte."""
    found, event = [], 0
    for at in range(len(body)):
        event += body[at - 2 : at] == b"\n\n"
        if b"\n" in body[max(0, at - 3) : at + 3] or (at + event) % 3 == 0:
            found.append(at)
    return found


async def recorded(dialect: Dialect, said: Reply) -> tuple[bytes, Completion]:
    """The bytes of the stream, as they came over a socket, and what they say."""
    taken: list[bytes] = []
    async with faulty(said) as bench:
        provider = bench.provider(dialect)
        body_without = partial(provider.request_body, ASK, stream=True)
        answer, _ = await provider._post(ASK, body_without, provider._endpoint.url())
        while data := await answer.read():
            taken.append(data)
        answer.close()
        bench.server.extend(said)
        whole = await provider.complete(ASK)
    return b"".join(taken), whole


def check(result: CallResult, told: Told, whole: Completion, at: int) -> None:
    assert result.incomplete is None, at
    assert isinstance(result.attempts[0].error, Retryable), at
    assert result.completion.text == told.text == whole.text, at
    assert [(call.name, call.arguments) for call in result.completion.tool_calls] == [
        (call.name, call.arguments) for call in whole.tool_calls
    ], at


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", STREAMS)
async def test_cut_everywhere(dialect: Dialect, name: str) -> None:
    """A01, A15, B34, D48, E63."""
    body, whole = await recorded(dialect, STREAMS[name])
    endpoint = Endpoint(name="cut", dialect=dialect, base_url="http://cut")
    caller = Caller()
    cut, complete = 0, 0
    for at in (tried := places(body)):
        transport = CutTransport(body, at)
        told = Told()
        result = await caller.complete(ASK, [Route(HttpProvider(endpoint, transport), "ok", POLICY)], listener=told)
        if transport.asked == 1:  # what is missing came after the terminal event
            assert result.completion.body == whole.body
            complete += 1
        else:
            check(result, told, whole, at)
            cut += 1
        assert all(answered.closed for answered in transport.replies[: transport.asked])
    assert cut > len(tried) * 0.98
    assert complete <= 3  # the blank line that ends the last event, and no more


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", STREAMS)
async def test_cut_at_every_97th_byte_over_a_socket(dialect: Dialect, name: str) -> None:
    body, whole = await recorded(dialect, STREAMS[name])
    async with faulty() as bench:
        said = STREAMS[name]
        servers = [
            FaultyProvider(script=[Scenario(reply=said, broken=Break("cut", Offset(at))), said])
            for at in range(0, len(body) - 3, SOCKET_STRIDE)
        ]

        async def one(server: FaultyProvider, at: int) -> None:
            async with server:
                provider = bench.provider(dialect, base_url=server.url)
                told = Told()
                result = await bench.call(Route(provider, "ok", POLICY), request=ASK, told=told)
                check(result, told, whole, at)
                assert len(server.requests) == 2

        async with asyncio.TaskGroup() as group:
            for number, server in enumerate(servers):
                group.create_task(one(server, number * SOCKET_STRIDE))


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_cut_everywhere_with_nobody_to_go_on(dialect: Dialect) -> None:
    """B34, B38: whatever was open is named, nothing of it can be run, and the text is exactly what was shown."""
    body, whole = await recorded(dialect, STREAMS["text-and-tool"])
    endpoint = Endpoint(name="cut", dialect=dialect, base_url="http://cut")
    named = 0
    for at in places(body):
        transport = CutTransport(body, at)
        told = Told()
        route = Route(HttpProvider(endpoint, transport), "ok", CallPolicy(max_attempts=1))
        try:
            result = await Caller().complete(ASK, [route], listener=told)
        except StreamCut:
            assert told.text == ""
            continue
        assert whole.text.startswith(told.text)
        assert result.completion.text == told.text
        if result.incomplete is not None:
            assert result.completion.tool_calls == ()
            named += bool(result.incomplete.open_calls)
            assert set(result.incomplete.open_calls) <= {"get_weather"}
    assert named > 30
