"""A node that is told to end hands its runs over: another goes on at once, and viewers there miss nothing (L171)."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cluster.conversing import TEXT, TOOL, ConversingProvider
from cluster.nodes import ON_SQLITE, WITHOUT_REDIS, Cluster, SharedStore, has_ended, text_of, watching
from tailrace.events import AttemptStarted

LONG_LEASE_S = 60.0  # whoever waits for it fails the test


@WITHOUT_REDIS
async def test_L171_what_a_node_executes_goes_on_elsewhere_at_once(
    tmp_path: Path, store: SharedStore, node_count: int
) -> None:
    async with (
        ConversingProvider("sleep 600") as provider,
        Cluster(tmp_path, store, provider.openai_url, lease_s=LONG_LEASE_S) as cluster,
    ):
        leaving, *others = await cluster.start_many(node_count)
        turn, tool = await cluster.run(leaving, "Count."), await cluster.run(leaving, TOOL)
        body = {"model": "fake/any", "input": "Count.", "background": True, "store": True}
        await cluster.post(leaving, "/v1/responses", body)
        response = (await cluster.get(leaving, "/runs?kind=call&limit=1"))["data"][0]["id"]
        viewer = others[-1]
        async with (
            watching(cluster, leaving, turn) as of_turn_there,  # a request in flight: it may end
            watching(cluster, viewer, turn) as of_turn,
            watching(cluster, viewer, tool) as of_tool,
            watching(cluster, viewer, response) as of_response,
        ):
            await of_turn(lambda seen: len(text_of(seen)) > 40)
            await of_tool(lambda seen: any(event.type == "tool_call_chunk" for event in seen))
            began = asyncio.get_running_loop().time()
            assert await leaving.stop() == 0
            for until in (of_turn_there, of_turn, of_tool, of_response):
                seen = await until(has_ended)
                assert [event.seq for event in seen] == [*range(1, len(seen) + 1)]
                assert (seen[-1]["status"], text_of(seen)[-len(TEXT) :]) == ("completed", TEXT)
            assert asyncio.get_running_loop().time() - began < LONG_LEASE_S / 2


@WITHOUT_REDIS
async def test_L171_runs_are_shared_by_the_nodes_that_stay(tmp_path: Path, store: SharedStore) -> None:
    async with (
        ConversingProvider("sleep 600", pace_s=0.2) as provider,
        Cluster(tmp_path, store, provider.openai_url, lease_s=LONG_LEASE_S) as cluster,
    ):
        leaving, *others = await cluster.start_many(3)
        runs = [await cluster.run(leaving, "Count.") for _ in range(16)]
        assert await leaving.stop() == 0
        for other in others:
            await other.logged("going on with run")
        async with cluster.journal() as journal:
            for run_id in runs:
                attempts = 0
                async for batch in journal.tail(run_id):
                    attempts += sum(isinstance(entry.event, AttemptStarted) for entry in batch)
                    if attempts >= 2:
                        break
            owners = [(await journal.get(run_id)).owner.split(":")[1] for run_id in runs]
    assert set(owners) <= {str(other.pid) for other in others}
    assert min(owners.count(str(other.pid)) for other in others) >= 2, "not all by the first one that looks"


@ON_SQLITE
async def test_L171_the_last_node_lets_its_runs_end(tmp_path: Path, store: SharedStore) -> None:
    async with ConversingProvider() as provider, Cluster(tmp_path, store, provider.openai_url) as cluster:
        node = await cluster.start()
        run_id = await cluster.run(node, "Count.")
        await provider.request()
        assert await node.stop() == 0
        async with cluster.journal() as journal:
            run = await journal.get(run_id)
    assert run.finished is not None
    assert (run.state, run.finished.output) == ("completed", TEXT)
