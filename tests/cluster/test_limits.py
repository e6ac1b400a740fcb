"""The limits of a key hold over all nodes together."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cluster.conversing import ConversingProvider
from cluster.nodes import WITHOUT_REDIS, Cluster, Node, SharedStore
from tailrace.app.usage.counters import DETAILS, rows_of

LIMIT = 12
KEYS = f"{{name: ci, key_env: CI_KEY, requests_per_minute: {LIMIT}, tokens_per_day: 1000000}}"
BODY = {"model": "fake/any", "messages": [{"role": "user", "content": "Go."}]}


@WITHOUT_REDIS
async def test_requests_at_once_to_every_node_pass_exactly_as_often_as_the_key_may(
    tmp_path: Path, store: SharedStore, node_count: int
) -> None:
    environment = {"CI_KEY": "a-key-for-tests"}
    async with (
        ConversingProvider() as provider,
        Cluster(tmp_path, store, provider.openai_url, keys=KEYS, environment=environment) as cluster,
    ):
        nodes = await cluster.start_many(node_count)

        async def ask(node: Node) -> tuple[int, float]:
            """The status, and when the minute is over in which it was counted."""
            headers = {"Authorization": "Bearer a-key-for-tests"}
            async with cluster.client.post(node.url + "/v1/chat/completions", json=BODY, headers=headers) as response:
                wait = response.headers.get("Retry-After") or response.headers["x-ratelimit-reset-requests"][:-1]
                return response.status, float(wait)

        answers = await asyncio.gather(*(ask(node) for node in nodes * 8))
        if max(wait for _, wait in answers) - min(wait for _, wait in answers) < 30:  # all in one minute of the clock
            assert sorted(status for status, _ in answers) == [200] * LIMIT + [429] * (8 * node_count - LIMIT)
        assert [await node.stop() for node in nodes] == [0] * node_count
        async with cluster.journal() as journal:
            [row] = rows_of(await journal.counters(DETAILS))
        cluster.nodes.clear()
        assert (row.key, row.model, row.calls) == ("ci", "fake/any", sum(status == 200 for status, _ in answers))
