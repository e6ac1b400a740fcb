"""`/runs/{id}/timeline` and `/runs/{id}/export`: what happened in a run, when and for how long; for programs,
and as one HTML file for people."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from aiohttp import web

from tailrace.app.timeline import Timeline
from tailrace.app.timeline.export_html import read_export
from tailrace.app.timeline.read import read_timeline
from tailrace.config.presets import provider_dialects
from tailrace.flows.definition.public_ids import run_id_of
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import query_of
from tailrace.server.http.route import TEXT, Route, json_response
from tailrace.server.routes.runs_schemas import RunQuery

# A browser that shows the file instead of saving it runs none of its scripts with this server's rights (J123).
_HEADERS: Final = {"Content-Security-Policy": "sandbox", "X-Content-Type-Options": "nosniff"}


class RunTimelines:
    """The handlers. Every kind of run has a timeline: turns, raw calls, stored responses, instances of sequences."""

    def __init__(self, pipeline: RequestPipeline) -> None:
        self._journal = pipeline.app.journal
        self._dialects = provider_dialects(pipeline.app.config)

    async def show(self, request: web.Request) -> web.Response:
        """The timeline of a run: its attempts, texts, tools, approvals and notices, with their times."""
        query = query_of(request, RunQuery)
        timeline = await read_timeline(
            self._journal, run_id_of(request.match_info["id"]), reasoning=query.reasoning, dialects=self._dialects
        )
        return json_response(timeline)

    async def export(self, request: web.Request) -> web.Response:
        """The run as one HTML file that needs nothing else: its timeline, and a replay of what its viewers saw."""
        query, run_id = query_of(request, RunQuery), request.match_info["id"]
        page = await read_export(self._journal, run_id_of(run_id), reasoning=query.reasoning, dialects=self._dialects)
        headers = {"Content-Disposition": f'attachment; filename="{_file_name(run_id)}"', **_HEADERS}
        return web.Response(text=page, content_type="text/html", charset="utf-8", headers=headers)


def _file_name(run_id: str) -> str:
    return "".join(char if char.isalnum() or char in "-_" else "_" for char in run_id) + ".html"


def routes(pipeline: RequestPipeline) -> Sequence[Route]:
    api, route = RunTimelines(pipeline), partial(Route, access="runs")
    return (
        route("GET", "/runs/{id}/timeline", api.show, query=RunQuery, answer=Timeline, errors=(404,)),
        route(
            "GET", "/runs/{id}/export", api.export, query=RunQuery, answer=TEXT, media_type="text/html", errors=(404,)
        ),
    )
