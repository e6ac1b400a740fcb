"""`/streams/runs/{id}`: a run as a Durable Stream, to read. What its clients and HTTP caches know of a run.

Owns offsets, cursors and which answers a cache may keep. An offset is the seq of the entry before it. Viewers that walk
through a log ask for the same ranges, so a cache asks for each once. Knows no event: entries are sent as they are
stored. The protocol: github.com/durable-streams/durable-streams, PROTOCOL.md.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec
from aiohttp import web
from msgspec import Meta

from tailrace.flows.definition.public_ids import run_id_of
from tailrace.journal.viewed_lines import line_without_reasoning
from tailrace.ports import Frame, LogPage, LogViewer, StoredLine
from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import query_of
from tailrace.server.http.route import OBJECTS, Route
from tailrace.server.routes.streams.log_stream import LogEnd, log_end

RANGE_BYTES: Final = 1 << 20  # of one answer, and then the page is completed: most runs are one range
LONG_POLL_S: Final = 20.0
EVENTS_S: Final = 60.0  # of one connection: the next viewers of a run come together at a cache (section 10.2)
_CURSOR_EPOCH_S: Final = 1_728_432_000  # 2024-10-09, section 10.1
_CURSOR_S: Final = 20
_JITTER: Final = 180  # intervals: an hour
_CORP: Final = {"Cross-Origin-Resource-Policy": "same-origin"}


class DurableStreamQuery(msgspec.Struct, frozen=True):
    """`offset`: the answer begins here; `-1` is the beginning, `now` the end. `live`: waits at the end of the log.
    `cursor`: the last `Stream-Cursor`."""

    offset: Annotated[str, Meta(pattern=r"^(-1|now|[0-9]{16})\Z")] | None = None
    live: Literal["long-poll", "sse"] | None = None
    cursor: Annotated[str, Meta(pattern=r"^[0-9]{0,16}\Z")] = ""
    reasoning: bool = False


class DurableStreams:
    """The handlers."""

    def __init__(self, pipeline: RequestPipeline) -> None:
        self._pipeline = pipeline
        self._journal = pipeline.app.journal

    async def head(self, request: web.Request) -> web.Response:
        """Where the log of a run ends now, and whether it goes on."""
        log = await self._log(request)
        headers = {**_place(log, log.last_seq), "Cache-Control": "no-store"}
        return web.Response(headers=headers, content_type="application/json")

    async def read(self, request: web.Request) -> web.StreamResponse:
        """The log of a run as a Durable Stream: a JSON array of its entries from an offset on; with `live`
        it waits for the next ones.

        `offset=now` is answered with the entries that follow, so no cache may keep that."""
        query = query_of(request, DurableStreamQuery, ignore_others=True)
        if query.live is not None and query.offset is None:
            raise ApiError(400, "a live read needs an offset; the beginning is -1", param="offset")
        log = await self._log(request)
        after = log.last_seq if query.offset == "now" else max(0, int(query.offset or 0))
        if after > log.last_seq:
            raise ApiError(409, f"the log ends at {log.last_seq} and the offset says {after}", code="cursor_ahead")
        if query.live == "sse":
            return await self._send_events(request, query, log, after)
        items, end = await self._next_items(query, log, after)
        if end > log.last_seq:
            log = await self._log(request)
        headers = _place(log, end)
        if query.live is not None and "Stream-Closed" not in headers:
            headers["Stream-Cursor"] = next_cursor(query.cursor)
        if query.live is not None and not items:
            return web.Response(status=204, headers={**headers, "Cache-Control": "no-store"})
        headers |= self._caching(query, headers, f"{log.run_id}:{after}:{end}", is_range=end > after)
        if request.headers.get("If-None-Match", "\n") == headers.get("ETag"):
            return web.Response(status=304, headers=headers)
        return web.Response(body=b"[%b]" % items, headers=headers, content_type="application/json")

    async def _log(self, request: web.Request) -> LogEnd:
        return log_end(await self._journal.get(run_id_of(request.match_info["id"])))

    def _caching(self, query: DurableStreamQuery, place: dict[str, str], tag: str, *, is_range: bool) -> dict[str, str]:
        """What follows an offset stays what it is, and what comes later has a later offset: a cache may keep any range,
        and the end of a run. A cache that people share may keep it where any client may read it."""
        if query.offset == "now":
            return {"Cache-Control": "no-store"}
        closed = "Stream-Closed" in place
        scope = "private" if self._pipeline.needs_key else "public"
        kept = f"{scope}, max-age=60, stale-while-revalidate=300" if is_range or closed else "no-store"
        return {"ETag": f'"{tag}:c"' if closed else f'"{tag}"', "Cache-Control": kept}

    async def _next_items(self, query: DurableStreamQuery, log: LogEnd, after: int) -> tuple[bytes, int]:
        """Whole pages, and where they end. At the end of the log a long poll waits for one that shows something."""
        pages, size, end, until = list[bytes](), 0, after, None
        if query.live is not None:
            until = asyncio.get_running_loop().time() + LONG_POLL_S
            self._pipeline.shows(log.run_id)
        viewer, frame = self._journal.tail_pages(log.run_id, after=after), _frame(query)
        while size < RANGE_BYTES and (end < log.last_seq or (not size and until is not None and not log.ended)):
            if (page := await next_page(viewer, until)) is None:
                break
            pages.append(page.framed(frame))
            size, end = size + len(pages[-1]), page[-1].seq
        return b"".join(pages)[:-1], end

    async def _send_events(
        self, request: web.Request, query: DurableStreamQuery, log: LogEnd, after: int
    ) -> web.StreamResponse:
        """Pages as `data` events, each with a `control` event that names the offset after it."""
        headers = {"Content-Type": "text/event-stream", **_CORP}
        stream = self._pipeline.stream(request, headers=headers, run_id=log.run_id)
        stream.begin()
        viewer, frame = self._journal.tail_pages(log.run_id, after=after), _frame(query)
        until, end = asyncio.get_running_loop().time() + EVENTS_S, after

        def events(page: LogPage, *, up_to_date: bool) -> bytes:
            items = page.framed(frame)[:-1]
            data = b"event: data\ndata:[%b]\n\n" % items if items else b""
            return data + control_event(page[-1].seq, next_cursor(query.cursor), up_to_date=up_to_date)

        def take(page: LogPage) -> bool:
            nonlocal end
            data = events(page, up_to_date=True) if page.framed(frame) else b""
            if taken := stream.takes(len(data)):
                stream.send(data)
                end = page[-1].seq
            return taken

        if end == log.last_seq and not log.ended:
            stream.send(control_event(end, next_cursor(query.cursor), up_to_date=True))
        while (page := await next_page(viewer, until)) is not None:
            end = page[-1].seq
            await stream.send_pieces(events(page, up_to_date=end >= log.last_seq))
            del page
            await stream.caught_up()
            try:
                async with asyncio.timeout_at(until):
                    await viewer.follow(take)
            except TimeoutError:
                break
        log = await self._log(request)  # the journal is closed, or the time is up, where the run has not ended
        closed = log.ended and end >= log.last_seq
        return await stream.end(control_event(end, "", up_to_date=True, closed=True) if closed else b"")


def _place(log: LogEnd, end: int) -> dict[str, str]:
    headers = {"Stream-Next-Offset": offset_of(end), **_CORP}
    if end >= log.last_seq:
        headers["Stream-Up-To-Date"] = "true"
        if log.ended:
            headers["Stream-Closed"] = "true"
    return headers


async def next_page(viewer: LogViewer[LogPage], until: float | None) -> LogPage | None:
    """None at the end of the log, and when the time is up. A wait that is cancelled does not move the viewer."""
    try:
        async with asyncio.timeout_at(until):
            return await anext(viewer, None)
    except TimeoutError:
        return None


def offset_of(seq: int) -> str:
    """As long as any other, so that offsets sort as texts."""
    return f"{seq:016d}"


def next_cursor(given: str) -> str:
    """The number of this interval; a greater one than the client's, where a cache has answered it with this one."""
    now = int(time.time() - _CURSOR_EPOCH_S) // _CURSOR_S
    if not given or int(given) < now:
        return str(now)
    return str(int(given) + random.randint(1, _JITTER))  # noqa: S311 - so that caches do not meet it again


def control_event(seq: int, cursor: str, *, up_to_date: bool, closed: bool = False) -> bytes:
    fields: dict[str, str | bool] = {"streamNextOffset": offset_of(seq)}
    if cursor:
        fields["streamCursor"] = cursor
    if up_to_date:
        fields["upToDate"] = True
    if closed:
        fields["streamClosed"] = True
    return b"event: control\ndata:%b\n\n" % msgspec.json.encode(fields)


def _frame(query: DurableStreamQuery) -> Frame:
    return item_with_reasoning if query.reasoning else item_without_reasoning


def item_with_reasoning(line: StoredLine) -> bytes:
    """The entry as an item of an array, with the comma after it."""
    return b'{"seq":%d,"attempt":%d,%b,' % (line.seq, line.attempt, line.json[1:])


def item_without_reasoning(line: StoredLine) -> bytes:
    """The same for a viewer that did not ask what the model thought: empty for such an entry."""
    shown = line_without_reasoning(line)
    return b"" if shown is None else item_with_reasoning(shown)


def routes(pipeline: RequestPipeline) -> Sequence[Route]:
    api, path = DurableStreams(pipeline), "/streams/runs/{id}"
    headers = {"If-None-Match": "The `ETag` of the answer that the client has."}
    return (
        Route(
            "GET",
            path,
            api.read,
            "runs",
            query=DurableStreamQuery,
            headers=headers,
            answer=OBJECTS,
            streams=True,
            errors=(204, 304, 404, 409),
        ),
        Route("HEAD", path, api.head, "runs", errors=(404,)),
    )
