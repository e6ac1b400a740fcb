"""A run is forked on any node, whichever executes it; a fork whose node dies goes on like any other run."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cluster.conversing import TEXT, ConversingProvider
from cluster.nodes import WITHOUT_REDIS, Cluster, SharedStore, events, has_ended, text_of, watching


@WITHOUT_REDIS
async def test_a_fork_of_another_node_s_run_outlives_the_node_that_made_it(
    tmp_path: Path, store: SharedStore, node_count: int
) -> None:
    """The first node executes the run, whose answer has stalled. The second forks it and is killed right after it has
    said so. The third goes on with the fork."""
    async with ConversingProvider(stalls=1) as provider, Cluster(tmp_path, store, provider.openai_url) as cluster:
        owner, forking, third = await cluster.start_many(node_count)
        run_id = await cluster.run(owner, "Count.")
        async with watching(cluster, third, run_id) as until:
            seen = await until(lambda seen: len(text_of(seen)) > 40)
        after = seen[-1].seq
        made = await cluster.post(forking, f"/runs/{run_id}/fork", {"after": after, "input": "Begin again."})
        await forking.kill()
        cluster.nodes.remove(forking)
        async with watching(cluster, third, made["id"]) as until:
            fork = await until(has_ended)
        source = await cluster.get(third, f"/runs/{run_id}")
        asked = provider.requests[-1].json()["messages"]
        await cluster.post(third, f"/runs/{run_id}/stop", {})
    assert [event.seq for event in fork] == [*range(1, len(fork) + 1)]
    assert [event["run_id"] for event in fork if event.type == "run_forked"] == [run_id]
    assert (text_of(fork), fork[-1]["status"]) == (TEXT, "completed")
    assert made["forked_from"] == {"run_id": run_id, "after": after}
    assert source["status"] == "running", "the other run is not disturbed"
    said = [message["content"] for message in asked if message["role"] in ("user", "assistant")]
    assert said[0] == "Count."
    assert TEXT.startswith(said[1].rstrip())
    assert "Begin again." in said


@WITHOUT_REDIS
async def test_one_key_makes_one_fork_on_every_node(tmp_path: Path, store: SharedStore, node_count: int) -> None:
    async with ConversingProvider(pace_s=0.0) as provider, Cluster(tmp_path, store, provider.openai_url) as cluster:
        nodes = await cluster.start_many(node_count)
        run_id = await cluster.run(nodes[0], "Go.")
        source = [event async for event in events(cluster, nodes[0], f"/runs/{run_id}/stream")]
        body = {"after": source[-1].seq, "input": "More.", "idempotency_key": "k"}
        made = await asyncio.gather(*(cluster.post(node, f"/runs/{run_id}/fork", body) for node in nodes * 2))
        [fork_id] = {each["id"] for each in made}
        seen = [event async for event in events(cluster, nodes[-1], f"/runs/{fork_id}/stream")]
    assert len({each["session"] for each in made}) == 1
    assert (has_ended(seen), text_of(seen), len(provider.requests)) == (True, TEXT, 2)
