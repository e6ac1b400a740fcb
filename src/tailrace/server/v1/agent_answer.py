"""The agent's answer to a connected client: the run's log, encoded in the client's dialect.

A turn is committed from its first event, and the client is one of its viewers. A disconnect of this client stops the
turn.
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
from tailrace.server.v1.log_to_deltas import LogToDeltas, progress_comment
from tailrace.server.v1.model_target import agent_dialect, turn_spec
from tailrace.wire.client_request import ClientRequest
from tailrace.wire.sse import encode_comment


async def answer_turn(
    pipeline: RequestPipeline,
    request: web.Request,
    client_request: ClientRequest,
    api_format: ApiFormat,
    *,
    history: tuple[Message, ...] = (),
    fields: JsonObject | None = None,
) -> web.StreamResponse:
    """Raises `ApiError`: 400 for a parameter that the agent does not support, the provider's status where it failed."""
    spec = turn_spec(pipeline.app, client_request, requester=identity_of(request).name, history=history)
    turn = _AgentAnswer(pipeline, api_format, client_request, spec, fields or {})
    return await (turn.answer_streamed(request) if client_request.stream else turn.answer_whole())


class _AgentAnswer:
    """One turn for one connected client."""

    def __init__(
        self,
        pipeline: RequestPipeline,
        api_format: ApiFormat,
        client_request: ClientRequest,
        spec: TurnSpec,
        fields: JsonObject,
    ) -> None:
        self._pipeline = pipeline
        self._api_format = api_format
        self._client_request = client_request
        self._spec = spec
        self._fields = fields
        self._source: Dialect = agent_dialect(pipeline.app)
        self._log_to_deltas = LogToDeltas(
            agent=True,
            foreign=[tool.name for tool in spec.foreign],
            reasoning=client_request.reasoning or pipeline.app.config.agent.show_reasoning,
        )

    async def answer_whole(self) -> web.Response:
        run = await self._start_run()
        try:
            async for batch in self._pipeline.app.journal.tail(run.id):
                for entry in batch:
                    self._log_to_deltas.take_entry(entry)
        except asyncio.CancelledError:
            await self._stop_run(run)
            raise
        if (error := self._log_to_deltas.failure()) is not None:
            raise error
        completion = agent_completion(
            self._log_to_deltas.message(),
            self._log_to_deltas.usage(),
            self._log_to_deltas.stop(),
            source=self._source,
            target=self._api_format.dialect,
        )
        return json_response(self._api_format.encode_body(completion, self._header(run)))

    async def answer_streamed(self, request: web.Request) -> web.StreamResponse:
        run = await self._start_run()
        encoder = self._api_format.new_encoder(self._header(run))
        stream = self._pipeline.stream(request, error_frame=lambda error: encoder.encode([error_delta(error)]))
        try:
            async for batch in self._pipeline.app.journal.tail(run.id):
                if data := self._encoded(batch, encoder, begun=stream.begun):
                    stream.send(data)
                if stream.behind:
                    await stream.caught_up()
        except asyncio.CancelledError:
            await self._stop_run(run)
            raise
        if (error := self._log_to_deltas.failure()) is not None:
            raise error
        return await stream.end(encoder.close(self._log_to_deltas.stop()))

    def _encoded(self, batch: Batch, encoder: Encoder, *, begun: bool) -> bytes:
        """The answer's deltas as events, the agent's activity as comments. A turn that fails before its
        first text or tool begins no stream (D52)."""
        out: list[bytes] = []
        for entry in batch:
            deltas = self._log_to_deltas.take_entry(entry)
            if deltas:
                data = encoder.encode(deltas)
                if self._log_to_deltas.finished is None or begun or out:
                    out.append(data)
            elif (line := progress_comment(entry.event)) and (begun or out or isinstance(entry.event, ToolCallChunk)):
                out.append(encode_comment(" ".join(line.split())))
        return b"".join(out)

    async def _start_run(self) -> Run:
        disconnected = asyncio.Event()
        try:
            return await self._pipeline.run_to_end(self._submit(disconnected))
        except asyncio.CancelledError:
            disconnected.set()
            raise

    async def _submit(self, disconnected: asyncio.Event) -> Run:
        run = await self._pipeline.app.agents.submit(self._spec, durability=self._pipeline.app.config.store.durability)
        if disconnected.is_set():
            await self._pipeline.app.agents.stop(run.id)
        return run

    async def _stop_run(self, run: Run) -> None:
        await self._pipeline.run_to_end(self._pipeline.app.agents.stop(run.id))

    def _header(self, run: Run) -> AnswerHeader:
        return AnswerHeader(
            id=answer_id(self._api_format, run.id),
            model=self._client_request.model,
            created=int(run.created_at),
            source=self._source,
            include_usage=self._client_request.include_usage,
            fields=self._fields,
        )
