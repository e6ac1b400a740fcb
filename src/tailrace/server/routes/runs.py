"""`/runs`: the agent's runs as a resource, their logs as streams, and every kind of run as a timeline.

A viewer is a cursor in the log: a disconnect stops nothing, a reconnect misses nothing. The bodies are in
`runs_schemas`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec
from aiohttp import web

from tailrace.agent.fork import ForkRequest
from tailrace.agent.service import TurnSpec
from tailrace.app.costs import Costs
from tailrace.app.error_advice import run_advice
from tailrace.app.models import AGENT, named
from tailrace.app.timeline import Timeline
from tailrace.app.timeline.export_html import read_export
from tailrace.app.timeline.read import read_timeline
from tailrace.app.timeline.run_overview import tries_of_last_call
from tailrace.app.timeline.tool_outputs import tool_outputs
from tailrace.config.presets import provider_dialects
from tailrace.errors import RunSealed
from tailrace.events import ApprovalSoFar, Snapshot
from tailrace.events.speakers import SpokenBy
from tailrace.flows.definition.public_ids import public_id, run_id_of
from tailrace.flows.engine.instance_state import instance_states
from tailrace.journal.viewed_lines import sse_with_reasoning, sse_without_reasoning
from tailrace.ports import ENDED, Run
from tailrace.runs.approval_words import outcome_words
from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import IDENTITY, query_of, read_as
from tailrace.server.http.route import TEXT, Route, json_response
from tailrace.server.http.session_access import check_session, key_was_used, scoped_key
from tailrace.server.routes import runs_schemas as schemas
from tailrace.server.routes.log_stream import log_end, log_route, stream_log
from tailrace.server.v1.model_target import require_model, turn_model

# A browser that shows the file instead of saving it runs none of its scripts with this server's rights (J123).
_EXPORT_HEADERS: Final = {"Content-Security-Policy": "sandbox", "X-Content-Type-Options": "nosniff"}


class Runs:
    """The handlers; each says which exceptions it leaves to the pipeline."""

    def __init__(self, pipeline: RequestPipeline) -> None:
        self._pipeline = pipeline
        self._app = pipeline.app
        self._journal = pipeline.app.journal
        self._costs = Costs(pipeline.app.config)
        self._dialects = provider_dialects(pipeline.app.config)

    async def create(self, request: web.Request) -> web.Response:
        """Starts a run of the agent; it goes on whether or not a client watches.

        201, also for the run that already has this idempotency key. Raises 403 for the session of a platform's chat,
        404 for an unknown model, 409 where the key belongs to another request."""
        body = await read_as(request, schemas.NewRunBody)
        identity = request[IDENTITY]
        check_session(body.session, identity, "session")
        key = scoped_key(body.idempotency_key, identity)
        spec = schemas.turn_of(body, model=turn_model(self._app, body.model, identity), requester=identity.name)
        run = await self._pipeline.run_to_end(
            self._app.agents.submit(
                spec,
                session=body.session,
                idempotency_key=key,
                durability=body.durability or self._app.config.store.durability,
            )
        )
        if key and not self._is_of(run, spec, body.session):
            raise key_was_used()
        return json_response(schemas.RunStatusBody(public_id(run), run.state), status=201)

    async def fork(self, request: web.Request) -> web.Response:
        """Starts a run that begins from the facts of this one up to an event, in a session of its own.

        201, also for the fork that already has this idempotency key. Raises 400 where no turn can begin there, 404 for
        an unknown run or model, 409 for an event that is not there and where the key belongs to another request."""
        body = await read_as(request, schemas.ForkBody)
        agents, identity = self._app.agents, request[IDENTITY]
        key = scoped_key(body.idempotency_key, identity)
        spec = await agents.forked_turn(
            ForkRequest(
                _run_id(request),
                body.after,
                schemas.question_of(body),
                turn_model(self._app, body.model, identity) if body.model else None,
                keep_files=body.keep_files,
                requester=identity.name,
                reachable=True,
            )
        )
        require_model(self._app, spec.model or AGENT, identity)
        self._app.models.routes(named(self._app.config, spec.model))
        durability = body.durability or self._app.config.store.durability
        run = await self._pipeline.run_to_end(agents.start_fork(spec, idempotency_key=key, durability=durability))
        if key and not self._is_of(run, spec, run.new.session):
            raise key_was_used()
        return json_response(
            schemas.ForkStatusBody(run.id, run.state, run.new.session, schemas.forked_from(run)), status=201
        )

    async def retry(self, request: web.Request) -> web.Response:
        """Asks the question of an ended run again, in its session and in its place: the model is not told of the first
        try.

        201, also for the run that already has this idempotency key. Raises 400 where another message follows the run
        and for a fork, 403 for the session of a platform's chat, 409 for a run that has not ended."""
        body = await read_as(request, schemas.RetryBody)
        identity, run_id, agents = request[IDENTITY], _run_id(request), self._app.agents
        key = scoped_key(body.idempotency_key, identity)
        session = (await self._journal.get(run_id)).new.session
        check_session(session, identity, "session")
        run = await agents.retry_with_key(run_id, session, key) if key else None
        if run is None:
            spec = await agents.retried_turn(run_id, requester=identity.name)
            require_model(self._app, spec.model or AGENT, identity)
            durability = self._app.config.store.durability
            run = await self._pipeline.run_to_end(
                agents.submit(spec, session=session, idempotency_key=key, durability=durability)
            )
        if key and run.new.input.get("retry_of") != run_id:
            raise key_was_used()
        return json_response(schemas.RunStatusBody(run.id, run.state), status=201)

    def _is_of(self, run: Run, spec: TurnSpec, session: str) -> bool:
        """Whether this turn, in this session, began the run that has its key."""
        spoken_by = msgspec.convert(run.new.input.get("spoken_by"), SpokenBy | None)  # found when the run began
        stored = self._app.agents.as_stored(msgspec.structs.replace(spec, spoken_by=spoken_by))
        return run.new.session == session and msgspec.json.encode(run.new.input) == msgspec.json.encode(stored)

    async def show_all(self, request: web.Request) -> web.Response:
        """The latest runs, newest first."""
        query = query_of(request, schemas.RunsQuery)
        runs = await self._journal.runs(
            session=query.session,
            kind=query.kind,
            states=[query.status] if query.status is not None else None,
            before=schemas.before_of(query.before),
            limit=query.limit + 1,
        )
        shown = runs[: query.limit]
        states = await instance_states(self._journal, shown)
        await self._costs.load(each for run in shown if run.finished for each in run.finished.spent or ())
        summaries = tuple(schemas.summary_of(run, self._costs, states.get(run.id)) for run in shown)
        return json_response(
            schemas.RunList(summaries, schemas.page_of([run.id for run in summaries], more=len(runs) > len(shown)))
        )

    async def show(self, request: web.Request) -> web.Response:
        """One run: the state that its log folds to."""
        query = query_of(request, schemas.RunQuery)
        run = await self._journal.get(_run_id(request))
        entry = await self._journal.snapshot(run.id)
        if not isinstance(entry.event, Snapshot):
            raise TypeError(entry.event)
        await self._costs.load(entry.event.spent)
        outputs = await self._outputs(run.id) if query.outputs else None
        state = schemas.state_of(run, entry.seq, entry.event, self._costs, reasoning=query.reasoning, outputs=outputs)
        if state.error is not None:
            facts = await self._journal.facts(run.id)
            state = msgspec.structs.replace(
                state, tries=tries_of_last_call(facts), advice=run_advice(self._app.config, run, state.error)
            )
        return json_response(state)

    async def _outputs(self, run_id: str) -> tuple[schemas.ToolOutput, ...]:
        recorded = tool_outputs(await self._journal.facts(run_id))
        return tuple(schemas.output_of(index, output) for index, output in sorted(recorded.items()))

    async def timeline(self, request: web.Request) -> web.Response:
        """The timeline of a run: its attempts, texts, tools, approvals and notices, with their times."""
        query = query_of(request, schemas.RunQuery)
        timeline = await read_timeline(
            self._journal, _run_id(request), reasoning=query.reasoning, dialects=self._dialects
        )
        return json_response(timeline)

    async def export(self, request: web.Request) -> web.Response:
        """The run as one HTML file that needs nothing else: its timeline, and a replay of what its viewers saw."""
        query, run_id = query_of(request, schemas.RunQuery), request.match_info["id"]
        page = await read_export(self._journal, run_id_of(run_id), reasoning=query.reasoning, dialects=self._dialects)
        name = "".join(char if char.isalnum() or char in "-_" else "_" for char in run_id) + ".html"
        headers = {"Content-Disposition": f'attachment; filename="{name}"', **_EXPORT_HEADERS}
        return web.Response(text=page, content_type="text/html", charset="utf-8", headers=headers)

    async def stop(self, request: web.Request) -> web.Response:
        """Ends the run as `stopped`.

        200 with the state after the stop: `stopping` while its process has not ended it; a no-op for an ended run."""
        run_id = _run_id(request)
        await self._app.agents.stop(run_id, by=request[IDENTITY].name)
        run = await self._journal.get(run_id)
        return json_response(schemas.StopStatusBody(public_id(run), run.state if run.state in ENDED else "stopping"))

    async def approve(self, request: web.Request) -> web.Response:
        """Answers an approval of a run that this key started.

        Any other key may not (J110). Taken while the server ends too: a run that waits for a person is given back then,
        and the answer is kept for the process that goes on with it."""
        answer = await read_as(request, schemas.ApprovalAnswer)
        run_id, identity = _run_id(request), request[IDENTITY]
        approval = await self._approval(run_id, answer.approval_id)
        if approval.asked.requester != identity.name:
            raise ApiError(403, "only the key that started this run may answer its approvals", code="not_the_requester")
        if approval.decision is not None:
            raise ApiError(
                409, f"this approval is closed: {outcome_words(approval.asked, approval)}", param="approval_id"
            )
        if answer.reason and answer.decision != "deny":
            raise ApiError(400, "only a denial takes a reason", param="reason")
        await self._app.agents.answer(
            run_id, answer.approval_id, answer.decision, by=identity.name, reason=answer.reason
        )
        run = await self._journal.get(run_id)
        return json_response(schemas.RunStatusBody(public_id(run), run.state))

    async def _approval(self, run_id: str, approval_id: str) -> ApprovalSoFar:
        run = await self._journal.get(run_id)
        if run.state in ENDED:
            raise RunSealed(f"run {run_id} has ended")
        state = (await self._journal.snapshot(run_id)).event
        for approval in state.approvals if isinstance(state, Snapshot) else ():
            if approval.asked.approval_id == approval_id:
                return approval
        raise ApiError(404, "this run has no such approval", param="approval_id")

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """The log as server-sent events: `id` is the entry's seq, `event` its type. Ends after the last.

        A cursor at compacted entries gets a `snapshot` in their place, a cursor ahead of the log 409 (H98)."""
        query = query_of(request, schemas.RunStreamQuery)
        log = log_end(await self._journal.get(_run_id(request)))
        frame = sse_with_reasoning if query.reasoning else sse_without_reasoning
        return await stream_log(self._pipeline, request, log, frame, after=query.after, snapshot=query.snapshot)


def _run_id(request: web.Request) -> str:
    return run_id_of(request.match_info["id"])


def routes(pipeline: RequestPipeline) -> Sequence[Route]:
    api, route = Runs(pipeline), partial(Route, access="runs")
    begins, status = partial(route, "POST", status=201), schemas.RunStatusBody
    shows = partial(route, "GET", query=schemas.RunQuery, errors=(404,))
    return (
        begins("/runs", api.create, body=schemas.NewRunBody, answer=status, errors=(404, 409, 413)),
        route("GET", "/runs", api.show_all, query=schemas.RunsQuery, answer=schemas.RunList),
        shows("/runs/{id}", api.show, answer=schemas.RunState),
        log_route("/runs/{id}/stream", api.stream, schemas.RunStreamQuery),
        shows("/runs/{id}/timeline", api.timeline, answer=Timeline),
        shows("/runs/{id}/export", api.export, answer=TEXT, media_type="text/html"),
        begins(
            "/runs/{id}/fork", api.fork, body=schemas.ForkBody, answer=schemas.ForkStatusBody, errors=(404, 409, 413)
        ),
        begins("/runs/{id}/retry", api.retry, body=schemas.RetryBody, answer=status, errors=(403, 404, 409)),
        route("POST", "/runs/{id}/stop", api.stop, answer=schemas.StopStatusBody, errors=(404,)),
        route(
            "POST",
            "/runs/{id}/approval",
            api.approve,
            body=schemas.ApprovalAnswer,
            answer=status,
            errors=(403, 404, 409),
            while_draining=True,
        ),
    )
