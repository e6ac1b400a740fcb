"""`/approvals`: everything that waits for a person's decision, over all sessions and platforms.

Every key with `runs` or `approvals` sees all of it; `may_answer` says which of it this key may decide by
`POST /runs/{id}/approval` (J110, N168).
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

from tailrace.app.approvals import LOOK_AGAIN_S, WaitingApproval
from tailrace.app.flow_handlers import step_of
from tailrace.app.timeline.run_summary import title_of
from tailrace.flows.definition.public_ids import public_form
from tailrace.journal.fold import SEQUENCE
from tailrace.server.http.auth import Identity
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import IDENTITY
from tailrace.server.http.route import Route, json_response
from tailrace.server.routes.sessions_schemas import place_of
from tailrace.wire.sse import encode_event

ROUND_S: Final = 0.1  # at least so long between two listings for the streams


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
    instance_id: str = ""  # of the sequence whose step `block_id` the run is
    block_id: str = ""


class WaitingList(msgspec.Struct, frozen=True):
    """The oldest question first. `you` is the name of this key, `answers_all` whether it may answer the questions of
    others too, `now` the server's clock."""

    data: tuple[WaitingBody, ...]
    you: str
    answers_all: bool
    now: float


class Listing:
    """What waited at one moment, encoded once for each key that is shown it (O181)."""

    def __init__(self, version: bytes | None, waiting: Sequence[WaitingApproval]) -> None:
        self.version = version
        self.waiting = waiting
        self._now = round(time.time(), 3)
        self._events: dict[Identity, tuple[tuple[WaitingBody, ...], bytes]] = {}

    def body(self, identity: Identity) -> WaitingList:
        return WaitingList(
            tuple(map(partial(_body, identity), self.waiting)), identity.name, identity.answers_all, self._now
        )

    def event(self, identity: Identity) -> tuple[tuple[WaitingBody, ...], bytes]:
        """The questions, and the list as a server-sent event."""
        if (known := self._events.get(identity)) is None:
            body = self.body(identity)
            event = encode_event(msgspec.json.encode(body).decode(), event="approvals")
            known = self._events[identity] = (body.data, event)
        return known


class Approvals:
    """The handlers. All streams share one wait for the next change and one listing after it (O181)."""

    def __init__(self, pipeline: RequestPipeline) -> None:
        self._pipeline = pipeline
        self._waiting = pipeline.app.waiting
        self._streams = 0
        self._last: Listing | None = None  # that the streams have
        self._next: asyncio.Task[Listing] | None = None

    async def show_all(self, request: web.Request) -> web.Response:
        """What waits for a decision, over all sessions and platforms, the oldest first."""
        return json_response(Listing(None, await self._waiting.listed()).body(request[IDENTITY]))

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """The same list as server-sent events: an `approvals` event with all of it now, and whenever it changes.

        Has no end of its own, and no cursor: a client that comes back is told what waits then."""
        identity, stream = request[IDENTITY], self._pipeline.stream(request)
        stream.begin()
        self._streams += 1
        try:
            listing = await self._listing_after(None)
            shown: tuple[WaitingBody, ...] | None = None
            while True:
                data, event = listing.event(identity)
                if data != shown:
                    shown = data
                    await stream.send_pieces(event)
                    await stream.caught_up()
                listing = await self._listing_after(listing)
        finally:
            self._streams -= 1
            if not self._streams:
                self._last = None
                if self._next is not None:
                    self._next.cancel()
                    self._next = None

    async def _listing_after(self, shown: Listing | None) -> Listing:
        """The one that the other streams have, or the next."""
        if self._last is not None and self._last is not shown:
            return self._last
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._list_again(self._last))
        return await asyncio.shield(self._next)

    async def _list_again(self, last: Listing | None) -> Listing:
        """The list after its next change. Raises `ApiError` 503 when the server stops."""
        try:
            if last is not None:
                await asyncio.sleep(ROUND_S)
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_AGAIN_S if last.waiting else None):
                        await self._pipeline.unless_draining(self._waiting.next_version(last.version))
            version = await self._waiting.version()
            self._last = Listing(version, await self._waiting.listed())
            return self._last
        finally:
            if self._next is asyncio.current_task():  # a cancelled one ends after the next has begun
                self._next = None


def _body(identity: Identity, waiting: WaitingApproval) -> WaitingBody:
    run, asked = waiting
    instance, block_id = step_of(run)
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
        may_answer=identity.may_answer(asked.requester),
        instance_id=public_form(instance, SEQUENCE),
        block_id=block_id,
    )


def routes(pipeline: RequestPipeline) -> Sequence[Route]:
    api, route = Approvals(pipeline), partial(Route, access="approvals")
    return (
        route("GET", "/approvals", api.show_all, answer=WaitingList),
        route("GET", "/approvals/stream", api.stream, streams=True),
    )
