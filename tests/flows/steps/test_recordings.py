"""Every recorded stream as a step's answer, over a real socket: stored the same whether it was streamed or not.

The server sends the recorded bytes to whoever asks for a stream. To the step that does not stream it refuses to, and
sends the body that a non-streaming request would have got.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from flows.stages import DIALECTS, FaultyRoutes, ask, sequence, service, spoken
from tailrace.config.quirks import WireQuirks
from tailrace.flows.engine.instance_events import InstanceEvent
from tailrace.flows.engine.service import FlowService, Instance
from tailrace.flows.steps.llm_call import LlmCall
from tailrace.messages import Dialect
from tailrace.providers.call import Caller
from tailrace.providers.no_streaming import NonStreamingRoutes
from tailrace.providers.transport.http1_transport import open_transport
from tailrace.wire.dialects import DIALECTS as WIRES
from wire.recordings import Recording, load, needs_recordings

REFUSAL = {"error": {"message": "Streaming is not supported for this model", "type": "invalid_request_error"}}


class Replay:
    """Answers with one recording at a time."""

    def __init__(self) -> None:
        self.recording: Recording | None = None
        self.streams = True

    async def answer(self, request: web.Request) -> web.Response:
        assert self.recording is not None
        asked = msgspec.json.decode(await request.read())
        if not asked.get("stream"):
            return web.json_response(body_of(self.recording), dumps=lambda body: msgspec.json.encode(body).decode())
        if not self.streams:
            return web.json_response(REFUSAL, status=400)
        return web.Response(body=self.recording.raw, content_type="text/event-stream")


def body_of(recording: Recording) -> object:
    wire = WIRES[_dialect(recording)]
    decoder = wire.decoder(WireQuirks())
    decoder.feed(recording.raw)
    decoder.close()
    return decoder.rebuilt_body()


def whole(recording: Recording) -> bool:
    """The stream came to its end without an error."""
    decoder = WIRES[_dialect(recording)].decoder(WireQuirks())
    decoder.feed(recording.raw)
    decoder.close()
    return recording.meta["status"] == 200 and decoder.complete


def _dialect(recording: Recording) -> Dialect:
    return next(dialect for dialect in DIALECTS if dialect == recording.api)


async def ran(flows: FlowService, dialect: Dialect, *, stream: bool) -> tuple[Instance, list[InstanceEvent]]:
    run = await flows.start(sequence(ask(provider=dialect, model="recorded", stream=stream, retry={"max_attempts": 1})))
    events = [event async for batch in flows.watch(run.id) for event in batch]
    return await flows.instance(run.id), events


@needs_recordings
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_recorded_answer_is_stored_the_same_streamed_and_not(dialect: Dialect, tmp_path: Path) -> None:
    recordings = [recording for recording in load(dialect) if whole(recording)]
    replay = Replay()
    application = web.Application()
    application.router.add_post("/{path:.*}", replay.answer)
    async with TestServer(application) as server, open_transport() as transport:
        caller = Caller(
            non_streaming=NonStreamingRoutes(reprobe_s=0.0)
        )  # the same name streams one time and not the next
        llm = LlmCall(caller, FaultyRoutes(str(server.make_url("")), transport))
        async with service(tmp_path, llm_call=llm) as flows:
            for recording in recordings:
                replay.recording = recording
                replay.streams = True
                streamed, events = await ran(flows, dialect, stream=True)
                replay.streams = False
                plain, _ = await ran(flows, dialect, stream=False)
                if plain.error is not None:  # neither text nor calls (N158)
                    assert (plain.error.code, plain.error) == ("empty_answer", streamed.error), recording.id
                    continue
                assert streamed.state == plain.state == "completed", (recording.id, streamed.error)
                assert streamed.outputs == plain.outputs, recording.id
                assert spoken(events) == streamed.outputs["say"]["message"]["content"], recording.id
    assert len(recordings) > 80
