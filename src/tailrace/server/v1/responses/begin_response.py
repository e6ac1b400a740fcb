"""From a client's request for a response to its run, for every transport.

Owns what a response is begun from: the stored items that the request refers to, what was said before it, its run.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final, TypeAlias

import msgspec
from aiohttp import web

from tailrace.agent.service import AgentService
from tailrace.agent.session import TURN_KIND
from tailrace.calls.call_log import RoutedRequest
from tailrace.calls.raw_model import params_left_out
from tailrace.calls.service import CallService, CallSpec
from tailrace.errors import SteerRefused
from tailrace.events import SteerSoFar
from tailrace.messages import JsonObject, Message, ToolResult
from tailrace.ports import ENDED, Run
from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.auth import Identity
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import IDENTITY
from tailrace.server.http.session_access import check_session
from tailrace.server.v1.answer_route import require_agent
from tailrace.server.v1.client_call import forwarded_headers, set_ignored_header
from tailrace.server.v1.model_target import (
    agent_dialect,
    is_agent,
    provider_dialect,
    require_model,
    turn_spec,
    with_turns_own_calls,
)
from tailrace.server.v1.responses.responses_request import ResponsesRequest, refers_to_items
from tailrace.server.v1.responses.stored_response import (
    Origin,
    history_after,
    history_in,
    response_run,
    with_referenced_items,
)
from tailrace.wire.client_request import ClientRequest
from tailrace.wire.dialects import RESPONSES

Messages: TypeAlias = tuple[Message, ...]
Local: TypeAlias = Mapping[str, Messages | None]
NOT_LOCAL: Final[Local] = {}


class ResponseRuns:
    """The runs behind responses."""

    def __init__(self, pipeline: RequestPipeline) -> None:
        self._pipeline = pipeline
        self._app = pipeline.app
        self.journal = pipeline.app.journal

    async def parse(self, request: web.Request, body: JsonObject) -> ResponsesRequest:
        """The request, with the stored items that it refers to. Raises `InvalidRequest` and `ApiError`."""
        body = {"input": [], **body}
        if refers_to_items(body):
            knows = provider_dialect(self._app, body.get("model")) == RESPONSES.name
            items = await with_referenced_items(self.journal, body["input"], request[IDENTITY], provider_knows=knows)
            body = {**body, "input": items}
        asked = ResponsesRequest.of(body, forwarded_headers(request, RESPONSES))
        check_session(asked.session, request[IDENTITY], "conversation")
        return asked

    async def history(self, request: web.Request, asked: ResponsesRequest, local: Local = NOT_LOCAL) -> Messages:
        """What was said before the request, once its caller may ask for it. `local`: what the connection knows of
        responses that are not stored. Raises `ApiError`."""
        if is_agent(self._app, asked.client_request):
            require_agent(request)
        require_model(self._app, asked.model, request[IDENTITY])
        history = await self.said_before(asked, request[IDENTITY], local)
        if not history and not asked.body["input"]:
            raise ApiError(400, "input is empty", param="input")
        return history

    async def said_before(self, asked: ResponsesRequest, caller: Identity, local: Local = NOT_LOCAL) -> Messages:
        if (previous := asked.previous_response_id) and (known := local.get(previous)) is not None:
            return known
        if previous:
            run = await response_run(self.journal, previous, caller, "previous_response_id", local)
            if run.state not in ENDED:
                raise ApiError(409, "the previous response has not ended", param="previous_response_id")
            return await history_after(self.journal, run)
        return await history_in(self.journal, asked.session, caller) if asked.session else ()

    async def begin(
        self, request: web.Request, asked: ResponsesRequest, history: Messages, *, over_socket: bool = False
    ) -> Run:
        """The run, once it is recorded (shielded: a disconnect does not undo it), or where its client sees nothing but
        what it logs. One that is not stored has no place in a conversation, and a raw call of that kind is in memory
        until its end."""
        client_request, requester = asked.client_request, request[IDENTITY].name
        routes = () if is_agent(self._app, client_request) else self._app.raw_routes(client_request)
        first = routes[0] if routes else None
        origin = msgspec.to_builtins(
            Origin(
                model=asked.model,
                source=agent_dialect(self._app).name if first is None else first.provider.dialect,
                fields=asked.echoed,
                input=tuple(asked.items),
                background=asked.background,
                reasoning=client_request.reasoning or self._app.config.agent.show_reasoning,
                owner=requester,
                state=asked.state,
                steered=over_socket and first is None,
                local=not asked.is_stored,
            )
        )
        durability, session = self._app.config.store.durability, asked.session if asked.is_stored else ""
        at_once = asked.stream and not (asked.background or over_socket or session or self._pipeline.storage_failed)
        if first is None:
            client_request = await with_turns_own_calls(self._app, client_request, request[IDENTITY])
        if asked.previous_response_id:
            _check_results(history, client_request)
        if first is None:
            spec = turn_spec(self._app, client_request, requester=requester, history=history, origin=origin)
            set_ignored_header(request, spec.ignored)
            spec = msgspec.structs.replace(spec, busy="queue")
            begun = self._app.agents.begin(spec, durability) if at_once else None
            submit = partial(self._app.agents.submit, spec)
        else:
            ignored = params_left_out(first, client_request)
            set_ignored_header(request, ignored)
            call = CallSpec(asked.body, history, origin, client_request.headers, ignored)
            durability = durability if asked.is_stored else "memory"
            routed = RoutedRequest(client_request, routes, ignored)
            begun = self._app.calls.begin(call, asked.model, durability, routed) if at_once else None
            submit = partial(self._app.calls.submit, call, model=asked.model, routed=routed)
        if begun is not None:
            return begun
        return await self._pipeline.begin_run(submit(session=session, durability=durability))

    def ends_for_steers(self, asked: ResponsesRequest) -> bool:
        """Whether a steer may end the response at the end of an item. A stored response goes on to its end."""
        return not asked.is_stored and not is_agent(self._app, asked.client_request)

    async def steer_turn(self, run: Run, given: str | list[JsonObject], caller: Identity) -> SteerSoFar | None:
        """The input for a turn that is under way; None for a raw call, and for a turn that has ended. Raises `ApiError`
        where the turn takes no further one."""
        if run.new.kind != TURN_KIND:
            return None
        asked = RESPONSES.parse_client_request({"model": "-", "input": given}).request.messages
        message = Message("user", tuple(part for each in asked for part in each.parts))
        try:
            return await self._app.steering.steer(run.id, message, by=caller.name)
        except SteerRefused as exc:
            if exc.code == "not_steerable":
                return None
            if exc.code == "too_many_steers":
                raise ApiError(409, str(exc), code="too_many_pending_steers") from exc
            raise

    async def stop(self, run: Run, by: str = "") -> None:
        await self.service_of(run).stop(run.id, by=by)

    def service_of(self, run: Run) -> AgentService | CallService:
        return self._app.agents if run.new.kind == TURN_KIND else self._app.calls


def _check_results(history: Messages, client_request: ClientRequest) -> None:
    """Raises `ApiError` 400 for the result of a call that was not made: as OpenAI's API does, for every provider."""
    messages = client_request.request.messages
    called = {call.id for message in (*history, *messages) for call in message.tool_calls}
    for message in messages if not client_request.opaque_at else ():
        for part in message.parts:
            if isinstance(part, ToolResult) and part.call_id not in called:
                text = f"No tool call found for function call output with call_id {part.call_id[:80]}."
                raise ApiError(400, text, param="input")
