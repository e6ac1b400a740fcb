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
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app.error_advice import run_advice
from tailrace.app.models import AGENT, named
from tailrace.app.timeline import Timeline
from tailrace.app.timeline.export_html import read_export
from tailrace.app.timeline.question import attached_image
from tailrace.app.timeline.read import read_timeline
from tailrace.app.timeline.run_overview import tries_of_last_call
from tailrace.app.timeline.run_summary import answering_model, answering_models
from tailrace.errors import RunSealed
from tailrace.events import ApprovalSoFar, Snapshot
from tailrace.events.speakers import SpokenBy
from tailrace.flows.definition.public_ids import public_id, run_id_of
from tailrace.flows.engine.instance_state import instance_states
from tailrace.journal.viewed_lines import sse_with_reasoning, sse_without_reasoning
from tailrace.ports import ENDED, Run
from tailrace.runs.approval_words import outcome_words
from tailrace.runs.view import RunView
from tailrace.runs.view.changes import CallEnded
from tailrace.server.frontends.conversations import require_steering
from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import IDENTITY, query_of, read_as
from tailrace.server.http.route import TEXT, Route, json_response
from tailrace.server.http.session_access import check_session, key_was_used, scoped_key
from tailrace.server.routes import runs_schemas as schemas
from tailrace.server.routes.run_list import RunsQuery, find_runs
from tailrace.server.routes.streams.log_stream import log_end, log_route, stream_log
from tailrace.server.v1.model_target import require_model, turn_model

# A browser that shows the file instead of saving it runs none of its scripts with this server's rights (J123).
_EXPORT_HEADERS: Final = {"Content-Security-Policy": "sandbox", "X-Content-Type-Options": "nosniff"}


class Runs:
    """The handlers."""

    def __init__(self, pipeline: RequestPipeline) -> None:
        self._pipeline = pipeline
        self._app = pipeline.app
        self._journal = pipeline.app.journal
        self._costs = pipeline.app.costs

    async def create(self, request: web.Request) -> web.Response:
        """Starts a run of the agent; it goes on whether or not a client watches.

        201, also for the run that already has this idempotency key; 409 where another request has it. 202 where a run
        of the session is under way and takes the input as a message (`busy: steer`)."""
        body = await read_as(request, schemas.NewRunBody)
        identity = request[IDENTITY]
        check_session(body.session, identity, "session")
        key = scoped_key(body.idempotency_key, identity)
        spec = schemas.turn_of(body, model=turn_model(self._app, body.model, identity), requester=identity.name)
        if body.previous_run is not None:
            await self._check_previous(body.previous_run, body.session)
            spec = msgspec.structs.replace(spec, previous_run=body.previous_run)
        if body.busy == "steer" and body.session:
            steered = await self._app.steering.steer_session(
                body.session, spec.message, by=identity.name, idempotency_key=key, of_requester=identity.name
            )
            if steered is not None:
                run, steer = steered
                answer = schemas.NewRunStatusBody(run.id, run.state, schemas.steer_status(steer))
                return json_response(answer, status=202)
        run = await self._pipeline.begin_run(
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

        201, also for the fork that already has this idempotency key; 409 where another request has it."""
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
        run = await self._pipeline.begin_run(agents.start_fork(spec, idempotency_key=key, durability=durability))
        if key and not self._is_of(run, spec, run.new.session):
            raise key_was_used()
        return json_response(
            schemas.ForkStatusBody(run.id, run.state, run.new.session, schemas.forked_from(run)), status=201
        )

    async def retry(self, request: web.Request) -> web.Response:
        """Asks the question of an ended run again, or another one in its place: a further version of that turn, in its
        session. The model is told neither of the first one nor of what followed it.

        201, also for the run that already has this idempotency key."""
        body = await read_as(request, schemas.RetryBody)
        identity, run_id, agents = request[IDENTITY], _run_id(request), self._app.agents
        key = scoped_key(body.idempotency_key, identity)
        session = (await self._journal.get(run_id)).new.session
        check_session(session, identity, "session")
        run = await agents.retry_with_key(run_id, session, key) if key else None
        if run is None:
            model = turn_model(self._app, body.model, identity) if body.model else None
            message, requester = schemas.question_of(body), identity.name
            request_ = ForkRequest(
                run_id, 0, message, model, requester=requester, reachable=True, keep_files=body.keep_files
            )
            spec = await agents.retried_turn(request_)
            require_model(self._app, spec.model or AGENT, identity)
            durability = self._app.config.store.durability
            run = await self._pipeline.begin_run(
                agents.submit(spec, session=session, idempotency_key=key, durability=durability)
            )
        if key and run.new.input.get("retry_of") != run_id:
            raise key_was_used()
        return json_response(schemas.RunStatusBody(run.id, run.state), status=201)

    async def _check_previous(self, run_id: str, session: str) -> None:
        """Raises `ApiError` 400 for a run of another session, `RunNotFound`."""
        if not session or (run_id and (await self._journal.get(run_id)).new.session != session):
            raise ApiError(400, "previous_run: the run is of another session", param="previous_run")

    def _is_of(self, run: Run, spec: TurnSpec, session: str) -> bool:
        """Whether this turn, in this session, began the run that has its key."""
        spoken_by = msgspec.convert(run.new.input.get("spoken_by"), SpokenBy | None)  # found when the run began
        stored = self._app.agents.as_stored(msgspec.structs.replace(spec, spoken_by=spoken_by))
        return run.new.session == session and msgspec.json.encode(run.new.input) == msgspec.json.encode(stored)

    async def show_all(self, request: web.Request) -> web.Response:
        """The latest runs, newest first, or in another order; those that match the filters."""
        found = await find_runs(self._journal, self._costs, query_of(request, RunsQuery))
        states = await instance_states(self._journal, found.runs)
        models = await answering_models(self._journal, found.runs)
        data = tuple(schemas.summary_of(run, self._costs, states.get(run.id), models[run.id]) for run in found.runs)
        return json_response(schemas.RunList(data, schemas.Page(found.next is not None, found.next)))

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
            tries, advice = tries_of_last_call(facts), run_advice(self._app.config, run, state.error)
            asked = answering_model(run, facts) if run.finished is not None else ""
            state = msgspec.structs.replace(state, tries=tries, advice=advice, answered_by=asked)
        return json_response(state)

    async def _outputs(self, run_id: str) -> tuple[schemas.ToolOutput, ...]:
        view, found = RunView(), dict[int, schemas.ToolOutput]()
        for entry in await self._journal.facts(run_id):
            for change in view.apply(entry):
                if isinstance(change, CallEnded) and change.index is not None and change.output is not None:
                    found[change.index] = schemas.output_of(change.index, change.output)
        return tuple(found[index] for index in sorted(found))

    async def image(self, request: web.Request) -> web.Response:
        """An image that was sent with the question, by its place among them: 0 is the first."""
        number, run = request.match_info["number"], await self._journal.get(_run_id(request))
        found = attached_image(run, int(number)) if number.isdecimal() and len(number) < 10 else None
        if found is None:
            raise ApiError(404, "the question has no such image", param="number")
        return web.Response(body=found[1], content_type=found[0], headers=_EXPORT_HEADERS)

    async def timeline(self, request: web.Request) -> web.Response:
        """The timeline of a run: its attempts, texts, tools, approvals and notices, with their times."""
        query = query_of(request, schemas.RunQuery)
        run_id, reasoning = _run_id(request), query.reasoning
        return json_response(await read_timeline(self._journal, run_id, reasoning=reasoning, costs=self._costs))

    async def export(self, request: web.Request) -> web.Response:
        """The run as one HTML file that needs nothing else: its timeline, and a replay of what its viewers saw."""
        query, run_id = query_of(request, schemas.RunQuery), request.match_info["id"]
        page = await read_export(self._journal, run_id_of(run_id), reasoning=query.reasoning, costs=self._costs)
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

    async def steer(self, request: web.Request) -> web.Response:
        """Gives the run a message while it is under way: the turn's next model call has it as the user's.

        202 once the run's log has it, also for the message that already has this idempotency key."""
        body = await read_as(request, schemas.SteerBody)
        run_id, identity = await self._steered_run(request), request[IDENTITY]
        key, message = scoped_key(body.idempotency_key, identity), schemas.steer_message(body)
        steer = await self._app.steering.steer(run_id, message, by=identity.name, idempotency_key=key)
        return json_response(schemas.steer_status(steer), status=202)

    async def show_steers(self, request: web.Request) -> web.Response:
        """The messages that the run was given while it was under way, with their states."""
        steers = await self._app.steering.list(_run_id(request))
        return json_response(schemas.SteerList(tuple(map(schemas.steer_status, steers))))

    async def take_back(self, request: web.Request) -> web.Response:
        """Takes a message back that no model call has yet; 409 for one that the model was given."""
        run_id = await self._steered_run(request)
        steer_id, by = request.match_info["steer_id"], request[IDENTITY].name
        return json_response(schemas.steer_status(await self._app.steering.take_back(run_id, steer_id, by=by)))

    async def _steered_run(self, request: web.Request) -> str:
        run = await self._journal.get(_run_id(request))
        require_steering(self._app, run, request[IDENTITY])
        return run.id

    async def approve(self, request: web.Request) -> web.Response:
        """Answers an approval of a run that this key started, or of any run with the scope `approvals`.

        Taken while the server ends too: a run that waits for a person is given back then,
        and the answer is kept for the process that goes on with it."""
        answer = await read_as(request, schemas.ApprovalAnswer)
        run_id, identity = _run_id(request), request[IDENTITY]
        approval = await self._approval(run_id, answer.approval_id)
        identity.require_answer(approval.asked.requester)
        if approval.decision is not None:
            outcome = outcome_words(approval.asked, approval)
            raise ApiError(409, f"this approval is closed: {outcome}", param="approval_id")
        if answer.reason and answer.decision != "deny":
            raise ApiError(400, "only a denial takes a reason", param="reason")
        await self._app.agents.answer(
            run_id, answer.approval_id, answer.decision, by=identity.name, reason=answer.reason, authorised=True
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
    steers = partial(route, answer=schemas.SteerStatusBody)
    return (
        begins("/runs", api.create, body=schemas.NewRunBody, answer=schemas.NewRunStatusBody, errors=(404, 409, 413)),
        route("GET", "/runs", api.show_all, query=RunsQuery, answer=schemas.RunList),
        shows("/runs/{id}", api.show, answer=schemas.RunState),
        log_route("/runs/{id}/stream", api.stream, schemas.RunStreamQuery),
        shows("/runs/{id}/images/{number}", api.image, query=None, answer=TEXT, media_type="image/*"),
        shows("/runs/{id}/timeline", api.timeline, answer=Timeline),
        shows("/runs/{id}/export", api.export, answer=TEXT, media_type="text/html"),
        begins(
            "/runs/{id}/fork", api.fork, body=schemas.ForkBody, answer=schemas.ForkStatusBody, errors=(404, 409, 413)
        ),
        begins("/runs/{id}/retry", api.retry, body=schemas.RetryBody, answer=status, errors=(403, 404, 409)),
        route("POST", "/runs/{id}/stop", api.stop, answer=schemas.StopStatusBody, errors=(404,)),
        steers("POST", "/runs/{id}/steer", api.steer, status=202, body=schemas.SteerBody, errors=(403, 404, 409, 413)),
        route("GET", "/runs/{id}/steer", api.show_steers, answer=schemas.SteerList, errors=(404,)),
        steers("DELETE", "/runs/{id}/steer/{steer_id}", api.take_back, errors=(403, 404, 409)),
        route(
            "POST",
            "/runs/{id}/approval",
            api.approve,
            access="approvals",
            body=schemas.ApprovalAnswer,
            answer=status,
            errors=(403, 404, 409),
            while_draining=True,
        ),
    )
