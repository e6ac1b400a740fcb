"""One connection of the Responses web socket (Open Responses 2026-04-24, and OpenAI's SDKs).

Owns the connection: its lanes, its limits, its keep-alive, and the `store: false` responses that only it can go on
from. A response is begun and its log is read as for `POST /v1/responses`: the socket is another writer of its events.
When the connection ends, stored responses go on, and all others are stopped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Final

import msgspec
from aiohttp import WSCloseCode, WSMsgType, web

from tailrace.calls.call_log import CALL_KIND
from tailrace.errors import JournalError
from tailrace.journal.storage_wait import PATIENCE_S
from tailrace.messages import JsonObject, Message
from tailrace.ports import Run
from tailrace.runs.recovery import follow
from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.body_budget import FREE_BYTES, BodyClaim
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import IDENTITY, LARGE_BYTES, with_room
from tailrace.server.v1.client_call import answer_id
from tailrace.server.v1.responses import socket_frames as frames
from tailrace.server.v1.responses import steering
from tailrace.server.v1.responses.begin_response import ResponseRuns
from tailrace.server.v1.responses.responses_request import ResponsesRequest
from tailrace.server.v1.responses.steering import Steer
from tailrace.server.v1.responses.stored_response import StoredResponse, warmed_response
from tailrace.system.random_hex import random_hex
from tailrace.wire.dialects import RESPONSES
from tailrace.wire.responses.client_request import items_of

MAX_ACTIVE: Final = 16  # responses at once, as OpenAI has it; further ones wait
MAX_LANES: Final = 32  # named ones
MAX_QUEUED: Final = 64  # requests that wait
CLOSE_S: Final = 2.0  # for the client's own end of the connection
_ENDINGS: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
_TOO_MANY_LANES = "this connection has used 32 stream ids: use one of them again, or connect again"
_TOO_OLD = "the connection is 60 minutes old: connect again"
_PROBLEMS: Final[dict[int, ApiError]] = {
    WSCloseCode.MESSAGE_TOO_BIG: ApiError(
        413, "the frame is larger than this server accepts", code="request_too_large"
    ),
    WSCloseCode.PROTOCOL_ERROR: ApiError(400, "the frame breaks the web socket protocol", code="protocol_error"),
}


class _WebSocket(web.WebSocketResponse):
    """Says why, where the library closes the connection for a frame that it does not take."""

    async def close(self, *, code: int = WSCloseCode.OK, message: bytes = b"", drain: bool = True) -> bool:
        if not self.closed and (error := _PROBLEMS.get(code)) is not None:
            await self.send_frame(frames.error_frame(error), WSMsgType.TEXT)
        return await super().close(code=code, message=message, drain=drain)


class _Create:
    """A response that was asked for. `steers`: what it is the successor for, or carries besides its own input."""

    def __init__(
        self, body: JsonObject, claim: BodyClaim | None = None, steers: tuple[Steer, ...] = (), size: int = 0
    ) -> None:
        self.body = body
        self.claim = claim
        self.size = size  # of its frame
        self.steers = steers
        self.is_successor = bool(steers)

    def release(self) -> None:
        """Gives back the room that its body took."""
        if self.claim is not None:
            self.claim.release()


class _Lane:
    """Requests with one `stream_id`: one after the other."""

    def __init__(self, stream_id: str) -> None:
        self.stream_id = stream_id
        self.waiting: deque[_Create] = deque()
        self.task: asyncio.Task[None] | None = None  # works them off


class _Answer:
    """A response that the client has begun to see."""

    def __init__(self, run: Run, create: _Create, lane: _Lane, said: tuple[Message, ...] | None) -> None:
        self.run = run
        self.id = answer_id(RESPONSES, run.id)  # of the newest response of the run
        self.create = create
        self.lane = lane
        self.said = said  # before it; None: a steer does not end it
        self.sent = 0  # events
        self.created: JsonObject = {}
        self.output: list[JsonObject] = []  # items that are done
        self.end: JsonObject | None = None
        self.steers: list[Steer] = []  # for a successor
        self.given: dict[str, Steer] = {}  # to the turn that is under way, which has not taken them yet
        self.reading = asyncio.Lock()  # the client hears that a steer was accepted before it hears what became of it
        self.stubs: list[JsonObject] = []  # what the client owes before its steers can go on

    def let_go(self) -> None:
        """It has ended, and is kept for a late steer, and for those that wait: what is large of it goes (L143)."""
        self.create, self.said, self.output, self.created, self.end = _Create({}), None, [], {}, {}


@asynccontextmanager
async def _steerable(answer: _Answer | None) -> AsyncGenerator[_Answer, None]:
    """Raises `ApiError` where the response takes no steer. Within the block its log is not read."""
    if answer is None:
        raise ApiError(404, "no such response on this connection", code="response_not_found")
    async with answer.reading:
        if answer.end is not None and not answer.stubs:
            raise ApiError(409, "the response has ended", code="response_already_completed")
        yield answer


class SocketConnection:
    def __init__(self, pipeline: RequestPipeline, runs: ResponseRuns, request: web.Request) -> None:
        self._pipeline = pipeline
        self._runs = runs
        self._request = request
        self._socket = _WebSocket(
            max_msg_size=pipeline.max_body_bytes, compress=False, decode_text=False, timeout=CLOSE_S
        )
        self._timing = pipeline.stream_timing
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[str, _Lane] = {}
        self._slots = asyncio.Semaphore(MAX_ACTIVE)
        self._local: dict[str, tuple[Message, ...] | None] = {}  # by response; None: its log has what was said
        self._sizes: dict[str, int] = {}  # where its log has not: the bytes of the frames that said it
        self._answers: dict[str, _Answer] = {}  # the newest of each lane, by response
        self._tasks: asyncio.TaskGroup
        self._steering: dict[asyncio.Task[None], int] = {}  # steers under way, and the bytes of their frames
        self._last_sent = 0.0
        self._pending = 0  # bytes that the client had not taken at the last timer
        self._timer: asyncio.TimerHandle

    async def serve(self) -> web.StreamResponse:
        """To the end of the connection."""
        await self._socket.prepare(self._request)
        self._pipeline.upgraded(self._request, self._socket)
        self._last_sent = self._loop.time()
        self._timer = self._loop.call_later(self._timing.silence_s, self._on_timer)
        code = WSCloseCode.GOING_AWAY
        try:
            async with asyncio.TaskGroup() as self._tasks:
                code = await self._read_frames()
                if not self._pipeline.draining:
                    for task in (*self._steering, *(lane.task for lane in self._lanes.values())):
                        if task is not None:
                            task.cancel()
        finally:
            self._timer.cancel()
            for lane in self._lanes.values():
                for create in lane.waiting:
                    create.release()
            await self._socket.close(code=code)
        return self._socket

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _read_frames(self) -> WSCloseCode:
        """Returns how the connection is to be closed."""
        try:
            async with asyncio.timeout(self._timing.socket_s):
                while True:
                    message = await self._pipeline.unless_draining(self._socket.receive())
                    if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                        return WSCloseCode.OK  # closed
                    data: bytes = message.data
                    try:
                        is_large = len(data) > LARGE_BYTES  # the loop has its turn meanwhile
                        parse = frames.parse_client_frame
                        event = await asyncio.to_thread(parse, data) if is_large else parse(data)
                    except ApiError as exc:
                        await self._send_error(exc)
                        return WSCloseCode.INVALID_TEXT
                    await self._take(event, len(data))
        except TimeoutError:
            await self._send_error(ApiError(400, _TOO_OLD, code="websocket_connection_limit_reached"))
        except ApiError:  # the server stops: what is under way has its time
            pass
        return WSCloseCode.GOING_AWAY

    async def _take(self, event: JsonObject, size: int) -> None:
        kind = event.pop("type", None)
        stream_id = ""
        try:
            if kind == "response.steer":
                await self._begin_steer(event, size)
            elif kind == "response.create":
                stream_id = frames.stream_id_in(event)
                await self._enqueue(stream_id, event, size)
            else:
                message = "the type of an event is response.create or response.steer"
                await self._send_error(ApiError(400, message, code="unknown_event_type", param="type"))
        except ApiError as exc:
            await self._send_error(exc, stream_id)

    async def _enqueue(self, stream_id: str, body: JsonObject, size: int) -> None:
        """Raises `ApiError` 400 and 429."""
        lane = self._lanes.get(stream_id)
        if lane is None:
            if stream_id and len(self._lanes.keys() - {""}) >= MAX_LANES:
                raise ApiError(400, _TOO_MANY_LANES, code="websocket_stream_limit_reached", param="stream_id")
            lane = self._lanes[stream_id] = _Lane(stream_id)
        if sum(len(each.waiting) for each in self._lanes.values()) >= MAX_QUEUED:
            raise ApiError(429, f"{MAX_QUEUED} requests wait already", code="websocket_queue_full")
        claim = BodyClaim(self._pipeline.body_budget)
        if size > FREE_BYTES:
            await with_room(claim.grow(size))
        body.pop("stream_id", None)
        lane.waiting.append(_Create(body, claim, size=size))
        self._wake(lane)

    def _wake(self, lane: _Lane) -> None:
        if lane.task is None:
            lane.task = self._tasks.create_task(self._work(lane))

    # ── responses ────────────────────────────────────────────────────────────────────────────────────────────

    async def _work(self, lane: _Lane) -> None:
        while lane.waiting:
            create = lane.waiting.popleft()
            try:
                async with self._slots:
                    await self._respond(lane, create)
            except Exception as exc:  # noqa: BLE001 - the top of a request: the pipeline logs it, the client is told
                await self._refuse(lane, create, self._pipeline.call_failure(self._request, exc))
            finally:
                create.release()
        lane.task = None

    async def _refuse(self, lane: _Lane, create: _Create, error: ApiError) -> None:
        """A request that failed before it had a response. Its steers are returned. A previous response that is unknown
        is 400 here, as clients expect it."""
        if error.code == "previous_response_not_found":
            error = ApiError(400, str(error), code=error.code, param=error.param)
        self._forget(lane, create)
        parent = str(create.body.get("previous_response_id") or "")
        answer = self._answers.get(parent)
        for steer in create.steers:
            failed = ApiError(error.status, str(error), code="successor_creation_failed")
            about = {"previous_response_id": parent, "input": steer.input}
            number = answer.sent if answer is not None else 0
            await self._send(frames.event_frame(steering.failed_event(about, failed, number, steer.id), lane.stream_id))
        if not create.is_successor:
            await self._send_error(error, lane.stream_id)

    async def _respond(self, lane: _Lane, create: _Create) -> None:
        """The response, to its end. Raises what refuses it."""
        request = self._request
        await self._pipeline.admit_call(request)
        parent = self._answers.get(str(create.body.get("previous_response_id") or ""))
        if parent is not None and parent.lane is lane and parent.stubs:
            create.steers, parent.steers, parent.stubs = tuple(parent.steers), [], []
        body = {name: value for name, value in create.body.items() if name != "generate"}
        if create.steers and not create.is_successor:
            body["input"] = steering.with_steers(items_of(body.get("input") or []), create.steers)
        asked = await self._runs.parse(request, body)
        history = await self._runs.history(request, asked, self._local)
        if create.body.get("generate") is False:
            await self._warm(lane, asked, history, create.size)
            return
        run = await self._runs.begin(request, asked, history, over_socket=True)
        PATIENCE_S.set(None)  # a viewer waits for storage as runs do
        said = (*history, *asked.client_request.request.messages) if self._runs.ends_for_steers(asked) else None
        answer = _Answer(run, create, lane, said)
        self._answers = {key: each for key, each in self._answers.items() if each.lane is not lane or each.stubs}
        self._answers[answer.id] = answer
        try:
            await self._shown(answer, asked)
        finally:
            answer.let_go()

    async def _shown(self, answer: _Answer, asked: ResponsesRequest) -> None:
        try:
            await self._follow(answer)
        except BaseException:
            if not asked.is_stored:
                with suppress(JournalError):  # what ended the response is told, and a cancellation goes on
                    await self._pipeline.run_to_end(self._runs.stop(answer.run))
            raise
        if answer.end is not None and answer.end["status"] == "failed":
            self._forget(answer.lane, answer.create)
        elif not asked.is_stored:
            self._local.setdefault(answer.id, None)
        await self._after(answer)

    def _forget(self, lane: _Lane, create: _Create) -> None:
        """What was to go on from it has failed in its own lane: a `store: false` response is not gone on from again."""
        parent = str(create.body.get("previous_response_id") or "")
        if (answer := self._answers.get(parent)) is None or answer.lane is lane:
            self._local.pop(parent, None)
            self._sizes.pop(parent, None)

    def _keep(self, response_id: str, said: tuple[Message, ...], size: int) -> None:
        """What was said up to a response without a log. The oldest of them are forgotten where all together are larger
        than one request may be (L143)."""
        self._local[response_id], self._sizes[response_id] = said, size
        while len(self._sizes) > 1 and sum(self._sizes.values()) > self._pipeline.max_body_bytes:
            oldest = next(iter(self._sizes))
            del self._sizes[oldest], self._local[oldest]

    async def _follow(self, answer: _Answer) -> None:
        """Sends the events of the run as they come. Raises what made it fail before the first of them."""
        run = answer.run
        response = StoredResponse(run, successors=True)
        async for batch in follow(self._runs.journal, run.id, run=run):
            async with answer.reading:
                events = response.events(batch)
                if response.has_ended and not answer.sent and not response.fails_in_stream(self._request):
                    response.raise_failure()
                is_cut = not await self._send_events(answer, events)
                for steer in response.take_steers():
                    given = answer.given.get(steer.accepted.steer_id)
                    if steer.state != "accepted":
                        answer.given.pop(steer.accepted.steer_id, None)
                    if given is not None and steer.state == "returned":
                        answer.steers.append(given)
            if is_cut:
                await self._cut(answer)
                return
        if not response.has_ended:
            response.raise_failure()

    async def _send_events(self, answer: _Answer, events: bytes) -> bool:
        """False where the rest is not sent: a steer ends the response here, at the end of an item."""
        for name, frame in frames.event_frames(events, answer.lane.stream_id):
            await self._send(frame)
            answer.sent += 1
            if name == "response.created":
                self._note_created(answer, msgspec.json.decode(frame)["response"])
            elif name == "response.output_item.done":
                item: JsonObject = msgspec.json.decode(frame)["item"]
                answer.output.append(item)
                if answer.steers and answer.said is not None and item["type"] in ("reasoning", "message"):
                    return False
            elif name in _ENDINGS:
                answer.end = msgspec.json.decode(frame)["response"]
        return True

    def _note_created(self, answer: _Answer, created: JsonObject) -> None:
        """The answer's first response, or a successor in the same run."""
        if answer.created:
            if answer.create.body.get("store") is False:
                self._local.setdefault(answer.id, None)
            self._answers.pop(answer.id, None)
            answer.sent, answer.output, answer.end = 1, [], None
        answer.id, answer.created = created["id"], created
        self._answers[answer.id] = answer

    async def _cut(self, answer: _Answer) -> None:
        """Ends a `store: false` response of a raw model for its successor, with the items that are done."""
        await self._pipeline.run_to_end(self._runs.stop(answer.run))
        ended = {"status": "incomplete", "incomplete_details": {"reason": "steered"}, "output": answer.output}
        answer.end = {**answer.created, **ended}
        number = answer.sent
        event = {"type": "response.incomplete", "sequence_number": number, "response": answer.end}
        said = {"model": "-", "input": [item for item in answer.output if item["type"] == "message"]}
        messages = RESPONSES.parse_client_request(said).request.messages
        size = answer.create.size + self._sizes.get(str(answer.create.body.get("previous_response_id") or ""), 0)
        self._keep(answer.id, (*(answer.said or ()), *messages), size)
        await self._send(frames.event_frame(event, answer.lane.stream_id))

    async def _warm(self, lane: _Lane, asked: ResponsesRequest, history: tuple[Message, ...], size: int) -> None:
        """`generate: false`: a response without output, from which the client goes on. No model is asked. Raises
        `ApiError` 413."""
        response_id = RESPONSES.id_prefix + random_hex(24)
        size += self._sizes.get(asked.previous_response_id or "", 0)
        if size > self._pipeline.max_body_bytes:
            raise ApiError(413, "this connection keeps no longer conversation", code="request_too_large")
        self._keep(response_id, (*history, *asked.client_request.request.messages), size)
        for _, frame in frames.event_frames(warmed_response(response_id, asked), lane.stream_id):
            await self._send(frame)

    # ── steering ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _begin_steer(self, event: JsonObject, size: int) -> None:
        """The run's owner may take long: the next frame is read meanwhile, unless too much is under way."""
        while (under_way := self._steering) and (
            len(under_way) >= steering.MAX_PENDING or sum(under_way.values()) + size > self._pipeline.max_body_bytes
        ):
            await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
        task = self._tasks.create_task(self._steer(event, size))
        under_way[task] = size
        task.add_done_callback(under_way.pop)

    async def _steer(self, event: JsonObject, size: int) -> None:
        answer = self._answers.get(str(event.get("previous_response_id")))
        number, stream_id = (answer.sent, answer.lane.stream_id) if answer is not None else (0, "")
        try:
            await self._pipeline.admit_call(self._request, counted=False)  # its key may be revoked by now
            given = steering.check_input(event)
            async with _steerable(answer) as steered:
                self._check_room(steered, size)
                await self._accept(steered, given, size)
        except Exception as exc:  # noqa: BLE001 - as for a request
            error = self._pipeline.call_failure(self._request, exc)
            await self._send(frames.event_frame(steering.failed_event(event, error, number), stream_id))

    def _check_room(self, answer: _Answer, size: int) -> None:
        """Raises `ApiError` where no further steer can wait."""
        waiting = [steer for each in self._answers.values() for steer in (*each.steers, *each.given.values())]
        is_full = len(answer.steers) >= steering.MAX_PENDING or len(waiting) >= 2 * steering.MAX_PENDING
        if is_full or sum(steer.size for steer in waiting) + size > self._pipeline.max_body_bytes:
            raise ApiError(429, "too much input waits already", code="too_many_pending_steers")

    async def _accept(self, answer: _Answer, given: str | list[JsonObject], size: int) -> None:
        """A turn takes the input at its next model call; else it is for a successor. Raises `ApiError`."""
        taken = None
        if answer.end is None:
            taken = await self._runs.steer_turn(answer.run, given, self._request[IDENTITY])
        steer = Steer(f"steer_{random_hex(24)}" if taken is None else taken.accepted.steer_id, given, size)
        if taken is None:
            answer.steers.append(steer)
        else:
            answer.given[steer.id] = steer
        event = steering.accepted_event(steer, answer.id, answer.sent)
        await self._send(frames.event_frame(event, answer.lane.stream_id))
        if answer.stubs:
            await self._tell_pending(answer, [steer])

    async def _after(self, answer: _Answer) -> None:
        """The response has ended: what becomes of its steers."""
        if not answer.steers or answer.end is None:
            return
        lane, body = answer.lane, answer.create.body
        if answer.end["status"] in ("failed", "cancelled"):
            error = ApiError(409, "the response failed", code="response_not_active")
            for steer in answer.steers:
                about = {"previous_response_id": answer.id, "input": steer.input}
                event = steering.failed_event(about, error, answer.sent, steer.id)
                await self._send(frames.event_frame(event, lane.stream_id))
            answer.steers.clear()
        elif stubs := steering.required_input(answer.output, approvals=answer.run.new.kind == CALL_KIND):
            answer.stubs = stubs
            await self._tell_pending(answer, answer.steers)
        else:
            steers = tuple(answer.steers)
            inherited = {name: value for name, value in body.items() if name != "previous_response_id"}
            if not inherited.get("conversation"):
                inherited["previous_response_id"] = answer.id
            items = [item for steer in steers for item in steer.items]
            lane.waiting.appendleft(_Create({**inherited, "input": items}, steers=steers))
            answer.steers.clear()

    async def _tell_pending(self, answer: _Answer, steers: list[Steer]) -> None:
        for steer in steers:
            event = steering.pending_event(steer, answer.id, answer.sent, answer.stubs)
            await self._send(frames.event_frame(event, answer.lane.stream_id))

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _send(self, frame: bytes) -> None:
        """Waits while the client does not take what it was sent."""
        with suppress(ConnectionError):  # the client is gone: the handler is told by its cancellation
            await self._socket.send_frame(frame, WSMsgType.TEXT)
        self._last_sent = self._loop.time()

    def _on_timer(self) -> None:
        """Drops a client that takes nothing of what it is sent; asks a silent connection for a sign of life."""
        transport, timing, now = self._request.transport, self._timing, self._loop.time()
        if transport is None or transport.is_closing():
            return
        pending = transport.get_write_buffer_size()
        if pending and pending == self._pending:
            transport.abort()
            return
        if not pending and now - self._last_sent >= timing.silence_s:
            self._tasks.create_task(self._ping())
        self._pending = pending
        self._timer = self._loop.call_at(now + (timing.stuck_s if pending else timing.silence_s), self._on_timer)

    async def _ping(self) -> None:
        with suppress(ConnectionError):
            await self._socket.ping()

    async def _send_error(self, error: ApiError, stream_id: str = "") -> None:
        await self._send(frames.error_frame(error, stream_id))
