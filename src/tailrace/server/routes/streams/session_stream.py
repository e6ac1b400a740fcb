"""A session as server-sent events: the logs of its runs, one after the other, and the next run when it begins.

Owns the cursor `<run>:<seq>`. A session takes one turn at a time, so this stream ends one run before it begins the
next; a parked run waits for a person, and the stream goes on with the next.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from typing import Final, NamedTuple

import msgspec

from tailrace.agent.session import TURN_KIND
from tailrace.errors import RunNotFound
from tailrace.journal.viewed_lines import line_with_reasoning, line_without_reasoning
from tailrace.ports import ENDED, Frame, Journal, LogPage, Run, StoredLine
from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.pipeline import RequestPipeline, stopping
from tailrace.server.http.sse_stream import EventStream

NOW: Final = "now"
_CURSOR: Final = re.compile(r"(run_[0-9a-f]{24}):([0-9]{1,18})")
_PARKED: Final = b'{"type":"gateway_notice","kind":"parked"'
_BEFORE_EVERY_RUN: Final = "run_"


class SessionCursor(NamedTuple):
    """The last event that the client has: of this run, the entry `seq`. 0: it knows of the run, and has no entry."""

    run_id: str
    seq: int


def parse_cursor(text: str, param: str) -> SessionCursor | None:
    """None: from what is under way now. Raises `ApiError` 400."""
    if text in ("", NOW):
        return None
    if (found := _CURSOR.fullmatch(text)) is None:
        raise ApiError(400, f"{param}: expected <run>:<seq>, the id of an event, or {NOW}", param=param)
    return SessionCursor(found[1], int(found[2]))


class SessionFeed:
    """Sends one session to one client, until the server ends. `summary` makes the body of a `run` event."""

    def __init__(
        self,
        pipeline: RequestPipeline,
        stream: EventStream,
        session: str,
        summary: Callable[[Run], Awaitable[msgspec.Struct]],
        *,
        reasoning: bool,
    ) -> None:
        self._pipeline = pipeline
        self._journal: Journal = pipeline.app.journal
        self._stream = stream
        self._session = session
        self._summary = summary
        self._reasoning = reasoning

    async def send_all(self, cursor: SessionCursor | None) -> None:
        """Never returns. Raises `ApiError` 503 when the server stops."""
        after = cursor.run_id if cursor is not None else await self._before_live()
        self._stream.begin()  # only now: what a client asks once it has the head comes after that place
        if cursor is not None:
            await self._send_run(cursor.run_id, cursor.seq)
        while True:
            run = await self._pipeline.unless_draining(self._journal.next_run(self._session, TURN_KIND, after))
            after = run.id
            body = msgspec.json.encode(await self._summary(run))
            await self._stream.send_pieces(b"id: %b:0\nevent: run\ndata: %b\n\n" % (run.id.encode(), body))
            await self._send_run(run.id, 0)

    async def _before_live(self) -> str:
        """The newest run that is not sent: those that have not ended follow it."""
        of_session = partial(self._journal.runs, session=self._session, kind=TURN_KIND)
        newest = await of_session(limit=1)  # first: a run that begins meanwhile, and may end, is after it
        live = await of_session(states=("pending", "running"))
        before = await of_session(before=live[-1].id, limit=1) if live else newest
        return before[0].id if before else _BEFORE_EVERY_RUN

    async def _send_run(self, run_id: str, after: int) -> None:
        """To its end, or until it is parked. A run that was deleted is passed over."""
        self._pipeline.shows(run_id)
        frame, seq = session_frame(run_id, reasoning=self._reasoning), after
        stream, viewer = self._stream, self._journal.tail_pages(run_id, after=after)
        send = stream.page_sender(frame)

        def take(page: LogPage) -> bool:
            nonlocal seq
            if page[-1].json.startswith(_PARKED) or not send(page):
                return False
            seq = page[-1].seq
            return True

        try:
            async for page in viewer:
                await stream.send_pieces(page.framed(frame))
                seq, is_parked = page[-1].seq, page[-1].json.startswith(_PARKED)
                del page
                await stream.caught_up()
                if is_parked and (await self._journal.get(run_id)).state == "parked":
                    return
                await viewer.follow(take)
            run = await self._journal.get(run_id)
        except RunNotFound:
            return
        if run.state not in ENDED or seq < run.last_seq:
            raise stopping()  # the journal is being closed


@lru_cache(maxsize=1024)
def session_frame(run_id: str, *, reasoning: bool) -> Frame:
    """The same function for the same run: a page keeps what it has made of its entries."""
    shown = line_with_reasoning if reasoning else line_without_reasoning
    name = run_id.encode()

    def frame(line: StoredLine) -> bytes:
        if (visible := shown(line)) is None:
            return b""
        seq, attempt, json = visible
        return b'id: %b:%d\nevent: %b\ndata: {"run_id":"%b","seq":%d,"attempt":%d,%b\n\n' % (
            *(name, seq, visible.type, name, seq, attempt),
            json[1:],
        )

    return frame
