"""One request of a connected client, and the way to its answer's header."""

from __future__ import annotations

import msgspec
from aiohttp import web

from tailrace.messages import Dialect, JsonObject, Message
from tailrace.ports import Run
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.v1.api_formats import AnswerHeader, ApiFormat, answer_id
from tailrace.wire.client_request import ClientRequest


class ClientCall(msgspec.Struct, frozen=True):
    """`history`: the stored messages before those of the request. `fields`: the request's fields that the answer
    repeats. `state`: the fields of the answer that are ours, not the provider's."""

    pipeline: RequestPipeline
    request: web.Request
    client_request: ClientRequest
    api_format: ApiFormat
    history: tuple[Message, ...] = ()
    fields: JsonObject = {}
    state: JsonObject = {}

    def header(self, run: Run, source: Dialect, *, ended: float | None = None) -> AnswerHeader:
        """`source`: the dialect of the answer's deltas. `ended`: when it ended, of an answer that is whole."""
        return AnswerHeader(
            id=answer_id(self.api_format, run.id),
            model=self.client_request.model,
            created=int(run.created_at),
            source=source,
            include_usage=self.client_request.include_usage,
            fields=self.fields,
            state=self.state,
            ended=ended,
        )
