"""What every request passes: authorisation, limits, error bodies in the API's own format, and the shutdown.

Owns a request from the router to the last byte, and the server from its first request to the end of the drain. Knows
no route: routes are values that it is given. It is one middleware, so that no other can stand between its parts.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from aiohttp import HttpVersion11, hdrs, web

from tailrace.app.health import unavailable_parts
from tailrace.app.telemetry.access_log import AccessLog
from tailrace.config.load import Config
from tailrace.errors import ConfigError, JournalError, StorageFailed
from tailrace.journal.storage_wait import PATIENCE_S, warning_level
from tailrace.runs.charged_to import CHARGED_TO
from tailrace.runs.signals import run_beside
from tailrace.server.http import api_errors
from tailrace.server.http.api_errors import ApiError, as_api_error, error_response, is_said_in_stream, no_route
from tailrace.server.http.auth import LOCAL, Access, Authoriser, Identity, Origins
from tailrace.server.http.body_budget import BodyBudget, BodyClaim
from tailrace.server.http.key_limits import admit, is_counted, uncount_refused
from tailrace.server.http.plain.connection import PlainTarget
from tailrace.server.http.request_body import BODY_CLAIM, IDENTITY, REQUEST_ID
from tailrace.server.http.response_head import ResponseHeads
from tailrace.server.http.route import Handler, Route
from tailrace.server.http.sse_stream import ErrorFrame, EventStream, StreamTiming
from tailrace.server.metrics.registry import Metrics
from tailrace.system.own_task import until_done
from tailrace.system.private_apis import request_values
from tailrace.system.random_hex import random_hex

if TYPE_CHECKING:
    from tailrace.app import App
    from tailrace.app.http_connection import HttpConnection

T = TypeVar("T")
log = logging.getLogger("tailrace.server")
REQUEST_PATIENCE_S: Final = 5.0  # how long a request waits for storage that is away, before its 503
LOOK_S: Final = 0.25  # between two looks for runs that were given back, while the server stops
STREAM: Final = web.RequestKey("stream", EventStream)
SOCKET: Final = web.RequestKey("socket", web.WebSocketResponse)
_PROBED: Final = frozenset({"/readyz", "/metrics"})
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_PREFLIGHT: Final = {
    "Access-Control-Allow-Methods": "GET, POST, PATCH, DELETE",
    "Access-Control-Max-Age": "600",
    "Vary": "Origin, Access-Control-Request-Headers",
}


class RequestPipeline:
    """What routes are given: the application, streams, and tasks that outlive a client's connection."""

    def __init__(
        self,
        app: App,
        *,
        authoriser: Authoriser,
        origins: Origins,
        metrics: Metrics | None = None,
        timing: StreamTiming | None = None,
        max_requests: int = 4096,
        body_budget: BodyBudget | None = None,
    ) -> None:
        self.app = app
        self.metrics = metrics if metrics is not None else Metrics()
        self._counted, self._viewers = self.metrics.in_flight.cells_of(), self.metrics.viewers.cells_of()
        self._draining = asyncio.Event()
        self._authoriser = authoriser
        self._limits = app.limits
        app.on_stored_keys = lambda: self._take_keys(app.config)
        app.own_report.requests = lambda: self.in_flight
        self._origins = origins
        self._heads = ResponseHeads(origins)
        self.stream_head = self._heads.of_stream  # for the stream: its head
        self.stream_timing = timing if timing is not None else StreamTiming()
        self._max_requests = max_requests
        self.body_budget = body_budget if body_budget is not None else BodyBudget(128_000_000)
        self._in_flight: set[asyncio.Task[Any]] = set()
        self._stopping = False
        self._streams: dict[EventStream, Identity] = {}
        self._viewed: dict[asyncio.Task[Any], str] = {}  # the runs that requests show to their ends
        self._cut: set[asyncio.Task[Any]] = set()  # requests that were told to end before all others
        self._background: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.get_running_loop()
        self.access_log = AccessLog(self._loop)
        self._idle: asyncio.Event | None = None  # of a drain: no request is in flight
        self._routes: dict[web.AbstractRoute, Route] = {}
        self.plain_targets: dict[bytes, PlainTarget] = {}  # what answers the routes of the short way, by request line
        self.router: web.UrlDispatcher  # once `application` has made it
        self.max_body_bytes = 0
        self.storage_failed = False  # a request or a probe has found the store unavailable, and none has since found it

    def prepared_keys(self, config: Config) -> Callable[[], Awaitable[None]]:
        """What takes up the keys of another config, from the next request on. Raises `ConfigError`, also where a
        server that has keys would have none."""
        authoriser = Authoriser.of(config, self.app.stored_keys)
        if self._authoriser.required and not authoriser.required:
            raise ConfigError(
                "without any key the server would serve every client; that needs a restart", key="server.keys"
            )

        async def take_up() -> None:
            self._take_keys(config)  # stored keys may have been revoked meanwhile

        return take_up

    def _take_keys(self, config: Config) -> None:
        """A server that asked for a key goes on to do so when its last one is revoked: it opens to no one (J117).
        Streams of a key that is no longer let in end here: some have no end of their own."""
        self._authoriser = Authoriser.of(config, self.app.stored_keys, required=self._authoriser.required)
        for stream, caller in self._streams.items():
            if not self._authoriser.lets_in(caller):
                stream.drop()

    @property
    def needs_key(self) -> bool:
        """A client without a key may read nothing."""
        return self._authoriser.required

    @property
    def draining(self) -> bool:
        """No new work is taken."""
        return self._draining.is_set()

    def begin_drain(self) -> None:
        self._draining.set()

    # ── for routes ───────────────────────────────────────────────────────────────────────────────────────────

    def stream(
        self,
        request: web.Request,
        *,
        error_frame: ErrorFrame | None = None,
        headers: Mapping[str, str] | None = None,
        run_id: str = "",
    ) -> EventStream:
        """The stream that answers this request; one per request. `error_frame` encodes the event that ends a failed
        stream; the default is the error event of the route's API. `headers` are further ones of the answer. `run_id`:
        the run whose end the stream waits for; its client can come back for the rest."""
        dialect = api_errors.dialect_at(request.path)
        ping = dialect.ping if dialect is not None else b""
        stream = EventStream(self, request, self._loop, error_frame=error_frame, headers=headers, ping=ping)
        PATIENCE_S.set(None)  # a viewer waits for storage as runs do
        values = request_values(request)
        self._streams[stream] = values[IDENTITY]
        if run_id:
            self.shows(run_id)
        self._viewers[0] += 1
        values[STREAM] = stream
        return stream

    def shows(self, run_id: str) -> None:
        """The request of this task waits for the end of this run from now on, and of no other."""
        self._viewed[_current_task(self._loop)] = run_id

    def stream_failure(self, request: web.Request, error: ApiError, error_frame: ErrorFrame | None) -> bytes:
        """For the stream: the event that ends it where it has failed."""
        error = self._without_secrets(error)
        if error_frame is not None:
            return error_frame(error)
        return api_errors.error_frame(error, request.path, request[REQUEST_ID])

    def upgraded(self, request: web.Request, socket: web.WebSocketResponse[Any]) -> None:
        """The connection is a web socket from here on: whatever ends the handler, no other answer is sent."""
        request_values(request)[SOCKET] = socket

    async def admit_call(self, request: web.Request, *, counted: bool = True) -> None:
        """For what a web socket asks for: it is admitted as a request of its own would be. Raises `ApiError`."""
        identity = self._admit(request, self._routes.get(request.match_info.route))
        if identity is not None:
            await self._charge(identity, request, counted=counted)

    async def charge_call(self, request: web.Request) -> None:
        """For a run that an admitted request begins: it counts for the key as a request does. Raises `ApiError` 429."""
        await self._charge(request[IDENTITY], request)

    def call_failure(self, request: web.Request, exc: Exception) -> ApiError:
        """What a web socket's client is told where a call of its has failed before it began."""
        return self._without_secrets(self._as_error(request, exc))

    async def run_to_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs `work` to completion even if the client disconnects (shielded)."""
        task = asyncio.get_running_loop().create_task(work)
        self.track(task)
        try:
            return (await until_done(task)).result()
        except asyncio.CancelledError:
            task.add_done_callback(_log_failure)  # the caller is gone: the log is the only place for its error
            raise

    async def begin_run(self, work: Coroutine[Any, Any, T]) -> T:
        """As `run_to_end`, for work that records a new run. Once storage has failed, a run is taken only when `/readyz`
        would say ready: raises `StorageFailed` otherwise."""
        if self.storage_failed:
            missing = await unavailable_parts(self.app.journal)
            self.storage_failed = "store" in missing
            if self.storage_failed:
                work.close()
                raise missing["store"]
        return await self.run_to_end(work)

    async def unless_draining(self, work: Awaitable[T]) -> T:
        """The result of `work`. For a stream without an end of its own: raises `ApiError` 503 when the server begins to
        stop."""
        task, draining = asyncio.ensure_future(work), asyncio.ensure_future(self._draining.wait())
        try:
            await asyncio.wait((task, draining), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise stopping()
            return task.result()
        finally:
            task.cancel()
            draining.cancel()

    def track(self, task: asyncio.Task[Any]) -> None:
        """The drain waits for this task as for a request. The caller is responsible for cancelling it."""
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # ── the middleware ───────────────────────────────────────────────────────────────────────────────────────

    def application(self, routes: Iterable[Route], *, max_body_bytes: int) -> web.Application:
        """The aiohttp application of these routes inside this pipeline."""
        application = web.Application(middlewares=[self._serve], client_max_size=max_body_bytes)
        application.on_response_prepare.append(self._heads.finish)
        self.router, self.max_body_bytes = application.router, max_body_bytes
        for route in routes:
            for method in (route.method, "HEAD") if _has_head(route) else (route.method,):
                # the middleware awaits what a handler returns: the library is never given a coroutine
                known = cast("Callable[[web.Request], Awaitable[web.StreamResponse]]", route.handler)
                added = application.router.add_route(method, route.path, known, expect_handler=_on_expect)
                self._routes[added] = route
                if route.plain:
                    found = web.UrlMappingMatchInfo({}, added)
                    found.add_app(application)
                    found.freeze()
                    serve = partial(self._serve_route, handler=route.handler, route=route)
                    line, target = PlainTarget.of(method, route.path, found, serve)
                    self.plain_targets[line] = target
        return application

    @property
    def routes(self) -> tuple[Route, ...]:
        return tuple(route for added, route in self._routes.items() if added.method == route.method)

    @web.middleware
    async def _serve(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        PATIENCE_S.set(None)  # the request before it on this connection may have set it
        claim = request[BODY_CLAIM] = BodyClaim(self.body_budget, cast("HttpConnection", request.protocol))
        try:
            return await self._serve_route(request, handler, self._routes.get(request.match_info.route))
        finally:
            claim.release()

    async def _serve_route(self, request: web.Request, handler: Handler, route: Route | None) -> web.StreamResponse:
        given = request.headers.get("X-Request-Id")
        values = request_values(request)
        values[REQUEST_ID] = given if given and _REQUEST_ID.fullmatch(given) else f"req_{random_hex(24)}"
        task = _current_task(self._loop)
        self._in_flight.add(task)
        self._counted[0] += 1
        started = self._loop.time()
        response: web.StreamResponse | None = None
        try:
            try:
                identity = self._admit(request, route)
                method = request.method
                if hdrs.UPGRADE in request.headers and is_upgrade(request) and (route is None or not route.socket):
                    _refuse_upgrade(request)
                if method == "POST" and identity is not None:
                    CHARGED_TO.set(identity.name)
                    if identity.name in self._limits.names and route is not None and is_counted(route):
                        await admit(self._limits, identity.name, request)
                answer = self._preflight(request) if method == "OPTIONS" else await handler(request)
                response = await answer if isinstance(answer, CoroutineType) else cast("web.StreamResponse", answer)
            except Exception as exc:
                if isinstance(exc, ConnectionError) and _client_gone(request):
                    raise  # the client is gone
                response = await self._answer_failure(request, exc)
        except asyncio.CancelledError:
            if not (self._stopping or task in self._cut) or _client_gone(request):
                raise
            task.uncancel()  # the server cancelled it, and the client is still connected
            response = await self._answer_failure(request, stopping())
        finally:
            if (stream := values.pop(STREAM, None)) is not None:
                stream.close()
                del self._streams[stream]
                self._viewers[0] -= 1
            if task in self._viewed:
                del self._viewed[task]
            if self._cut:
                self._cut.discard(task)
            self._in_flight.discard(task)
            self._counted[0] -= 1
            if self._idle is not None and not self._in_flight:
                self._idle.set()
            self._record_request(request, route, response, self._loop.time() - started)
        return response

    def _record_request(
        self, request: web.Request, route: Route | None, response: web.StreamResponse | None, duration_s: float
    ) -> None:
        """Metrics and the access log: the route, never its content. A disconnect is a 499, as with nginx. What is no
        news is logged for those who look for it."""
        path = route.path if route is not None else "-"
        status = response.status if response is not None else 499
        self.metrics.requests.inc(path, str(status))
        if path != "/healthz":
            values = request_values(request)
            identity: Identity | None = values.get(IDENTITY)
            key = identity.name if identity is not None else "-"
            is_news = route is None or route.method != "GET" or not _is_no_news(route, response)
            level = logging.INFO if is_news else logging.DEBUG
            self.access_log.add(values[REQUEST_ID], request.method, path, status, duration_s, key, level=level)

    def _admit(self, request: web.Request, route: Route | None) -> Identity | None:
        """The caller; None for a preflight. Raises `ApiError` for a request that may not pass."""
        access: Access = route.access if route is not None else "any"
        headers = request.headers
        origins = headers.getall(hdrs.ORIGIN) if hdrs.ORIGIN in headers else ()
        self._origins.check(headers.getall(hdrs.HOST, ()), origins)
        if request.method == "OPTIONS" and hdrs.ACCESS_CONTROL_REQUEST_METHOD in request.headers:
            return None  # a preflight carries no key (Fetch, 4.8); it opens nothing
        known: Access = "open" if access == "open" else "any"
        identity = request_values(request)[IDENTITY] = self._authoriser.authorise(headers, known)
        if access == "open":
            return identity
        if identity is not LOCAL:
            identity.require(access)  # once the log knows whose key it is
        PATIENCE_S.set(REQUEST_PATIENCE_S)  # not for a webhook: what it brings is worked on after its answer
        if self._stopping or (self._draining.is_set() and not (route is not None and route.while_draining)):
            raise stopping()
        if self.metrics.in_flight.value > self._max_requests:  # of all workers together
            raise ApiError(503, "too many requests at once", code="overloaded", headers={"Retry-After": "1"})
        return identity

    async def _charge(self, identity: Identity, request: web.Request, *, counted: bool = True) -> None:
        """Raises `ApiError` 429 for a request over a limit of its key."""
        CHARGED_TO.set(identity.name)
        if identity.name in self._limits.names and counted:
            await admit(self._limits, identity.name, request)

    def _preflight(self, request: web.Request) -> web.Response:
        if hdrs.ACCESS_CONTROL_REQUEST_METHOD not in request.headers:
            raise web.HTTPMethodNotAllowed("OPTIONS", [])
        requested = request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_HEADERS, "")
        return web.Response(status=204, headers={**_PREFLIGHT, "Access-Control-Allow-Headers": requested})

    def _as_error(self, request: web.Request, exc: Exception) -> ApiError:
        self.storage_failed = self.storage_failed or isinstance(exc, StorageFailed)
        error = no_route(request.path) if isinstance(exc, web.HTTPNotFound) else as_api_error(exc)
        if error.status == 500:
            extra = {"request_id": request[REQUEST_ID]}
            log.error("%s %s failed", request.method, request.path, exc_info=exc, extra=extra)
        return error

    async def _answer_failure(self, request: web.Request, exc: Exception) -> web.StreamResponse:
        error, request_id = self._as_error(request, exc), request[REQUEST_ID]
        if (socket := request_values(request).get(SOCKET)) is not None:
            return cast("web.StreamResponse", socket)
        stream: EventStream | None = request.get(STREAM)
        if stream is not None and (stream.begun or is_said_in_stream(error, request)):
            return await stream.fail(error)
        await uncount_refused(self._limits, request, error)
        response = error_response(self._without_secrets(error), request.path, request_id)
        if not request.content.is_eof():
            response.force_close()  # the rest of the body is not wanted (O176)
        return response

    def _without_secrets(self, error: ApiError) -> ApiError:
        """Messages quote what clients and providers sent; a key of ours may be in it (J114)."""
        message = self.app.redactor.redact(str(error))
        return error if message == str(error) else error.in_words(message)

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def in_flight(self) -> int:
        """Requests being answered, streams included."""
        return len(self._in_flight)

    async def drain(self, timeout_s: float) -> bool:
        """Refuses new requests and waits for those in flight. False where the time was not enough."""
        self.begin_drain()
        try:
            async with asyncio.timeout(timeout_s):
                if self._in_flight:
                    if self._idle is None or self._idle.is_set():
                        self._idle = asyncio.Event()
                    await run_beside(self._idle.wait(), self._cut_viewers_of_left_runs())
                if self._background:
                    await asyncio.wait(self._background)
        except TimeoutError:
            return False
        return True

    async def _cut_viewers_of_left_runs(self) -> None:
        """Where no process goes on after this one, a run that waits for a person or whose provider fails waits for the
        next: so do its viewers. Another worker may have had it, so the journal is asked. A run that a worker still
        executes is shown on."""
        while self.app.agents.hands_over_questions and not self._stopping:
            try:
                left = {run.id for run in await self.app.journal.orphans()} if self._viewed else set()
            except JournalError as exc:
                log.log(warning_level(exc), "streams of runs that were given back end a little later: %s", exc)
                left = set()
            for task, run_id in self._viewed.items():
                if run_id in left and task not in self._cut:
                    self._cut.add(task)
                    task.cancel()
            await asyncio.sleep(LOOK_S)

    async def stop(self, timeout_s: float = 2.0) -> None:
        """Cancels the requests in flight; each client gets a 503 or an error event."""
        self._stopping = True
        self.begin_drain()
        for task in self._in_flight:
            task.cancel()
        await self.drain(timeout_s)


def _has_head(route: Route) -> bool:
    """HEAD is answered as GET, without the body (RFC 9110, 9.3.2). Not for a stream: its head would say nothing of it,
    and a client that asks for one cannot want it to go on."""
    return route.method == "GET" and not route.streams


def _is_no_news(route: Route, response: web.StreamResponse | None) -> bool:
    """Of a GET. A viewer that leaves is how most of its streams end, and no work is lost by it; the page is fifty
    files. Probes, scrapes and `tailrace top` come every few seconds."""
    if response is None:
        return route.streams
    return (route.path in _PROBED or route.path.startswith("/web/")) and response.status < 400


async def _on_expect(request: web.Request) -> web.Response | None:
    """Of a request that is admitted, `read_body` sends the interim response that the client waits for."""
    if request.version < HttpVersion11 or request.headers.get(hdrs.EXPECT, "").lower() == "100-continue":
        return None
    error = ApiError(417, "the only expectation is 100-continue", headers={"Connection": "close"})
    return error_response(error, request.path)


def is_upgrade(request: web.Request) -> bool:
    """Whether the client asks for a web socket (RFC 6455, 4.2.1)."""
    return request.headers.get(hdrs.UPGRADE, "").lower() == "websocket"


def _refuse_upgrade(request: web.Request) -> None:
    """A client that hears 426 goes on over HTTP (N162). Raises `ApiError`, except where the path is unknown."""
    if not isinstance(request.match_info.http_exception, web.HTTPNotFound):
        raise upgrade_required("this route has no web socket; use HTTP", "HTTP/1.1")


def upgrade_required(message: str, protocol: str) -> ApiError:
    headers = {"Upgrade": protocol, "Connection": "close"}
    return ApiError(426, message, code="upgrade_required", headers=headers)


def _client_gone(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


def stopping() -> ApiError:
    """What ends a request or a stream when the server stops."""
    headers = {"Retry-After": "5", "Connection": "close"}
    return ApiError(503, "the server is stopping; retry in a few seconds", code="server_stopping", headers=headers)


def _current_task(loop: asyncio.AbstractEventLoop) -> asyncio.Task[Any]:
    task = asyncio.current_task(loop)
    if task is None:
        raise RuntimeError("no task handles this request")
    return task


def _log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("work of a request whose client disconnected has failed", exc_info=error)
