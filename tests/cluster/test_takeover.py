"""The owner of a run is killed or hangs, at any moment: another node goes on with it, and viewers there see it all."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cluster.conversing import TEXT, TOOL, ConversingProvider
from cluster.nodes import LEASE_S, PATIENCE_S, Cluster, Node, SeenEvent, events, has_ended, text_of, watching

SEED = 20261115
MOMENTS = int(os.environ.get("TAILRACE_KILL_MOMENTS", "4"))  # of each kind


def moments(kind: str, last: int) -> list[int]:
    """After how many events the owner is killed: the first, and others by chance."""
    chance = random.Random(f"{SEED} {kind}")
    return [1, *(chance.randrange(2, last) for _ in range(MOMENTS - 1))]


def loop_time() -> float:
    return asyncio.get_running_loop().time()


def assert_each_once(seen: list[SeenEvent]) -> None:
    assert [event.seq for event in seen] == [*range(1, len(seen) + 1)]


async def kill_and_watch(cluster: Cluster, owner: Node, viewer: Node, run_id: str, after: int) -> list[SeenEvent]:
    """Kills the owner once the viewer's node has shown so many events; what that node has shown at the end."""
    async with watching(cluster, viewer, run_id) as until:
        await until(lambda seen: len(seen) >= after or has_ended(seen))
        await owner.kill()
        killed_at, shown = loop_time(), 0

        def goes_on(seen: list[SeenEvent]) -> bool:
            nonlocal shown
            shown = shown or len(seen)
            return has_ended(seen) or len(seen) > shown + 1  # the kill may overtake one that was committed before it

        await until(goes_on)
        assert loop_time() - killed_at < 2 * LEASE_S + 1.0, "and a second for starting"
        seen: list[SeenEvent] = await until(has_ended)
    assert_each_once(seen)
    return seen


async def test_L145_kill_9_during_a_turn_with_a_tool(tmp_path: Path, store: str, node_count: int) -> None:
    ran = tmp_path / "ran"
    async with (
        ConversingProvider(f"echo x >> {ran}; sleep 0.2") as provider,
        Cluster(tmp_path, store, provider.openai_url) as cluster,
    ):
        living = await cluster.start_many(node_count)
        for after in moments("turn", 40):
            ran.unlink(missing_ok=True)
            owner = living.pop(0)
            run_id = await cluster.run(owner, f"{TOOL} Then count.", session=f"s{after}")
            seen = await kill_and_watch(cluster, owner, living[0], run_id, after)
            assert seen[-1]["status"] == "completed"
            assert text_of(seen).endswith(TEXT)
            times = len(ran.read_text().splitlines()) if ran.exists() else 0
            outputs = [event for event in seen if event.type == "tool_output_recorded"]
            assert len(outputs) == 1
            assert times <= 1, "a tool that is not safe to repeat is not run again"
            living.append(await cluster.start())


async def test_L145_kill_9_during_a_background_response(tmp_path: Path, store: str, node_count: int) -> None:
    async with ConversingProvider() as provider, Cluster(tmp_path, store, provider.openai_url) as cluster:
        living = await cluster.start_many(node_count)
        for after in moments("response", 30):
            owner = living.pop(0)
            body = {"model": "fake/any", "input": "Count.", "background": True, "store": True}
            response = await cluster.post(owner, "/v1/responses", body)
            run_id = await newest_run(cluster, living[0], "call")
            seen = await kill_and_watch(cluster, owner, living[0], run_id, after)
            final = await cluster.get(living[0], f"/v1/responses/{response['id']}")
            assert (final["status"], text_of(seen)) == ("completed", TEXT)
            living.append(await cluster.start())


async def newest_run(cluster: Cluster, node: Node, kind: str) -> str:
    found: str = (await cluster.get(node, f"/runs?kind={kind}&limit=1"))["data"][0]["id"]
    return found


SEQUENCE: dict[str, Any] = {
    "name": "both",
    "blocks": [
        {
            "type": "parallel",
            "id": "both",
            "branches": [
                [{"type": "step", "id": name, "handler": "llm_call", "params": {"provider": "fake", **question}}]
                for name, question in (
                    ("a", {"model": "any", "messages": [{"role": "user", "content": "Count."}]}),
                    ("b", {"model": "any", "messages": [{"role": "user", "content": "Count again."}]}),
                )
            ],
        },
        {
            "type": "step",
            "id": "c",
            "handler": "llm_call",
            "params": {"provider": "fake", "model": "any", "messages": [{"role": "user", "content": "And again."}]},
        },
    ],
}


async def test_L145_kill_9_during_a_sequence_with_parallel_steps(tmp_path: Path, store: str, node_count: int) -> None:
    async with ConversingProvider() as provider, Cluster(tmp_path, store, provider.openai_url) as cluster:
        living = await cluster.start_many(node_count)
        sequence = await cluster.post(living[0], "/sequences", SEQUENCE)
        for after in moments("sequence", 60):
            owner = living.pop(0)
            instance = await cluster.post(owner, "/instances", {"sequence_id": sequence["id"]})
            seen = await kill_and_watch(cluster, owner, living[0], instance["id"], after)
            finished = [event["block_id"] for event in seen if event.type == "step_finished"]
            assert sorted(finished) == ["a", "b", "both", "c"] or sorted(finished) == ["a", "b", "c"]
            state = await cluster.get(living[0], f"/instances/{instance['id']}")
            assert state["state"] == "completed"
            for step in ("a", "b", "c"):
                assert state["outputs"][step]["message"]["content"] == TEXT
            living.append(await cluster.start())


async def test_L145_a_node_that_hangs_loses_its_run_and_says_so(tmp_path: Path, store: str) -> None:
    """SIGSTOP for longer than the lease, then SIGCONT."""
    async with ConversingProvider() as provider, Cluster(tmp_path, store, provider.openai_url) as cluster:
        owner, other = await cluster.start_many(2)
        run_id = await cluster.run(owner, "Count.")
        async with watching(cluster, other, run_id) as until:
            await until(lambda seen: len(text_of(seen)) > 40)
            owner.hang()
            seen = await until(has_ended)
            owner.go_on()
            await owner.logged(f"run {run_id} was taken over by another process")
        assert_each_once(seen)
        assert text_of(seen) == TEXT
        again = [event async for event in events(cluster, owner, f"/runs/{run_id}/stream?after=0")]
        assert again == seen, "nothing that the hung node had to say was written"


async def test_L145_the_tool_of_a_node_that_hung_is_ended(tmp_path: Path, store: str) -> None:
    pipe = tmp_path / "held open by the tool"
    os.mkfifo(pipe)
    command = f"exec 3> '{pipe}'; echo started >&3; sleep 600"
    async with (
        reading(pipe) as tool,
        ConversingProvider(command) as provider,
        Cluster(tmp_path, store, provider.openai_url) as cluster,
    ):
        owner, other = await cluster.start_many(2)
        run_id = await cluster.run(owner, TOOL)
        assert await tool.readline() == b"started\n"
        async with watching(cluster, other, run_id) as until:
            owner.hang()
            seen = await until(has_ended)
        [output] = [event for event in seen if event.type == "tool_output_recorded"]
        assert not output["ok"], "the model is told that it was interrupted"
        assert text_of(seen).endswith(TEXT)
        owner.go_on()
        await owner.logged(f"run {run_id} was taken over by another process")
        async with asyncio.timeout(PATIENCE_S):
            assert await tool.read() == b"", "its end closes the pipe"


@asynccontextmanager
async def reading(pipe: Path) -> AsyncGenerator[asyncio.StreamReader, None]:
    reader = asyncio.StreamReader()
    end = os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb")
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), end)
    try:
        yield reader
    finally:
        transport.close()
