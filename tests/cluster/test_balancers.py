"""nginx and Caddy with the files of `deploy/`, before two real nodes: events come one by one, a disconnect reaches the
node, no POST is sent twice, and a node may go and come back."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import aiohttp
import msgspec
import pytest

from cluster.balancers import Balancer, BalancerName, balancing, behind
from cluster.conversing import TEXT, ConversingProvider
from cluster.nodes import ON_SQLITE, PATIENCE_S, Cluster, Node, SharedStore, events, has_ended, text_of, watching
from tailrace.testing.provider import FaultyProvider

pytestmark = ON_SQLITE
BEHIND_EACH = behind("nginx", "caddy")
QUESTION = {"model": "fake/any", "messages": [{"role": "user", "content": "Go."}]}
CALL = "/v1/chat/completions"


class Balanced(NamedTuple):
    cluster: Cluster
    nodes: list[Node]
    balancer: Balancer

    async def status_of_call(self, **fields: object) -> int:
        """What a model call through the balancer is answered with."""
        body = io.BytesIO(msgspec.json.encode({**QUESTION, **fields}))
        headers = {"Content-Type": "application/json"}
        async with self.cluster.client.post(self.balancer.url + CALL, data=body, headers=headers) as response:
            await response.read()
            return response.status

    async def node_with(self, calls: int) -> Node:
        """The one that has so many calls in flight, beside the question how many it has."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for node in self.nodes:
                    if (await self.cluster.get(node, "/readyz"))["requests"] == calls + 1:
                        return node


@asynccontextmanager
async def balanced(
    name: BalancerName, directory: Path, store: SharedStore, provider: FaultyProvider
) -> AsyncGenerator[Balanced, None]:
    """Two nodes behind this balancer."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(
            Cluster(directory, store, provider.openai_url, drain_s=PATIENCE_S)  # nothing here waits for so long
        )
        nodes = await cluster.start_many(2)
        balancer = await stack.enter_async_context(balancing(name, nodes, directory))
        if name == "caddy":
            await probed(cluster, nodes)
        yield Balanced(cluster, nodes, balancer)


async def probed(cluster: Cluster, nodes: list[Node]) -> None:
    """Returns when the balancer has found out that each node is there: its next probe is up to a second away, and what
    becomes of a node until then it must notice by itself."""
    async with asyncio.timeout(PATIENCE_S):
        for node in nodes:
            counted = ""
            while 'route="/healthz"' not in counted:
                async with cluster.client.get(node.url + "/metrics") as response:
                    counted = await response.text()


@BEHIND_EACH
async def test_events_come_while_the_model_is_silent(tmp_path: Path, store: SharedStore, name: BalancerName) -> None:
    async with ConversingProvider(stalls=1) as provider, balanced(name, tmp_path, store, provider) as here:
        run_id = await here.cluster.run(here.balancer, "Count.")
        async with watching(here.cluster, here.balancer, run_id) as of_run:
            seen = await of_run(lambda seen: len(text_of(seen)) > 40)
        assert TEXT.startswith(text_of(seen))
        assert not has_ended(seen)


@BEHIND_EACH
async def test_a_raw_stream_comes_while_the_model_is_silent(
    tmp_path: Path, store: SharedStore, name: BalancerName
) -> None:
    async with ConversingProvider(stalls=1) as provider, balanced(name, tmp_path, store, provider) as here:
        body = {**QUESTION, "stream": True}
        async with here.cluster.client.post(here.balancer.url + CALL, json=body) as response:
            received = b""
            async with asyncio.timeout(PATIENCE_S):
                while b"word1" not in received:
                    received += await response.content.readany()


@BEHIND_EACH
@pytest.mark.parametrize("stream", [True, False])
async def test_a_disconnect_reaches_the_provider(
    tmp_path: Path, store: SharedStore, name: BalancerName, stream: bool
) -> None:
    async with ConversingProvider(stalls=1) as provider, balanced(name, tmp_path, store, provider) as here:
        asking = asyncio.create_task(here.status_of_call(stream=stream))
        asked = await provider.request()
        asking.cancel()
        await asyncio.wait([asking])
        async with asyncio.timeout(PATIENCE_S):
            await asked.over.wait()
        assert asked.disconnected_at is not None


@BEHIND_EACH
async def test_a_viewer_comes_back_with_its_last_event(tmp_path: Path, store: SharedStore, name: BalancerName) -> None:
    async with ConversingProvider() as provider, balanced(name, tmp_path, store, provider) as here:
        run_id = await here.cluster.run(here.balancer, "Count.")
        async with watching(here.cluster, here.balancer, run_id) as of_run:
            first = list(await of_run(lambda seen: len(text_of(seen)) > 40))
        headers = {"Last-Event-ID": str(first[-1].seq)}
        path = f"/runs/{run_id}/stream"
        rest = [event async for event in events(here.cluster, here.balancer, path, headers=headers)]
        assert [event.seq for event in (*first, *rest)] == [*range(1, len(first) + len(rest) + 1)]
        assert text_of([*first, *rest]) == TEXT


@BEHIND_EACH
async def test_the_page_is_known_by_the_address_of_the_balancer(
    tmp_path: Path, store: SharedStore, name: BalancerName
) -> None:
    async with ConversingProvider() as provider, balanced(name, tmp_path, store, provider) as here:
        headers = {"Origin": here.balancer.url}
        async with here.cluster.client.get(here.balancer.url + "/sessions", headers=headers) as response:
            assert response.status == 200, await response.text()


@BEHIND_EACH
async def test_bodies_pass_up_to_the_limit_of_the_server(
    tmp_path: Path, store: SharedStore, name: BalancerName
) -> None:
    """The server refuses what is larger, and no node counts as lost for it."""
    async with ConversingProvider(pace_s=0) as provider, balanced(name, tmp_path, store, provider) as here:
        [limit] = {(await here.cluster.get(node, "/about"))["max_body_bytes"] for node in here.nodes}
        ignored = "x" * (limit - 1000)
        assert await here.status_of_call(messages=[{"role": "user", "content": ignored}]) == 200
        for _ in range(3):
            with suppress(aiohttp.ClientOSError):  # the connection was closed while the rest was still being sent
                assert await here.status_of_call(messages=[{"role": "user", "content": ignored + ignored}]) == 413
        assert [await here.status_of_call() for _ in range(4)] == [200] * 4


@BEHIND_EACH
async def test_a_call_is_not_sent_twice(tmp_path: Path, store: SharedStore, name: BalancerName) -> None:
    async with ConversingProvider(stalls=1) as provider, balanced(name, tmp_path, store, provider) as here:
        asking = asyncio.create_task(here.status_of_call())
        await provider.request()
        await (await here.node_with(calls=1)).kill()
        assert await asking == 502
        assert len(provider.requests) == 1


@BEHIND_EACH
async def test_failures_of_a_provider_are_not_the_nodes(tmp_path: Path, store: SharedStore, name: BalancerName) -> None:
    async with FaultyProvider(["status-503"] * 200) as provider, balanced(name, tmp_path, store, provider) as here:
        assert {await here.status_of_call() for _ in range(8)} == {503}
        for _ in range(4):
            await here.cluster.get(here.balancer, "/runs")


@BEHIND_EACH
async def test_a_node_goes_and_comes_back(tmp_path: Path, store: SharedStore, name: BalancerName) -> None:
    async with ConversingProvider(pace_s=0) as provider, balanced(name, tmp_path, store, provider) as here:
        gone, other = here.nodes
        await gone.kill()
        for _ in range(4):
            await here.cluster.get(here.balancer, "/runs")
        port = int(gone.url.rpartition(":")[2])
        back = await here.cluster.start(port=port)
        async with asyncio.timeout(PATIENCE_S):
            while not any("/runs" in line for line in back.log):
                await here.cluster.get(here.balancer, "/runs")
        await other.kill()
        for _ in range(4):
            await here.cluster.get(here.balancer, "/runs")


@BEHIND_EACH
async def test_a_node_that_stops_gets_no_new_work(tmp_path: Path, store: SharedStore, name: BalancerName) -> None:
    """It has fewer calls in flight than the other one, so that it would be chosen. nginx has no probes of its own: it
    asks the other node where a GET was refused, and passes the refusal of a POST on, with when to retry."""
    async with ConversingProvider(pace_s=0, stalls=3) as provider, balanced(name, tmp_path, store, provider) as here:
        in_flight: list[asyncio.Task[int]] = []
        for number in range(3):  # one by one: simultaneous calls may all be sent to one node
            in_flight.append(asyncio.create_task(here.status_of_call()))
            await provider.request(number)
        stopping = await here.node_with(calls=1)
        stopping.terminate()
        await stopping.logged("stopping")
        if name == "caddy":
            await here.balancer.logged("response body failed expectations")
            await here.status_of_call()  # Caddy heeds it a moment after it has said so
            assert [await here.status_of_call() for _ in range(8)] == [200] * 8
        for _ in range(8):
            await here.cluster.get(here.balancer, "/runs")
        assert not any(task.done() for task in in_flight), "the node had what is in flight to wait for"
        for task in in_flight:
            task.cancel()
        await asyncio.wait(in_flight)
