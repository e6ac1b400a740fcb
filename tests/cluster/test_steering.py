"""A message reaches its run through any node, and is committed or returned once, whatever ends the run's owners."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.conversing import TEXT, ConversingProvider
from cluster.nodes import WITHOUT_REDIS, Cluster, Node, SeenEvent, SharedStore, has_ended, text_of, watching
from tailrace.providers.http.quirks import CONTINUE
from tailrace.testing.provider import Break, Offset, Scenario
from tailrace.testing.scripted.request_reader import ScriptedRequest

LONG_LEASE_S = 60.0  # what is handed over does not wait for it


class StallingProvider(ConversingProvider):
    """`stalls`: by how many messages of the user a request has, so many of the answers to it stop in the middle."""

    def __init__(self, stalls: dict[int, int]) -> None:
        super().__init__()
        self._left = {**stalls}

    def choose(self, request: ScriptedRequest) -> Scenario:
        asked = len(user_texts(request.body))
        self._left[asked] = self._left.get(asked, 0) - 1
        chosen = super().choose(request)
        return (
            chosen if self._left[asked] < 0 else Scenario(reply=chosen.reply, broken=Break("stall", Offset(50, True)))
        )


def user_texts(body: dict[str, Any]) -> list[str]:
    """What people said: not what a broken answer is gone on with."""
    texts = [message["content"] for message in body["messages"] if message["role"] == "user"]
    return [text for text in texts if text != CONTINUE]


async def kill(node: Node) -> None:
    await node.kill()


async def terminate(node: Node) -> None:
    assert await node.stop() == 0


async def steers(cluster: Cluster, node: Node, run_id: str) -> list[tuple[str, str]]:
    listed = await cluster.get(node, f"/runs/{run_id}/steer")
    return [(steer["id"], steer["state"]) for steer in listed["data"]]


def facts(seen: list[SeenEvent]) -> list[tuple[str, str]]:
    return [(event.type, event["steer_id"]) for event in seen if event.type.startswith("steer_")]


def committed(steer_id: str) -> Callable[[list[SeenEvent]], bool]:
    return lambda seen: ("steer_committed", steer_id) in facts(seen)


@WITHOUT_REDIS
@pytest.mark.parametrize(("end", "fields"), [(kill, {}), (terminate, {"lease_s": LONG_LEASE_S})])
async def test_N164_each_message_is_committed_once_through_the_end_of_two_owners(
    tmp_path: Path, store: SharedStore, end: Callable[[Node], Awaitable[None]], fields: dict[str, Any]
) -> None:
    """The first owner ends with one message accepted and one taken back; the second one, whose model call has the first
    message, with another accepted."""
    async with (
        StallingProvider({1: 1, 2: 1}) as provider,
        Cluster(tmp_path, store, provider.openai_url, **fields) as cluster,
    ):
        owner, other = await cluster.start_many(2)
        run_id = await cluster.run(owner, "Count.")
        path = f"/runs/{run_id}/steer"
        async with watching(cluster, other, run_id) as until:
            await until(lambda seen: len(text_of(seen)) > 40)
            first = (await cluster.post(other, path, {"input": "First.", "idempotency_key": "k"}))["id"]
            regretted = (await cluster.post(other, path, {"input": "Not this."}))["id"]
            async with cluster.client.delete(f"{other.url}{path}/{regretted}") as response:
                assert response.status == 200
            told = [(first, "accepted"), (regretted, "returned")]
            assert await steers(cluster, other, run_id) == await steers(cluster, owner, run_id) == told
            await end(owner)
            await until(committed(first))
        third = await cluster.start()
        async with watching(cluster, third, run_id) as until:
            await until(lambda seen: len(text_of(seen)) > len(TEXT) + 40)
            again = await cluster.post(third, path, {"input": "First.", "idempotency_key": "k"})
            second = (await cluster.post(third, path, {"input": "Second."}))["id"]
            await end(other)
            seen = await until(has_ended)
        told = [(first, "committed"), (regretted, "returned"), (second, "committed")]
        assert await steers(cluster, third, run_id) == told
    assert (again["id"], again["state"]) == (first, "committed")
    assert [event.seq for event in seen] == [*range(1, len(seen) + 1)]
    assert (seen[-1]["status"], text_of(seen)) == ("completed", TEXT * 3)
    assert facts(seen) == [
        ("steer_accepted", first),
        ("steer_accepted", regretted),
        ("steer_returned", regretted),
        ("steer_committed", first),
        ("steer_accepted", second),
        ("steer_committed", second),
    ]
    asked = [user_texts(request.json()) for request in provider.requests]
    once = [["Count."], ["Count.", "First."], ["Count.", "First.", "Second."]]
    assert [texts for at, texts in enumerate(asked) if texts not in asked[:at]] == once


@WITHOUT_REDIS
@pytest.mark.parametrize("end", [kill, terminate])
async def test_N165_a_message_is_returned_once_where_the_run_is_stopped_after_a_takeover(
    tmp_path: Path, store: SharedStore, end: Callable[[Node], Awaitable[None]]
) -> None:
    async with StallingProvider({1: 2}) as provider, Cluster(tmp_path, store, provider.openai_url) as cluster:
        owner, other, third = await cluster.start_many(3)
        run_id = await cluster.run(owner, "Count.")
        async with watching(cluster, third, run_id) as until:
            await until(lambda seen: len(text_of(seen)) > 40)
            steer = (await cluster.post(other, f"/runs/{run_id}/steer", {"input": "First."}))["id"]
            await end(owner)
            await provider.request()
            await provider.request()
            await cluster.post(third, f"/runs/{run_id}/stop", {})
            seen = await until(has_ended)
        assert await steers(cluster, other, run_id) == [(steer, "returned")]
    assert seen[-1]["status"] == "stopped"
    assert facts(seen) == [("steer_accepted", steer), ("steer_returned", steer)]
    assert {tuple(user_texts(request.json())) for request in provider.requests} == {("Count.",)}
