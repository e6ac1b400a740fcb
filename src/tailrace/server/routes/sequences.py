"""`/sequences` and `/instances`: durable sequences, their instances, and their streams.

An instance runs whether or not a client watches. Its stream is a projection of its log with the log's own numbers, so
a viewer that was cut off resumes at the exact event.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Final

import msgspec
from aiohttp import web
from msgspec import Meta

from tailrace.errors import ConfigError
from tailrace.events import InstanceState, RunFailure
from tailrace.flows.definition.definition import PRINTED, Definition, DefinitionError, parsed
from tailrace.flows.definition.graph import Graph, graph_of
from tailrace.flows.definition.orch8 import read_definition
from tailrace.flows.definition.public_ids import public_id, run_id_of
from tailrace.flows.definition.sequence_store import SequenceVersion
from tailrace.flows.definition.signals import unknown_signal
from tailrace.flows.definition.source import MAX_BYTES, parse_yaml
from tailrace.flows.engine.instance_events import instance_frame
from tailrace.flows.engine.instance_state import instance_states
from tailrace.flows.engine.plan import CANCEL, PAUSE, RESUME
from tailrace.flows.engine.service import Instance, InstanceGraph
from tailrace.messages import JsonObject
from tailrace.ports import ENDED, Run
from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import IDENTITY, query_of, read_as, read_body, read_object
from tailrace.server.http.route import Route, json_response
from tailrace.server.http.session_access import key_was_used, scoped_key
from tailrace.server.routes.runs_schemas import Page, before_of, page_of
from tailrace.server.routes.streams.log_stream import CursorQuery, log_end, log_route, stream_log

OWN_SIGNALS: Final = frozenset({PAUSE, RESUME, CANCEL})
SEQUENCES: Final = "sequences"  # among the models of a key: what has its models in its steps

Name = Annotated[str, Meta(max_length=256)]


class SequenceBody(msgspec.Struct, frozen=True):
    id: str
    version: int


class SequenceDetail(SequenceBody, frozen=True):
    definition: Definition


class SequenceList(msgspec.Struct, frozen=True):
    data: tuple[SequenceDetail, ...]
    page: Page


class Orch8Context(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    data: JsonObject = {}


class NewInstance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`context`, `tenant_id`, `namespace`, `metadata`: as orch8 writes them; `context.data` is the input."""

    sequence_id: Name
    input: JsonObject = {}
    dry_run: bool = False
    idempotency_key: Name = ""
    context: Orch8Context | None = None
    tenant_id: Name = ""
    namespace: Name = ""
    metadata: JsonObject = {}

    @property
    def given(self) -> JsonObject:
        return self.input if self.context is None else self.context.data


class InstanceStreamQuery(CursorQuery, frozen=True):
    """`poll_ms`, `poll_interval_ms`: of orch8's clients; nothing is polled here."""

    poll_ms: int = 0
    poll_interval_ms: int = 0


class InstanceStatus(msgspec.Struct, frozen=True):
    id: str
    state: InstanceState


class InstanceSummary(InstanceStatus, frozen=True, kw_only=True):
    name: str
    created_at: float
    error: RunFailure | None = None


class InstanceList(msgspec.Struct, frozen=True):
    data: tuple[InstanceSummary, ...]
    page: Page
    next: str | None = None  # the same as `page.next`, for older clients


class SignalBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    signal: Annotated[str, Meta(min_length=1, max_length=256, pattern=PRINTED)]
    payload: JsonObject = {}


class ListQuery(msgspec.Struct, frozen=True):
    failed: bool = False
    before: str | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class Sequences:
    """The handlers; the pipeline answers what they raise."""

    def __init__(self, pipeline: RequestPipeline) -> None:
        self._pipeline = pipeline
        self._flows = pipeline.app.flows

    # ── sequences ────────────────────────────────────────────────────────────────────────────────────────────

    async def create(self, request: web.Request) -> web.Response:
        """Stores a sequence; JSON, or YAML by its content type. Each change is a new version.

        201 with the version; the same definition again keeps its version."""
        try:
            definition = await _definition(request)
            version = await self._pipeline.run_to_end(self._flows.create_sequence(definition))
        except DefinitionError as exc:
            raise _invalid_definition(exc) from exc
        return json_response(SequenceBody(version.id, version.version), status=201)

    async def show_sequences(self, request: web.Request) -> web.Response:
        """The latest versions, newest first."""
        query = query_of(request, ListQuery)
        versions = await self._flows.library.list(query.limit + 1, before_of(query.before))
        shown = versions[: query.limit]
        page = page_of([version.id for version in shown], more=len(versions) > len(shown))
        return json_response(SequenceList(tuple(map(_detail, shown)), page))

    async def show_sequence(self, request: web.Request) -> web.Response:
        """One version of a sequence."""
        return json_response(_detail(await self._flows.library.get(request.match_info["id"])))

    async def sequence_graph(self, request: web.Request) -> web.Response:
        """The blocks of a sequence as a graph."""
        return json_response(graph_of((await self._flows.library.get(request.match_info["id"])).definition))

    # ── instances ────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self, request: web.Request) -> web.Response:
        """Starts an instance of a sequence; it goes on whether or not a client watches.

        201, also for the instance that already has this idempotency key; 409 where another request has it."""
        body = await read_as(request, NewInstance)
        request[IDENTITY].require_model(SEQUENCES)
        if body.context is not None and body.input:
            raise ApiError(400, "give input or context.data, not both", param="input")
        version = await self._flows.library.get(body.sequence_id)
        key = scoped_key(body.idempotency_key, request[IDENTITY])
        try:
            begun = self._flows.start(
                version,
                body.given,
                dry_run=body.dry_run,
                idempotency_key=key,
                requester=request[IDENTITY].name,
                is_admin=request[IDENTITY].may("admin"),
            )
            run = await self._pipeline.begin_run(begun)
        except DefinitionError as exc:
            raise _invalid_definition(exc) from exc
        if key and not _same_request(run, body):
            raise key_was_used()
        return json_response(await self._status(run), status=201)

    async def _status(self, run: Run) -> InstanceStatus:
        states = await instance_states(self._pipeline.app.journal, [run]) if run.last_seq > 1 else {}
        return InstanceStatus(public_id(run), states.get(run.id, "scheduled"))

    async def show_instances(self, request: web.Request) -> web.Response:
        """The latest instances, newest first; with `failed`, those alone."""
        query = query_of(request, ListQuery)
        find = self._flows.failed if query.failed else self._flows.instances
        runs = await find(limit=query.limit + 1, before=before_of(query.before))
        shown = runs[: query.limit]
        states = await instance_states(self._pipeline.app.journal, shown)
        page = page_of(list(map(public_id, shown)), more=len(runs) > len(shown))
        return json_response(InstanceList(tuple(_summary(run, states[run.id]) for run in shown), page, page.next))

    async def show(self, request: web.Request) -> web.Response:
        """One instance: its state and the outputs of its blocks."""
        return json_response(await self._flows.instance(request.match_info["id"]))

    async def graph(self, request: web.Request) -> web.Response:
        """The blocks of an instance as a graph, with the state of each node so far."""
        return json_response(await self._flows.graph(request.match_info["id"]))

    async def signal(self, request: web.Request) -> web.Response:
        """Sends `pause`, `resume`, `cancel` or a signal of the sequence's own to the instance.

        200 with the state after the signal; 400 for one that no step waits for, 409 for an ended instance."""
        body = await read_as(request, SignalBody)
        instance_id = request.match_info["id"]
        run = await self._flows.get(instance_id)
        ours = body.signal in OWN_SIGNALS or run.state in ENDED
        mistake = "" if ours else unknown_signal(parsed(run.new.input["definition"]), body.signal)
        if mistake:
            raise ApiError(400, mistake, code="unknown_signal", param="signal")
        await self._flows.signal(instance_id, body.signal, body.payload, by=request[IDENTITY].name)
        instance = await self._flows.instance(instance_id)
        return json_response(InstanceStatus(instance.id, instance.state))

    async def retry(self, request: web.Request) -> web.Response:
        """Starts a new instance that resumes at the step where this one failed."""
        caller = request[IDENTITY]
        caller.require_model(SEQUENCES)
        try:
            again = self._flows.retry(request.match_info["id"], requester=caller.name, is_admin=caller.may("admin"))
            run = await self._pipeline.begin_run(again)
        except DefinitionError as exc:
            raise ApiError(409, exc.message) from exc
        return json_response(await self._status(run), status=201)

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """`state`, `step`, `llm_delta`, `attempt_discarded` and `output` as they happen, then `done`.

        A cursor ahead of the log gets 409 (H98)."""
        query = query_of(request, InstanceStreamQuery)
        log = log_end(await self._flows.get(request.match_info["id"]))
        async with self._flows.watched(log.run_id):
            return await stream_log(self._pipeline, request, log, instance_frame, after=query.after)


async def _definition(request: web.Request) -> Definition:
    """JSON, or YAML where the content type says so. Raises `DefinitionError`, `ApiError`."""
    if "yaml" not in request.content_type:
        return read_definition(await read_object(request, max_bytes=MAX_BYTES))
    try:
        return await parse_yaml((await read_body(request, max_bytes=MAX_BYTES, as_json=False)).decode())
    except UnicodeDecodeError as exc:
        raise ApiError(400, "the body is not UTF-8 text", code="invalid_definition") from exc
    except ConfigError as exc:
        raise ApiError(400, str(exc), code="invalid_definition", param=exc.key or None) from exc


def _invalid_definition(error: DefinitionError) -> ApiError:
    param = error.path.removeprefix("$").lstrip(".") or None
    return ApiError(400, str(error), code="invalid_definition", param=param)


def _same_request(run: Run, body: NewInstance) -> bool:
    stored: dict[str, Any] = run.new.input
    sequence = run_id_of(stored.get("sequence_id", ""))
    return (sequence, stored.get("input", {}), stored.get("dry_run", False)) == (
        run_id_of(body.sequence_id),
        body.given,
        body.dry_run,
    )


def _detail(version: SequenceVersion) -> SequenceDetail:
    return SequenceDetail(version.id, version.version, version.definition)


def _summary(run: Run, state: InstanceState) -> InstanceSummary:
    name = run.new.session.removeprefix("instances/")
    error = run.finished.error if run.finished is not None else run.parked
    return InstanceSummary(public_id(run), state, name=name, created_at=run.created_at, error=error)


def routes(pipeline: RequestPipeline) -> Sequence[Route]:
    api, route = Sequences(pipeline), partial(Route, access="runs")
    begins, status = partial(route, "POST", status=201), InstanceStatus
    return (
        begins("/sequences", api.create, body=Definition, answer=SequenceBody, errors=(413,)),
        route("GET", "/sequences", api.show_sequences, query=ListQuery, answer=SequenceList),
        route("GET", "/sequences/{id}", api.show_sequence, answer=SequenceDetail, errors=(404,)),
        route("GET", "/sequences/{id}/graph", api.sequence_graph, answer=Graph, errors=(404,)),
        begins("/instances", api.start, body=NewInstance, answer=status, errors=(404, 409, 413)),
        route("GET", "/instances", api.show_instances, query=ListQuery, answer=InstanceList),
        route("GET", "/instances/{id}", api.show, answer=Instance, errors=(404,)),
        route("GET", "/instances/{id}/graph", api.graph, answer=InstanceGraph, errors=(404,)),
        log_route("/instances/{id}/stream", api.stream, InstanceStreamQuery),
        route("POST", "/instances/{id}/signals", api.signal, body=SignalBody, answer=status, errors=(400, 404, 409)),
        begins("/instances/{id}/retry", api.retry, answer=status, errors=(404, 409)),
    )
