"""`POST /v1/responses/compact`: a conversation as one compaction item, for a request that goes on from it.

The provider's own compaction where it has one; elsewhere the summary that the agent makes of a long history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Final

from aiohttp import web
from msgspec.structs import replace

from tailrace.agent.context import SUMMARY_HEADING, SUMMARY_PROMPT, repaired
from tailrace.app.models import named
from tailrace.calls.raw_model import with_history
from tailrace.errors import ProviderError, Rejected
from tailrace.messages import JsonObject, ModelRequest
from tailrace.providers.attempt import Route as ProviderRoute
from tailrace.providers.call_listener import AttemptOutcome, CallListener
from tailrace.providers.deadlines import AttemptDeadlines, DeadlineWatch, deadlines_of
from tailrace.providers.http.provider import HttpProvider
from tailrace.runs.recovery import finished
from tailrace.server.http.api_errors import failed_run_error
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import read_object
from tailrace.server.http.route import OBJECTS, TEXT, Route, json_response, object_schema
from tailrace.server.v1.client_call import answer_id, forwarded_headers
from tailrace.server.v1.model_target import agent_dialect, is_agent
from tailrace.server.v1.responses.begin_response import Messages, ResponseRuns
from tailrace.server.v1.responses.responses_request import ResponsesRequest
from tailrace.wire.dialects import RESPONSES
from tailrace.wire.responses.compaction import compaction_item
from tailrace.wire.responses.completion import usage_of
from tailrace.wire.responses.provider_request import encode_request
from tailrace.wire.responses.response_fields import usage_body

PATH: Final = "/v1/responses/compact"
_NO_SUCH_ROUTE: Final = (404, 405, 501)
_OURS: Final = ("previous_response_id", "conversation", "store", "stream")
_BODY: Final = object_schema({"model": TEXT}, {"input": {"oneOf": [TEXT, OBJECTS]}}, additionalProperties=True)
_ANSWER: Final = object_schema(
    {
        "id": TEXT,
        "object": {"const": "response.compaction"},
        "created_at": {"type": "integer"},
        "output": OBJECTS,
        "usage": {"type": "object"},
    },
    additionalProperties=True,
)


class Compaction:
    """The handler."""

    def __init__(self, pipeline: RequestPipeline) -> None:
        self._pipeline = pipeline
        self._app = pipeline.app
        self._runs = ResponseRuns(pipeline)

    async def compact(self, request: web.Request) -> web.Response:
        """A conversation as one item."""
        asked = await self._runs.parse(request, await read_object(request))
        history = await self._runs.history(request, asked)
        if (own := await self._by_provider(request, asked, history)) is not None:
            return json_response(own)
        return json_response(await self._by_summary(request, asked, history))

    async def _by_provider(self, request: web.Request, asked: ResponsesRequest, history: Messages) -> JsonObject | None:
        """What the provider's own route makes of the conversation; None where it has none."""
        client_request = asked.client_request
        if is_agent(self._app, client_request):
            return None
        route = self._app.models.routes(named(self._app.config, asked.model))[0]
        if route.provider.dialect != RESPONSES.name or not isinstance(route.provider, HttpProvider):
            return None
        body = {name: value for name, value in client_request.body.items() if name not in _OURS}
        if history:
            body["input"] = encode_request(with_history(history, client_request.request), stream=False)["input"]
        headers = forwarded_headers(request, RESPONSES)
        try:
            return await self._asked(route, route.provider, {**body, "model": route.model}, headers)
        except Rejected as exc:
            if exc.status not in _NO_SUCH_ROUTE:
                raise
            return None

    async def _asked(
        self, route: ProviderRoute, provider: HttpProvider, body: JsonObject, headers: Mapping[str, str]
    ) -> JsonObject:
        """The provider's own compaction, asked for once: clients retry by themselves. Raises `ProviderError`."""
        caller, about = self._app.caller, ModelRequest(route.model, ())
        listener = caller.watched(about, (route,), CallListener())
        total_s = deadlines_of(route.policy, purpose="turn", context_tokens=0, local=route.local).total_s
        outcome = AttemptOutcome(1, provider.name, route.model)
        async with caller.entrance(about, (route,)) or nullcontext():
            listener.attempt_started(1, outcome.provider, outcome.model)
            try:
                with DeadlineWatch(AttemptDeadlines(total_s=total_s), provider=provider.name):
                    answer = await provider.relay("/responses/compact", body, headers)
                outcome = replace(outcome, usage=usage_of(answer.get("usage")))
            except ProviderError as exc:
                exc.__traceback__ = None  # the outcome holds it, and its frames hold the outcome
                outcome = replace(outcome, error=exc)
                raise
            except asyncio.CancelledError:
                outcome = replace(outcome, interrupted=True)
                raise
            finally:
                listener.attempt_ended(outcome)
        return answer

    async def _by_summary(self, request: web.Request, asked: ResponsesRequest, history: Messages) -> JsonObject:
        """The run is a raw call of its own, whose answer is the summary. Raises `ApiError` where it fails."""
        agent, fields = is_agent(self._app, asked.client_request), asked.client_request.request
        model = f"{self._app.config.model.provider}/{self._app.config.model.name}" if agent else asked.model
        prompt = f"{SUMMARY_PROMPT}\n{fields.system}" if fields.system else SUMMARY_PROMPT
        question = ResponsesRequest.of({"model": model, "input": prompt, "store": False}, {})
        run = await self._runs.begin(request, question, repaired((*history, *fields.messages)))
        try:
            ended = await finished(self._runs.journal, run.id)
        except asyncio.CancelledError:
            await self._pipeline.run_to_end(self._runs.stop(run))
            raise
        if ended.status != "completed":
            raise failed_run_error(ended)
        key = run.id.removeprefix("run_")
        return {
            "id": answer_id(RESPONSES, run.id),
            "object": "response.compaction",
            "created_at": int(run.created_at),
            "output": [compaction_item(f"cmp_{key}", SUMMARY_HEADING + ended.output.strip())],
            "usage": usage_body(ended.usage, agent_dialect(self._app)),
        }


def routes(pipeline: RequestPipeline) -> Sequence[Route]:
    compact, errors = Compaction(pipeline).compact, (404, 408, 409, 413, 422, 429, 502, 504)
    return (Route("POST", PATH, compact, "models", body=_BODY, answer=_ANSWER, errors=errors),)
