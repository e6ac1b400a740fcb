"""A run's log as server-sent events from a cursor on: the part that `/runs` and `/instances` have in common.

Owns the cursor's rules: where a client resumes, and which cursors are refused. Knows no event: pages come encoded, and
none is held while the client's socket takes no more (L141).
"""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec
from aiohttp import web
from msgspec import Meta

from tailrace.ports import ENDED, Frame, Run
from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.route import Handler, Route

_CURSOR: Final = re.compile(r"[0-9]{1,18}")


class CursorQuery(msgspec.Struct, frozen=True):
    """`after`: the stream begins with the event that follows this one."""

    after: Annotated[int, Meta(ge=0)] = 0


def log_route(path: str, handler: Handler, query: type[CursorQuery]) -> Route:
    """The route of a handler that answers with `stream_log`."""
    headers = {"Last-Event-ID": "The last event that the client has; wins over the query."}
    errors = (204, 404, 409)
    return Route("GET", path, handler, "runs", query=query, headers=headers, streams=True, errors=errors)


class LogEnd(msgspec.Struct, frozen=True):
    """How far the log of a run goes now. A stream keeps this and not the run, whose input and output may be long."""

    run_id: str
    last_seq: int
    ended: bool


def log_end(run: Run) -> LogEnd:
    return LogEnd(run.id, run.last_seq, run.state in ENDED)


async def stream_log(
    pipeline: RequestPipeline, request: web.Request, log: LogEnd, frame: Frame, *, after: int, snapshot: bool = False
) -> web.StreamResponse:
    """Sends what `frame` makes of each entry, to the last. `Last-Event-ID` wins over `after` and `snapshot`. Returns
    204 to a client that has everything of an ended run. Raises `ApiError` 409 for a cursor ahead of the log (H98)."""
    if last_event_id := request.headers.get("Last-Event-ID", "").strip():
        if not _CURSOR.fullmatch(last_event_id):
            raise ApiError(400, "Last-Event-ID is not the number of an entry", param="Last-Event-ID")
        after, snapshot = int(last_event_id), False
    if after > log.last_seq and not snapshot:
        raise ApiError(409, f"the log has {log.last_seq} entries and the cursor says {after}", code="cursor_ahead")
    if last_event_id and after == log.last_seq and log.ended:
        return web.Response(status=204)  # tells an EventSource to stop reconnecting (HTML, 9.2.3)
    stream = pipeline.stream(request, run_id=log.run_id)
    stream.begin()
    viewer = pipeline.app.journal.tail_pages(log.run_id, after=after, snapshot=snapshot)
    async for page in viewer:
        await stream.send_pieces(page.framed(frame))
        del page
        await stream.caught_up()
        await viewer.follow(stream.page_sender(frame))
    return await stream.end()
