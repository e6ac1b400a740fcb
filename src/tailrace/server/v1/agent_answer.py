"""The agent's answer to a client that waits for it: the run's log, said in the client's dialect.

A turn is committed from its first event, and the client is one of its viewers. It is also the one who asked: when it
leaves, the turn is stopped.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

from tailrace.agent.service import TurnSpec
from tailrace.events import ToolCallChunk
from tailrace.messages import Dialect, JsonObject, Message
from tailrace.ports import Batch, Run
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import identity_of
from tailrace.server.http.route import json_response
from tailrace.server.v1.api_formats import AnswerHeader, ApiFormat, Encoder, agent_completion, answer_id, error_delta
from tailrace.server.v1.log_to_deltas import LogToDeltas, remark
from tailrace.server.v1.model_target import agent_dialect, turn_spec
from tailrace.wire.client_request import ClientRequest
from tailrace.wire.sse import encode_comment


async def answer_turn(
    frame: RequestPipeline,
    request: web.Request,
    asked: ClientRequest,
    voice: ApiFormat,
    *,
    history: tuple[Message, ...] = (),
    fields: JsonObject | None = None,
) -> web.StreamResponse:
    """Raises `ApiError`: 400 for what an agent cannot honour, the provider's own status where there is no answer."""
    spec = turn_spec(frame.app, asked, requester=identity_of(request).name, history=history)
    turn = _AgentAnswer(frame, voice, asked, spec, fields or {})
    return await (turn.streamed(request) if asked.stream else turn.whole())


class _AgentAnswer:
    """One turn for one client, who waits."""

    def __init__(
        self, frame: RequestPipeline, voice: ApiFormat, asked: ClientRequest, spec: TurnSpec, fields: JsonObject
    ) -> None:
        self._frame = frame
        self._voice = voice
        self._asked = asked
        self._spec = spec
        self._fields = fields
        self._source: Dialect = agent_dialect(frame.app)
        self._telling = LogToDeltas(
            agent=True,
            foreign=[tool.name for tool in spec.foreign],
            reasoning=asked.reasoning or frame.app.config.agent.show_reasoning,
        )

    async def whole(self) -> web.Response:
        run = await self._submitted()
        try:
            async for batch in self._frame.app.journal.tail(run.id):
                for entry in batch:
                    self._telling.take(entry)
        except asyncio.CancelledError:
            await self._stopped(run)
            raise
        if (error := self._telling.failure()) is not None:
            raise error
        completion = agent_completion(
            self._telling.message(),
            self._telling.usage(),
            self._telling.stop(),
            source=self._source,
            target=self._voice.dialect,
        )
        return json_response(self._voice.body(completion, self._saying(run)))

    async def streamed(self, request: web.Request) -> web.StreamResponse:
        run = await self._submitted()
        encoder = self._voice.encoder(self._saying(run))
        stream = self._frame.stream(request, frame=lambda error: encoder.encode([error_delta(error)]))
        try:
            async for batch in self._frame.app.journal.tail(run.id):
                if said := self._said(batch, encoder, begun=stream.begun):
                    stream.send(said)
                if stream.behind:
                    await stream.caught_up()
        except asyncio.CancelledError:
            await self._stopped(run)
            raise
        if (error := self._telling.failure()) is not None:
            raise error
        return await stream.end(encoder.close(self._telling.stop()))

    def _said(self, batch: Batch, encoder: Encoder, *, begun: bool) -> bytes:
        """These entries to the client: the answer, and beside it, as comments, what the agent does. A turn that fails
        before it has said or done anything begins no stream (D52)."""
        out: list[bytes] = []
        for entry in batch:
            deltas = self._telling.take(entry)
            if deltas:
                said = encoder.encode(deltas)
                if self._telling.finished is None or begun or out:
                    out.append(said)
            elif (line := remark(entry.event)) and (begun or out or isinstance(entry.event, ToolCallChunk)):
                out.append(encode_comment(" ".join(line.split())))
        return b"".join(out)

    async def _submitted(self) -> Run:
        left = asyncio.Event()
        try:
            return await self._frame.run_to_end(self._submit(left))
        except asyncio.CancelledError:
            left.set()
            raise

    async def _submit(self, left: asyncio.Event) -> Run:
        run = await self._frame.app.agents.submit(self._spec, durability=self._frame.app.config.store.durability)
        if left.is_set():
            await self._frame.app.agents.stop(run.id)
        return run

    async def _stopped(self, run: Run) -> None:
        await self._frame.run_to_end(self._frame.app.agents.stop(run.id))

    def _saying(self, run: Run) -> AnswerHeader:
        return AnswerHeader(
            id=answer_id(self._voice, run.id),
            model=self._asked.model,
            created=int(run.created_at),
            source=self._source,
            include_usage=self._asked.include_usage,
            fields=self._fields,
        )
