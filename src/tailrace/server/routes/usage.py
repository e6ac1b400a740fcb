"""`GET /usage`: what was used, by key, model and day."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from aiohttp import web
from msgspec import Meta

from tailrace.app.usage.counters import UsageRow, summed
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import IDENTITY, query_of
from tailrace.server.http.route import Route, json_response
from tailrace.server.metrics.call_metrics import count_usage

Day = Annotated[str, Meta(pattern=r"^\d{4}-\d{2}-\d{2}$", description="a day as 2026-11-30")]


class UsageQuery(msgspec.Struct):
    """`since`: the first day; today where it is left out. Without `by`, a row for each day, key and model."""

    since: Day | None = None
    by: Literal["day", "key", "model"] | None = None


class UsageList(msgspec.Struct, frozen=True):
    since: str
    data: tuple[UsageRow, ...]


def routes(pipeline: RequestPipeline) -> Sequence[Route]:
    usage = pipeline.app.usage
    usage.on_spent = count_usage(pipeline.metrics)
    usage.on_priced = lambda key, usd: pipeline.metrics.spent_usd.inc(key, by=usd)

    async def show(request: web.Request) -> web.Response:
        """Tokens, calls and money by day (of UTC), key and model. A key sees its own, an admin's all."""
        query, caller = query_of(request, UsageQuery), request[IDENTITY]
        since = query.since or usage.today()
        rows = await usage.rows(since, None if "admin" in caller.scopes else caller.name)
        return json_response(UsageList(since, tuple(rows if query.by is None else summed(rows, query.by))))

    return (Route("GET", "/usage", show, "any", query=UsageQuery, answer=UsageList),)
