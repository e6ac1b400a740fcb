"""`POST /ag-ui`: an AG-UI front end starts runs of the agent in a thread, and watches them.

The thread is the session, and the client is a viewer: a closed connection stops nothing, and the same `runId` again
goes on with the same run. Owns what a request means: a new turn, one that it comes back to, the answer to an approval,
or a thread that is opened. The encoding is in `encoder`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import aclosing, suppress
from typing import Final

import msgspec
from aiohttp import web

from tailrace.agent.session import TURN_KIND, history_of
from tailrace.agent.turn_spec import ClientTurn, TurnSpec
from tailrace.app.costs import Costs
from tailrace.errors import RunNotFound
from tailrace.events import Decision
from tailrace.integrations.ag_ui import run_agent_input as ag_ui
from tailrace.integrations.ag_ui.encoder import AgUiEncoder
from tailrace.integrations.ag_ui.messages import to_messages
from tailrace.integrations.ag_ui.thread import open_thread
from tailrace.integrations.ag_ui.view import ClientView, Stretch, opened_thread, run_and_approval
from tailrace.messages import JsonObject, Message, ModelRequest
from tailrace.ports import ENDED, Run
from tailrace.runs.recovery import follow_pages
from tailrace.server.frontends import client_thread
from tailrace.server.frontends.conversations import Approval, Conversations
from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.auth import Identity
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import IDENTITY, read_object
from tailrace.server.http.route import Route
from tailrace.server.v1.client_tool_calls import calling_run, with_recorded_calls
from tailrace.server.v1.model_target import turn_model

_EVENT_ID: Final = re.compile(r"([0-9]{1,18})\.([0-9]{1,9})")
_RECENT: Final = 50  # turns among which a `runId` that comes again is looked for


class Viewed(msgspec.Struct, frozen=True):
    """What a request is shown: this stretch of this run. Without a run: the thread alone. `can_go_on`: the client may
    have seen a part of it."""

    view: ClientView
    run: Run | None = None
    stretch: Stretch = Stretch()
    can_go_on: bool = False


class AgUi:
    """The handler, and the decision what a request asks for."""

    def __init__(self, pipeline: RequestPipeline) -> None:
        self._pipeline = pipeline
        self._app = pipeline.app
        self._journal = pipeline.app.journal
        self._conversations = Conversations(pipeline)

    async def run(self, request: web.Request) -> web.StreamResponse:
        """Runs the agent in a thread, or goes on with a run of it; answers with AG-UI events.

        Raises 400 for what cannot be understood, 403 for another's thread, 404 for an unknown model or interrupt,
        409 where the `runId` was used for another message. What fails later is a `RUN_ERROR` event."""
        after = _last_event(request)
        body = await read_object(request)
        asked = ag_ui.input_of(body)
        await self._conversations.newest_turn(asked.thread_id, request[IDENTITY], "threadId")
        viewed = await self._viewed(asked, body["messages"], request[IDENTITY])
        if after is not None and viewed.run is not None and viewed.can_go_on:
            if after[0] > (last := viewed.run.last_seq):
                raise ApiError(409, f"the log has {last} entries and the cursor says {after[0]}", code="cursor_ahead")
            viewed = msgspec.structs.replace(viewed, view=msgspec.structs.replace(viewed.view, after=after))
        return await self._stream(request, viewed)

    # ── what is asked for ────────────────────────────────────────────────────────────────────────────────────

    async def _viewed(self, asked: ag_ui.RunAgentInput, messages: Sequence[JsonObject], caller: Identity) -> Viewed:
        shows = asked.props.reasoning
        view = ClientView(
            asked.thread_id,
            asked.run_id,
            messages,
            asked.state,
            reasoning=self._app.config.agent.show_reasoning if shows is None else shows,
        )
        known = await self._known_turn(asked)
        if asked.resume and (resumed := await self._resumed(asked, caller)) is not None:
            return Viewed(view, *resumed, can_go_on=True)
        if known is not None:
            return Viewed(view, known, can_go_on=True)
        place = await client_thread.place_in_thread(
            self._journal, asked.thread_id, [message.id for message in asked.messages]
        )
        if asked.messages and not _only_watches(asked, place):
            return Viewed(view, await self._new_turn(asked, place, caller))
        opened = await open_thread(self._journal, asked.thread_id)
        state = opened.state if asked.state in (None, {}) else asked.state
        view = msgspec.structs.replace(view, messages=opened.messages, state=state, resync=True)
        return Viewed(view, opened.active, Stretch(answered=opened.answered))

    async def _known_turn(self, asked: ag_ui.RunAgentInput) -> Run | None:
        """The turn that this request has begun before."""
        for run in await self._journal.runs(session=asked.thread_id, kind=TURN_KIND, limit=_RECENT):
            if client_thread.request_id(run) == asked.run_id:
                return _same_question(run, asked)
        return None

    # ── a new turn ───────────────────────────────────────────────────────────────────────────────────────────

    async def _new_turn(self, asked: ag_ui.RunAgentInput, place: client_thread.ThreadPlace, caller: Identity) -> Run:
        """Begins it; the run that the thread is busy with is stopped, waited for, or given the message. Raises
        `ApiError`."""
        spec = await self._turn_spec(asked, place, caller)
        key = client_thread.request_key("ag-ui", caller.name, asked.thread_id, asked.run_id)
        run = await self._conversations.submit(spec, asked.thread_id, key)
        return run if spec.busy == "steer" else _same_question(run, asked)

    async def _turn_spec(
        self, asked: ag_ui.RunAgentInput, place: client_thread.ThreadPlace, caller: Identity
    ) -> TurnSpec:
        model = turn_model(self._app, asked.props.model, caller)
        new = [*enumerate(asked.messages)][place.new_from :]
        if place.repeated is None and not place.is_first:  # the list knows nothing of the thread: its end is new
            new = _after_last_answer(new)
        said = _said(message for _, message in new)
        if not said or isinstance(said[-1], ag_ui.AssistantMessage):
            problem = "there is nothing to answer; the last message must be a new one of the user, or a tool's result"
            raise ApiError(400, f"messages: {problem}", param="messages")
        await self._check_results(new, asked.thread_id)
        messages = to_messages(new)
        *before, message = await with_recorded_calls(
            self._journal, messages, lambda run: caller.owns(client_thread.requester(run))
        )
        if message.is_blank:
            raise ApiError(400, f"messages[{len(asked.messages) - 1}].content: is empty", param="messages")
        history: tuple[Message, ...] | None = None
        earlier = msgspec.convert(place.repeated.new.input, TurnSpec) if place.repeated is not None else None
        if place.asks_again and earlier is not None and earlier.replaces_history:
            history = earlier.history
        elif before:
            history = (*await history_of(self._journal, asked.thread_id, previous_run=place.previous_run), *before)
        return TurnSpec(
            message,
            model=model,
            request=ModelRequest("", (), system=ag_ui.system_of(asked)),
            history=history,
            replaces_history=history is not None,
            previous_run=place.previous_run,
            foreign=ag_ui.tools_of(asked),
            requester=caller.name,
            reachable=True,
            busy=asked.props.busy,
            client=ClientTurn(asked.run_id, tuple(each.id for each in said if _is_input(each)), asked.state),
        )

    async def _check_results(self, new: Sequence[tuple[int, ag_ui.AgUiMessage]], thread_id: str) -> None:
        """Raises `ApiError` 400 for the result of a call that no turn of this thread has made."""
        called = {
            call.id
            for _, message in new
            if isinstance(message, ag_ui.AssistantMessage)
            for call in message.tool_calls or ()
        }
        for index, message in new:
            if not isinstance(message, ag_ui.ToolMessage) or message.tool_call_id in called:
                continue
            try:
                run = await self._journal.get(calling_run(message.tool_call_id))
            except RunNotFound:
                run = None
            if run is None or run.new.session != thread_id:
                param = f"messages[{index}].toolCallId"
                raise ApiError(400, f"{param}: no call of this thread waits for this result", param=param)

    # ── approvals ────────────────────────────────────────────────────────────────────────────────────────────

    async def _resumed(self, asked: ag_ui.RunAgentInput, caller: Identity) -> tuple[Run, Stretch] | None:
        """Answers the approvals that are still open, and returns the run that goes on. None where a new message takes
        its place. An approval that another surface or its timeout has answered meanwhile keeps that answer."""
        newest, seq, answers = None, 0, list[tuple[Run, str, Decision, str]]()
        for index, entry in enumerate(asked.resume or ()):
            run, approval = await self._interrupted(entry, f"resume[{index}]", asked.thread_id, caller)
            decision = ag_ui.decision_of(entry, f"resume[{index}]")
            if approval.is_open and run.state not in ENDED:
                answers.append((run, approval.id, decision, ag_ui.denial_reason(entry)))
            if newest is None or (run.id, approval.seq) > (newest.id, seq):
                newest, seq = run, approval.seq
        if newest is None:
            return None
        goes_on = not _has_more(asked.messages, newest)
        if not goes_on and any(decision != "deny" for _, _, decision, _ in answers):
            problem = "send the new message after the run that goes on with this answer has finished"
            raise ApiError(400, f"resume: {problem}", param="resume")
        for run, approval_id, decision, reason in answers:
            await self._conversations.answer(run, approval_id, decision, caller, reason)
        return (newest, Stretch(seq, seq)) if goes_on else None

    async def _interrupted(
        self, entry: ag_ui.ResumeEntry, where: str, thread_id: str, caller: Identity
    ) -> tuple[Run, Approval]:
        """The run that an interrupt is of, and its approval. Raises `ApiError` 404, 403 (J110)."""
        run_id, approval_id = run_and_approval(entry.interrupt_id) or ("", "")
        with suppress(RunNotFound):
            run = await self._journal.get(run_id)
            if run.new.session == thread_id:
                approval = (await self._conversations.approvals(run, caller)).get(approval_id)
                if approval is not None:
                    return run, approval
        raise ApiError(404, f"{where}.interruptId: this thread has no such interrupt", param=f"{where}.interruptId")

    # ── the stream ───────────────────────────────────────────────────────────────────────────────────────────

    async def _stream(self, request: web.Request, viewed: Viewed) -> web.StreamResponse:
        run = viewed.run
        if run is None:
            return await self._pipeline.stream(request).end(opened_thread(viewed.view))
        encoder = AgUiEncoder(
            run.id,
            viewed.view,
            stretch=viewed.stretch,
            foreign=client_thread.foreign_names(run),
            counts_cache_apart=Costs(self._app.config).counts_cached_beside,
        )
        stream = self._pipeline.stream(request, error_frame=encoder.failure, run_id=run.id)
        stream.begin()
        if run.first_seq > 1:  # its chunks are no longer kept, and the facts have all that they said
            return await stream.end(encoder.feed(await self._journal.facts(run.id)))
        async with aclosing(follow_pages(self._journal, run.id)) as pages:
            async for page in pages:
                data = encoder.feed(page.entries)
                del page  # none is held while the client's socket takes no more (L141)
                await stream.send_pieces(data)
                if encoder.ended:
                    return await stream.end()
                await stream.caught_up()
        raise ApiError(
            503, "the server is stopping; the run goes on: send the same runId again", code="server_stopping"
        )


def _last_event(request: web.Request) -> tuple[int, int] | None:
    """The event that the client has; None where it names none. Raises `ApiError` 400."""
    if not (given := request.headers.get("Last-Event-ID", "").strip()):
        return None
    if (found := _EVENT_ID.fullmatch(given)) is None:
        raise ApiError(400, "Last-Event-ID is not the id of an event of this stream", param="Last-Event-ID")
    return int(found[1]), int(found[2])


def _same_question(run: Run, asked: ag_ui.RunAgentInput) -> Run:
    """The run that has this `runId`. Raises `ApiError` 409 where it answers another message."""
    inputs = [message.id for message in asked.messages if _is_input(message)]
    if inputs and inputs[-1] not in client_thread.question_ids(run):
        problem = "was used for another message of this thread; each run needs a new one"
        raise ApiError(409, f"runId: {asked.run_id[:80]!r} {problem}", param="runId")
    return run


def _only_watches(asked: ag_ui.RunAgentInput, place: client_thread.ThreadPlace) -> bool:
    """Whether the list says nothing new: the thread has all of it, or is at it. A client that lost its connection asks
    so, and must not be answered twice."""
    if place.repeated is None:
        return False
    if place.asks_again:
        return place.repeated.state not in ENDED
    return not _said(asked.messages[place.new_from :])


def _said(
    messages: Iterable[ag_ui.AgUiMessage],
) -> list[ag_ui.UserMessage | ag_ui.ToolMessage | ag_ui.AssistantMessage]:
    """The conversation among these messages."""
    return [
        message
        for message in messages
        if isinstance(message, ag_ui.UserMessage | ag_ui.ToolMessage | ag_ui.AssistantMessage)
    ]


def _is_input(message: ag_ui.AgUiMessage) -> bool:
    return isinstance(message, ag_ui.UserMessage | ag_ui.ToolMessage)


def _after_last_answer(messages: Sequence[tuple[int, ag_ui.AgUiMessage]]) -> list[tuple[int, ag_ui.AgUiMessage]]:
    answers = [place for place, (_, message) in enumerate(messages) if isinstance(message, ag_ui.AssistantMessage)]
    return [*messages[answers[-1] + 1 if answers else 0 :]]


def _has_more(messages: Sequence[ag_ui.AgUiMessage], run: Run) -> bool:
    """Whether the client says something new after this run's messages."""
    known = client_thread.question_ids(run)
    for message in reversed(messages):
        if message.id in known or client_thread.run_of_message(message.id) == run.id:
            return False
        if _is_input(message):
            return True
    return False


def routes(pipeline: RequestPipeline) -> Sequence[Route]:
    return (
        Route(
            "POST",
            "/ag-ui",
            AgUi(pipeline).run,
            "runs",
            headers={"Last-Event-ID": "The last event that the client has of this run."},
            body=ag_ui.RunAgentInput,
            streams=True,
            errors=(404, 409, 413),
        ),
    )
