"""`/approvals`: everything that waits for a person's decision, over all sessions and platforms.

Every key with `runs` sees all of it; `may_answer` says which of it this key may decide by `POST /runs/{id}/approval`
(J110).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec
from aiohttp import web

from tailrace.app.approvals import WaitingApproval
from tailrace.app.timeline.run_summary import title_of
from tailrace.server.http.auth import Identity
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import IDENTITY
from tailrace.server.http.route import Route, json_response
from tailrace.server.routes.sessions_schemas import place_of
from tailrace.wire.sse import encode_event

LOOK_AGAIN_S: Final = 30.0  # while something waits: the process that would tell of its end may have died


class WaitingBody(msgspec.Struct, frozen=True, kw_only=True):
    """One question. `title`: what the run was asked. `place`: where, as of a session. `may_answer`: with this key."""

    approval_id: str
    run_id: str
    session: str
    title: str
    place: str
    tool_name: str
    command: str
    directory: str
    reason: str
    requester: str
    requester_name: str = ""  # what people call the requester, where that is another name
    asked_at: float
    expires_at: float
    may_answer: bool


class WaitingList(msgspec.Struct, frozen=True):
    """The oldest question first. `you` is the name of this key, `now` the server's clock."""

    data: tuple[WaitingBody, ...]
    you: str
    now: float


class Approvals:
    """The handlers."""

    def __init__(self, pipeline: RequestPipeline) -> None:
        self._pipeline = pipeline
        self._waiting = pipeline.app.waiting

    async def show_all(self, request: web.Request) -> web.Response:
        """What waits for a decision, over all sessions and platforms, the oldest first."""
        return json_response(await self._list(request[IDENTITY]))

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """The same list as server-sent events: an `approvals` event with all of it now, and whenever it changes.

        Has no end of its own, and no cursor: a client that comes back is told what waits then."""
        identity = request[IDENTITY]
        stream = self._pipeline.stream(request)
        stream.begin()
        shown: tuple[WaitingBody, ...] | None = None
        while True:
            version = await self._waiting.version()
            body = await self._list(identity)
            if body.data != shown:
                shown = body.data
                await stream.send_pieces(encode_event(msgspec.json.encode(body).decode(), event="approvals"))
                await stream.caught_up()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_AGAIN_S if shown else None):
                    await self._pipeline.unless_draining(self._waiting.next_version(version))

    async def _list(self, identity: Identity) -> WaitingList:
        waiting = await self._waiting.listed()
        return WaitingList(tuple(map(partial(_body, identity), waiting)), identity.name, round(time.time(), 3))


def _body(identity: Identity, waiting: WaitingApproval) -> WaitingBody:
    run, asked = waiting
    return WaitingBody(
        approval_id=asked.approval_id,
        run_id=run.id,
        session=run.new.session,
        title=title_of(run),
        place=place_of(run.new.session, asked.requester),
        tool_name=asked.tool_name,
        command=asked.command,
        directory=asked.directory,
        reason=asked.reason,
        requester=asked.requester,
        requester_name=asked.requester_name,
        asked_at=asked.asked_at,
        expires_at=asked.expires_at,
        may_answer=asked.requester == identity.name,
    )


def routes(pipeline: RequestPipeline) -> Sequence[Route]:
    api, route = Approvals(pipeline), partial(Route, access="runs")
    return (
        route("GET", "/approvals", api.show_all, answer=WaitingList),
        route("GET", "/approvals/stream", api.stream, streams=True),
    )
