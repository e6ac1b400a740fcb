"""What every request passes: identity, limits, errors in the right words, and an orderly end.

Owns the life of a request from the router to the last byte, and of the server from its first request to a drained
stop. Knows no route: those are values that it is given. One middleware, so that nothing can slip in between its parts.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aiohttp import hdrs, web

from tailrace.server.http.api_errors import ApiError, as_api_error, error_frame, error_response, shape_of
from tailrace.server.http.auth import Access, Authoriser, Identity, Origins
from tailrace.server.http.request_body import IDENTITY, REQUEST_ID, request_id_of
from tailrace.server.http.route import Route
from tailrace.server.http.sse_stream import EventStream, StreamTiming
from tailrace.server.metrics.registry import Metrics

if TYPE_CHECKING:
    from tailrace.app import App

T = TypeVar("T")
log = logging.getLogger("tailrace.server")
access_log = logging.getLogger("tailrace.access")
STREAM: Final = web.RequestKey("stream", EventStream)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_PREFLIGHT: Final = {
    "Access-Control-Allow-Methods": "GET, POST, DELETE",
    "Access-Control-Max-Age": "600",
    "Vary": "Origin, Access-Control-Request-Headers",
}


class RequestPipeline:
    """The one thing that routes are given: the application, streams, and what must outlive a client."""

    def __init__(
        self,
        app: App,
        *,
        authoriser: Authoriser,
        origins: Origins,
        metrics: Metrics | None = None,
        timing: StreamTiming | None = None,
        max_requests: int = 4096,
    ) -> None:
        self.app = app
        self.metrics = metrics if metrics is not None else Metrics()
        self.draining = False
        self._authoriser = authoriser
        self._origins = origins
        self._timing = timing if timing is not None else StreamTiming()
        self._max_requests = max_requests
        self._under_way: set[asyncio.Task[Any]] = set()
        self._stopping = False
        self._streams: set[EventStream] = set()
        self._owed: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.get_running_loop()
        self._idle = asyncio.Event()
        self._idle.set()
        self._routes: dict[web.AbstractRoute, Route] = {}
        self.router: web.UrlDispatcher  # once `application` has made it

    # ── for routes ───────────────────────────────────────────────────────────────────────────────────────────

    def stream(self, request: web.Request, *, frame: Callable[[ApiError], bytes] | None = None) -> EventStream:
        """The stream that answers this request; one per request. `frame` makes the event that ends a stream that
        failed; without it, the error event of the route's dialect."""
        shape, request_id = shape_of(request.path), request_id_of(request)
        make = frame or (lambda error: error_frame(error, shape, request_id))
        stream = EventStream(
            request,
            error_frame=lambda error: make(self._without_secrets(error)),
            timing=self._timing,
            on_close=self._closed,
        )
        self._streams.add(stream)
        self.metrics.viewers.inc()
        request[STREAM] = stream
        return stream

    def _closed(self, stream: EventStream) -> None:
        self._streams.discard(stream)
        self.metrics.viewers.dec()

    async def run_to_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Does it to its end, also when the client leaves in the middle: for what must not be left half done."""
        task = asyncio.get_running_loop().create_task(work)
        self.track(task)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_report)  # nobody else will hear of it
            raise

    def track(self, task: asyncio.Task[Any]) -> None:
        """A stop waits for this task too, as long as it waits for requests. Whoever made it ends it."""
        self._owed.add(task)
        task.add_done_callback(self._owed.discard)

    # ── the middleware ───────────────────────────────────────────────────────────────────────────────────────

    def application(self, routes: Iterable[Route], *, max_body_bytes: int) -> web.Application:
        """The aiohttp application of these routes inside this frame."""

        @web.middleware
        async def middleware(
            request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            return await self._serve(request, handler)

        application = web.Application(middlewares=[middleware], client_max_size=max_body_bytes)
        application.on_response_prepare.append(self._finish_head)
        self.router = application.router
        for route in routes:
            self._routes[application.router.add_route(route.method, route.path, route.handler)] = route
        return application

    @property
    def routes(self) -> tuple[Route, ...]:
        return tuple(self._routes.values())

    async def _serve(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        given = request.headers.get("X-Request-Id", "")
        request[REQUEST_ID] = given if _REQUEST_ID.fullmatch(given) else f"req_{secrets.token_hex(12)}"
        task = _current_task()
        self._under_way.add(task)
        self._idle.clear()
        started = self._loop.time()
        response: web.StreamResponse | None = None
        try:
            response = await self._answer(request, handler)
        except asyncio.CancelledError:
            if not self._stopping or _gone(request):
                raise
            task.uncancel()  # it was us, and the client is still there
            response = await self._answer_failure(request, _stopping())
        finally:
            if (stream := request.get(STREAM)) is not None:
                stream.close()
            self._under_way.discard(task)
            if not self._under_way:
                self._idle.set()
            self._account(request, response, self._loop.time() - started)
        return response

    async def _answer(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            self._admit(request)
            if request.method == "OPTIONS":
                return self._preflight(request)
            return await handler(request)
        except Exception as exc:
            if isinstance(exc, ConnectionError) and _gone(request):
                raise  # there is nobody to tell
            return await self._answer_failure(request, exc)

    def _account(self, request: web.Request, response: web.StreamResponse | None, duration_s: float) -> None:
        """For the metrics and the log: the route, never what was in it. A client that left is a 499, as with nginx."""
        route = self._routes.get(request.match_info.route)
        path = route.path if route is not None else "-"
        status = response.status if response is not None else 499
        self.metrics.requests.inc(path, str(status))
        if access_log.isEnabledFor(logging.INFO) and path != "/healthz":
            who: Identity | None = request.get(IDENTITY)
            extra = {
                "request_id": request_id_of(request),
                "method": request.method,
                "route": path,
                "status": status,
                "duration_ms": round(duration_s * 1000, 1),
                "key": who.name if who is not None else "-",
            }
            access_log.info("request", extra=extra)

    def _admit(self, request: web.Request) -> None:
        """Raises `ApiError` for whoever may not pass."""
        route = self._routes.get(request.match_info.route)
        access: Access = route.access if route is not None else "any"
        self._origins.check(request.headers.get(hdrs.HOST, ""), request.headers.get(hdrs.ORIGIN))
        if request.method == "OPTIONS" and hdrs.ACCESS_CONTROL_REQUEST_METHOD in request.headers:
            return  # a preflight carries no key (Fetch, 4.8); it opens nothing
        request[IDENTITY] = self._authoriser.authorise(request.headers, access)
        if access == "open":
            return
        if self.draining:
            raise _stopping()
        if len(self._under_way) > self._max_requests:
            raise ApiError(503, "too many requests at once", code="overloaded", headers={"Retry-After": "1"})

    def _preflight(self, request: web.Request) -> web.Response:
        if hdrs.ACCESS_CONTROL_REQUEST_METHOD not in request.headers:
            raise web.HTTPMethodNotAllowed("OPTIONS", [])
        asked = request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_HEADERS, "")
        headers = {**_PREFLIGHT, "Access-Control-Allow-Headers": asked}
        return web.Response(status=204, headers=headers)

    async def _finish_head(self, request: web.Request, response: web.StreamResponse) -> None:
        """Waits for nothing: streams send their heads between two events."""
        headers = response.headers
        if (request_id := request.get(REQUEST_ID)) is not None:
            headers["X-Request-Id"] = request_id
        headers["X-Content-Type-Options"] = "nosniff"
        headers[hdrs.SERVER] = "tailrace"
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is not None and self._origins.allows(origin):
            headers["Access-Control-Allow-Origin"] = origin
            headers["Access-Control-Expose-Headers"] = "X-Request-Id, Retry-After"
            headers.setdefault("Vary", "Origin")

    async def _answer_failure(self, request: web.Request, exc: Exception) -> web.StreamResponse:
        error = as_api_error(exc)
        request_id = request_id_of(request)
        if error.status == 500:
            log.error("%s %s failed", request.method, request.path, exc_info=exc, extra={"request_id": request_id})
        stream: EventStream | None = request.get(STREAM)
        if stream is not None and stream.begun:
            return await stream.fail(error)
        return error_response(self._without_secrets(error), shape_of(request.path), request_id)

    def _without_secrets(self, error: ApiError) -> ApiError:
        """Messages quote what clients and providers sent; a key of ours may be in it (J114)."""
        message = self.app.redactor.redact(str(error))
        if message == str(error):
            return error
        return ApiError(error.status, message, code=error.code, param=error.param, headers=error.headers)

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def under_way(self) -> int:
        """Requests being answered, streams included."""
        return len(self._under_way)

    async def drain(self, timeout_s: float) -> bool:
        """No new work from here on; what is under way has so long to end. Whether all of it did."""
        self.draining = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
                if self._owed:
                    await asyncio.wait(self._owed)
        except TimeoutError:
            return False
        return True

    async def stop(self, timeout_s: float = 2.0) -> None:
        """Ends what is still under way: each client is told that the server stops."""
        self.draining = self._stopping = True
        for task in self._under_way:
            task.cancel()
        await self.drain(timeout_s)


def _gone(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


def _stopping() -> ApiError:
    headers = {"Retry-After": "5", "Connection": "close"}
    return ApiError(503, "the server is stopping; ask again in a moment", code="server_stopping", headers=headers)


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a request is handled in a task")
    return task


def _report(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("what a client asked for before it left has failed", exc_info=error)
