"""The agent's answer to a connected client: the run's log, encoded in the client's dialect.

A turn is committed from its first event, and the client is one of its viewers. A disconnect of this client stops the
turn.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

import msgspec
from aiohttp import web

from tailrace.messages import Completion
from tailrace.ports import Batch, Run
from tailrace.runs.recovery import follow
from tailrace.runs.view.changes import AttemptBegan, CallRuns
from tailrace.server.http.api_errors import ApiError, error_delta
from tailrace.server.http.request_body import IDENTITY
from tailrace.server.http.route import json_response
from tailrace.server.v1.client_call import ClientCall, question_delta, set_ignored_header
from tailrace.server.v1.log_to_deltas import LogToDeltas, is_last_message_only, progress_comment
from tailrace.server.v1.model_target import agent_dialect, turn_spec, with_turns_own_calls
from tailrace.wire.served_dialect import AnswerEncoder
from tailrace.wire.sse import encode_comment


async def answer_turn(call: ClientCall) -> web.StreamResponse:
    """Raises `ApiError`: 400 for a parameter that the agent does not support, the provider's status where it failed."""
    client_request = await with_turns_own_calls(call.pipeline.app, call.client_request, call.request[IDENTITY])
    turn = _AgentAnswer(msgspec.structs.replace(call, client_request=client_request))
    return await (turn.answer_streamed() if call.client_request.stream else turn.answer_whole())


class _AgentAnswer:
    """One turn for one connected client."""

    def __init__(self, call: ClientCall) -> None:
        self._call = call
        self._pipeline = call.pipeline
        self._app = call.pipeline.app
        requester = call.request[IDENTITY].name
        self._spec = turn_spec(self._app, call.client_request, requester=requester, history=call.history)
        set_ignored_header(call.request, self._spec.ignored)
        self._source = agent_dialect(self._app)

    async def answer_whole(self) -> web.Response:
        run = await self._start_run()
        log_to_deltas = self._reader_of(run)
        try:
            async for batch in follow(self._app.journal, run.id, run=run):
                for entry in batch:
                    log_to_deltas.take_entry(entry)
        except asyncio.CancelledError:
            await self._stop_run(run)
            raise
        log_to_deltas.raise_failure()
        completion = Completion(  # without a provider's body: it is encoded from the message
            self._source.name,
            {},
            log_to_deltas.message(),
            stop=log_to_deltas.stop(),
            usage=log_to_deltas.usage(),
            stop_sequence=log_to_deltas.stop_sequence(),
        )
        return json_response(
            self._call.dialect.encode_body(completion, self._call.header(run, self._source, ended=time.time()))
        )

    async def answer_streamed(self) -> web.StreamResponse:
        run = await self._start_run()
        log_to_deltas = self._reader_of(run)
        encoder = self._call.dialect.new_encoder(self._call.header(run, self._source))
        request = self._call.request

        def error_frame(error: ApiError) -> bytes:
            """What was encoded of a stream that has not begun is not sent: its error has an encoder of its own."""
            says = encoder if stream.begun else self._call.dialect.new_encoder(self._call.header(run, self._source))
            return says.encode([error_delta(error)])

        stream = self._pipeline.stream(request, error_frame=error_frame)

        def encoded(batch: Batch) -> bytes:
            return _encoded(batch, log_to_deltas, encoder, begun=stream.begun)

        def take(batch: Batch) -> bool:
            if not batch.stored or not stream.takes(len(batch.stored)):
                return False
            if text := log_to_deltas.chunk_text(batch):  # nearly every batch
                stream.send(encoder.encode_text(text))
            else:
                stream.send(encoded(batch))
            return True

        try:
            async for batch in follow(self._app.journal, run.id, take=take, run=run):
                if data := encoded(batch):
                    await stream.send_pieces(data)
                await stream.caught_up()
        except asyncio.CancelledError:
            await self._stop_run(run)
            raise
        log_to_deltas.raise_failure()
        return await stream.end(encoder.close(log_to_deltas.stop(), at=time.time()))

    def _reader_of(self, run: Run) -> LogToDeltas:
        request = self._call.request
        return LogToDeltas(
            turn_id=run.id,
            foreign=[tool.name for tool in self._spec.foreign],
            reasoning=self._call.client_request.reasoning or self._app.config.agent.show_reasoning,
            source=self._source,
            last_message_only=is_last_message_only(self._spec),
            in_order=self._call.dialect.keeps_order,
            ask=partial(
                question_delta, self._call.dialect, run.id, f"{request.scheme}://{request.headers.get('Host', '')}"
            ),
        )

    async def _start_run(self) -> Run:
        """Stops the run where the client has gone before it was recorded."""
        agents, durability = self._app.agents, self._app.config.store.durability
        if not self._pipeline.storage_failed and (begun := agents.begin(self._spec, durability)) is not None:
            agents.pin(begun.id)
            try:
                await asyncio.sleep(0)  # its provider is asked before its viewer is made
            except asyncio.CancelledError:
                await self._stop_run(begun)
                raise
            return begun
        gone = False

        async def submit() -> Run:
            run = await agents.submit(self._spec, durability=durability)
            agents.pin(run.id)
            if gone:
                await agents.stop(run.id)
            return run

        try:
            return await self._pipeline.begin_run(submit())
        except asyncio.CancelledError:
            gone = True
            raise

    async def _stop_run(self, run: Run) -> None:
        await self._pipeline.run_to_end(self._app.agents.stop(run.id))


def _encoded(batch: Batch, log_to_deltas: LogToDeltas, encoder: AnswerEncoder, *, begun: bool) -> bytes:
    """The answer's deltas as events, the agent's activity as comments. A turn that fails before its first text or tool
    begins no stream (D52)."""
    out: list[bytes] = []
    for entry in batch:
        for change, deltas in log_to_deltas.take_entry(entry):
            if change.__class__ is AttemptBegan:
                encoder.new_attempt(change.asked.provider)
            if deltas:
                data = encoder.encode(deltas)
                if begun or out or log_to_deltas.finished is None or log_to_deltas.failure() is None:
                    out.append(data)
            elif (line := progress_comment(change)) and (begun or out or isinstance(change, CallRuns)):
                out.append(encode_comment(" ".join(line.split())))
    return b"".join(out)
