"""What the fakes over HTTP have in common: a port on loopback, a log of the requests, and faults on order.

Knows no platform. Time is the loop's, so that a driven clock drives it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Literal, Self

import msgspec
from aiohttp import web

PATIENCE_S = 60.0  # after which `until` gives up
MAX_BODY_BYTES = 1 << 20


class Fault(msgspec.Struct, frozen=True):
    """What becomes of a request instead of its answer.

    `accepted`: it is carried out first, so that only the answer is lost. Then either `status` and `body` are answered,
    or nothing ("silence": the connection stays open; "cut": it is closed).
    """

    status: int = 500
    body: bytes = b""
    headers: dict[str, str] = {}
    accepted: bool = False
    instead: Literal["silence", "cut"] | None = None


def json_fault(status: int, body: object, **headers: str) -> Fault:
    """An answer in the platform's own form."""
    return Fault(status, msgspec.json.encode(body), {"Content-Type": "application/json"} | headers)


def silence(*, accepted: bool = True) -> Fault:
    """The client's deadline passes: with `accepted` it cannot know that the request was carried out (G80)."""
    return Fault(accepted=accepted, instead="silence")


def cut(*, accepted: bool = True) -> Fault:
    """The connection ends without an answer."""
    return Fault(accepted=accepted, instead="cut")


def bad_gateway(*, accepted: bool = False) -> Fault:
    """A proxy in between answers in the platform's place."""
    return Fault(502, b"<html>Bad Gateway</html>", {"Content-Type": "text/html"}, accepted=accepted)


class RecordedCall(msgspec.Struct):
    """A request that came. `method` is the platform's name for it; `at` is the loop's time."""

    method: str
    params: dict[str, Any]
    at: float
    status: int = 0  # as answered; 0: not answered
    headers: Mapping[str, str] = {}


class Changing:
    """Something that a test waits for."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    async def until(self, condition: Callable[[], object], timeout_s: float = PATIENCE_S) -> None:
        """Returns as soon as the condition holds; it is looked at whenever something has changed here."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                await self._changed.wait()

    def changed(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class LoopbackFake(Changing):
    """A web server for one test. Subclasses name its `routes` and pass requests to `answer`."""

    def __init__(self, *, port: int = 0) -> None:
        super().__init__()
        self.calls: list[RecordedCall] = []
        self._files: dict[str, bytes] = {}
        self._port = port
        self._faults: dict[str, list[Fault]] = defaultdict(list)
        self._runner: web.AppRunner | None = None
        self._closing = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def fail(self, method: str, *faults: Fault) -> None:
        """The next requests for this method meet these faults, one each."""
        self._faults[method] += faults

    def recover(self) -> None:
        """No more faults."""
        self._faults.clear()

    def called(self, method: str) -> list[RecordedCall]:
        return [call for call in self.calls if call.method == method]

    async def __aenter__(self) -> Self:
        application = web.Application(client_max_size=MAX_BODY_BYTES)
        application.add_routes(self.routes())
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the port and every connection."""
        self._closing.set()
        self.changed()
        if self._runner is not None:
            await self._runner.cleanup()

    def routes(self) -> list[web.RouteDef]:
        raise NotImplementedError

    async def answer(
        self, request: web.Request, method: str, params: dict[str, Any], act: Callable[[], web.Response]
    ) -> web.Response:
        """Records the request and carries it out, unless a fault is due."""
        call = RecordedCall(method, params, self.now(), headers=dict(request.headers))
        self.calls.append(call)
        waiting = self._faults[method]
        fault = waiting.pop(0) if waiting else None
        response = act() if fault is None or fault.accepted else None
        self.changed()
        if fault is not None:
            response = await self._break(request, fault)
        if response is None:
            return web.Response()  # not sent: the connection is gone
        call.status = response.status
        self.changed()
        return response

    async def _break(self, request: web.Request, fault: Fault) -> web.Response | None:
        if fault.instead is None:
            return web.Response(status=fault.status, body=fault.body, headers=fault.headers)
        if fault.instead == "silence":
            await self._closing.wait()
        if request.transport is not None:
            request.transport.abort()
        return None

    def file(self, name: str) -> web.Response:
        content = self._files.get(name)
        return web.Response(body=content) if content is not None else web.Response(status=404)

    @staticmethod
    def now() -> float:
        return asyncio.get_running_loop().time()
