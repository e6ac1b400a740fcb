"""`/runs/{id}/timeline`: what happened in a run, when and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from aiohttp import web

from tailrace.app.provider_dialects import provider_dialects
from tailrace.runs.timeline import Timeline
from tailrace.runs.timeline.read import read_timeline
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import query_of
from tailrace.server.http.route import Route, json_response
from tailrace.server.routes.runs_schemas import RunQuery


class RunTimelines:
    """The handlers. Every kind of run has a timeline: turns, raw calls, stored responses, instances of sequences."""

    def __init__(self, pipeline: RequestPipeline) -> None:
        self._journal = pipeline.app.journal
        self._dialects = provider_dialects(pipeline.app.config)

    async def show(self, request: web.Request) -> web.Response:
        """The timeline of a run: its attempts, texts, tools, approvals and notices, with their times."""
        query = query_of(request, RunQuery)
        timeline = await read_timeline(
            self._journal, request.match_info["id"], reasoning=query.reasoning, dialects=self._dialects
        )
        return json_response(timeline)


def routes(pipeline: RequestPipeline) -> Sequence[Route]:
    api, route = RunTimelines(pipeline), partial(Route, access="runs")
    return (route("GET", "/runs/{id}/timeline", api.show, query=RunQuery, answer=Timeline, errors=(404,)),)
