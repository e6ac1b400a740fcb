"""The operator's page is over all nodes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from cluster.conversing import ConversingProvider
from cluster.nodes import PATIENCE_S, WITHOUT_REDIS, Cluster, Node, SharedStore, has_ended, watching


async def seen(cluster: Cluster, node: Node, processes: int) -> dict[str, Any]:
    """What the node answers once it knows of so many processes that answer: it looks for them at each heartbeat."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            ops = await cluster.get(node, "/ops")
            if sum(found["report"] is not None for found in ops["nodes"]) == processes == len(ops["nodes"]):
                return ops


@WITHOUT_REDIS
async def test_every_node_tells_of_every_process_and_of_what_all_have_called(
    tmp_path: Path, store: SharedStore
) -> None:
    async with ConversingProvider(stalls=1) as provider, Cluster(tmp_path, store, provider.openai_url) as cluster:
        first, second = await cluster.start_many(2)
        waits = await cluster.run(first, "Wait.")
        async with watching(cluster, second, waits) as until:
            await until(lambda events: any(event.type == "message_chunk" for event in events))
            done = await cluster.run(second, "Go.")
            async with watching(cluster, first, done) as until_done:
                await until_done(has_ended)
            for node in (first, second):
                ops = await seen(cluster, node, 2)
                assert {found["report"]["pid"] for found in ops["nodes"]} == {first.pid, second.pid}
                [live] = ops["live"]
                assert live["id"] == waits
                [owner] = [found for found in ops["nodes"] if found["owner"] == live["owner"]]
                assert (owner["report"]["pid"], owner["report"]["running"]) == (first.pid, 1)
                [asked] = [one for one in ops["providers"] if one["name"] == "fake"]
                assert (asked["calls"], asked["failed"]) == (1, 0), "by the second node"
            await cluster.post(second, f"/runs/{waits}/stop", {})
            await until(has_ended)
        await second.kill()
        cluster.nodes.remove(second)
        ops = await seen(cluster, first, 1)
        assert [found["report"]["pid"] for found in ops["nodes"]] == [first.pid]
