"""A session has one turn at a time, whichever nodes its messages reach; signals, keys and viewers work anywhere."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path

from cluster.conversing import TEXT, ConversingProvider
from cluster.nodes import (
    ON_POSTGRES,
    PATIENCE_S,
    WITHOUT_REDIS,
    Cluster,
    SeenEvent,
    SharedStore,
    events,
    has_ended,
    text_of,
    watching,
)
from tailrace.testing.provider import Reply, Scenario, call, reply
from tailrace.testing.scripted.request_reader import ScriptedRequest

ROUNDS = 8
SEEN_LATE_S = 0.05  # a closed connection is closed on its process's next round of the loop: an answer takes 0.8 s


@WITHOUT_REDIS
async def test_I101_messages_at_once_to_one_session_through_different_nodes_run_one_at_a_time(
    tmp_path: Path, store: SharedStore, node_count: int
) -> None:
    """Each interrupts the one before it; the last one runs to its end."""
    async with ConversingProvider() as provider, Cluster(tmp_path, store, provider.openai_url) as cluster:
        nodes = await cluster.start_many(node_count)
        for number in range(ROUNDS):
            begun = len(provider.requests)
            ask = [cluster.run(node, f"Question {name}.", session=f"s{number}") for name, node in enumerate(nodes * 2)]
            runs = sorted(await asyncio.gather(*ask))
            logs = [[event async for event in events(cluster, nodes[0], f"/runs/{run_id}/stream")] for run_id in runs]
            ends = [seen[-1] for seen in logs]
            assert [end["status"] for end in ends] == ["stopped"] * (len(runs) - 1) + ["completed"]
            assert ends[-1]["output"] == TEXT
            asked = provider.requests[begun:]
            for request in asked:
                await request.over.wait()
            times = sorted((each.received_at, each.disconnected_at or each.finished_at or 0.0) for each in asked)
            for (_, before_ended), (began, _) in pairwise(times):
                assert before_ended <= began + SEEN_LATE_S, "two turns of one session ran side by side"
            history = [message["content"] for message in asked[-1].json()["messages"] if message["role"] == "user"]
            assert sorted(history) == sorted(f"Question {name}." for name in range(len(runs)))


@WITHOUT_REDIS
async def test_an_idempotency_key_is_one_run_on_every_node(tmp_path: Path, store: SharedStore, node_count: int) -> None:
    async with ConversingProvider(pace_s=0.0) as provider, Cluster(tmp_path, store, provider.openai_url) as cluster:
        nodes = await cluster.start_many(node_count)
        runs = await asyncio.gather(*(cluster.run(node, "Go.", idempotency_key="k") for node in nodes * 4))
        [run_id] = set(runs)
        seen = [event async for event in events(cluster, nodes[-1], f"/runs/{run_id}/stream")]
    assert (has_ended(seen), text_of(seen), len(provider.requests)) == (True, TEXT, 1)


async def test_I104_a_viewer_that_moves_from_node_to_node_sees_each_event_once(
    tmp_path: Path, store: SharedStore, node_count: int
) -> None:
    """A node that has not read so far yet waits for the entry at the cursor."""
    async with ConversingProvider() as provider, Cluster(tmp_path, store, provider.openai_url) as cluster:
        nodes = await cluster.start_many(node_count)
        run_id = await cluster.run(nodes[0], "Count.")
        seen: list[SeenEvent] = []
        number = 0
        while not has_ended(seen):
            number += 1
            node = nodes[number % node_count]
            async for event in events(cluster, node, f"/runs/{run_id}/stream?after={len(seen)}"):
                seen.append(event)
                if len(seen) % 3 == 0:
                    break
    assert [event.seq for event in seen] == [*range(1, len(seen) + 1)]
    assert text_of(seen) == TEXT
    assert number > 5


class Asking(ConversingProvider):
    """Asks for what needs an approval, and then says what came of it."""

    def choose(self, request: ScriptedRequest) -> Scenario:
        done = any(message["role"] == "tool" for message in request.body["messages"])
        answer: Reply = reply("Done.") if done else reply(call("terminal", {"command": "rm -rf build"}))
        return Scenario(reply=answer)


@WITHOUT_REDIS
async def test_stop_and_approval_from_another_node(tmp_path: Path, store: SharedStore) -> None:
    async with Asking() as provider, Cluster(tmp_path, store, provider.openai_url, approvals="ask") as cluster:
        owner, other = await cluster.start_many(2)
        (owner.home / "build").mkdir()
        for decision, status in (("once", "completed"), ("stop", "stopped")):
            run_id = await cluster.run(owner, "Remove the build.")
            async with watching(cluster, other, run_id) as until:
                seen = await until(lambda seen: any(event.type == "approval_asked" for event in seen))
                [asked] = [event for event in seen if event.type == "approval_asked"]
                listed = (await cluster.get(other, "/approvals"))["data"]
                assert [each["approval_id"] for each in listed] == [asked["approval_id"]]
                if decision == "stop":
                    await cluster.post(other, f"/runs/{run_id}/stop", {})
                else:
                    answer = {"approval_id": asked["approval_id"], "decision": decision}
                    await cluster.post(other, f"/runs/{run_id}/approval", answer)
                seen = await until(has_ended)
            assert seen[-1]["status"] == status
            assert not (owner.home / "build").exists()
            assert (await cluster.get(other, "/approvals"))["data"] == []


@ON_POSTGRES
async def test_a_sessions_stream_at_one_node_shows_what_another_is_asked(tmp_path: Path, store: SharedStore) -> None:
    async with ConversingProvider(pace_s=0.1) as provider, Cluster(tmp_path, store, provider.openai_url) as cluster:
        asked, watched = await cluster.start_many(2)
        seen: list[SeenEvent] = []
        runs: list[str] = []
        async with asyncio.timeout(PATIENCE_S), aclosing(events(cluster, watched, "/sessions/s/stream")) as stream:
            for question in ("One?", "Two?"):
                following = asyncio.ensure_future(anext(stream))  # it begins with the run under way
                runs.append(await cluster.run(asked, question, session="s"))
                seen.append(await following)
                while seen[-1].get("type") != "run_finished":
                    seen.append(await anext(stream))
    assert [(event["id"], event["input"]) for event in seen if "type" not in event] == [
        (runs[0], "One?"),
        (runs[1], "Two?"),
    ]
    for run_id in runs:
        assert text_of([event for event in seen if event.get("run_id") == run_id]) == TEXT
