"""The owner of a run hangs: another node goes on with it, and what the owner says when it comes back is refused."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from cluster.conversing import TEXT, TOOL, ConversingProvider
from cluster.nodes import ON_POSTGRES, PATIENCE_S, Cluster, SeenEvent, SharedStore, events, has_ended, text_of, watching


def assert_each_once(seen: list[SeenEvent]) -> None:
    assert [event.seq for event in seen] == [*range(1, len(seen) + 1)]


async def test_L145_a_node_that_hangs_loses_its_run_and_says_so(tmp_path: Path, store: SharedStore) -> None:
    """SIGSTOP for longer than the lease, then SIGCONT. The answer stalls meanwhile: a process that is stopped within a
    commit holds the lock of a SQLite file, and nobody can write."""
    async with ConversingProvider(stalls=1) as provider, Cluster(tmp_path, store, provider.openai_url) as cluster:
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


async def test_L145_the_tool_of_a_node_that_hung_is_ended(tmp_path: Path, store: SharedStore) -> None:
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


@ON_POSTGRES
async def test_I102_nodes_that_hang_in_turn_have_not_died_of_the_run(tmp_path: Path, store: SharedStore) -> None:
    """Each of three owners is too slow for its lease while the run gets no further, and comes back: the run is not
    parked."""
    async with ConversingProvider(stalls=4) as provider, Cluster(tmp_path, store, provider.openai_url) as cluster:
        owner, other = await cluster.start_many(2)
        run_id = await cluster.run(owner, "Count.")
        async with watching(cluster, other, run_id) as until:
            await until(lambda seen: len(text_of(seen)) > 40)
        for times in (1, 1, 2):
            owner.hang()
            await other.logged(f"going on with run {run_id}", times=times)
            owner.go_on()
            await owner.logged(f"run {run_id} was taken over by another process", times=times)
            owner, other = other, owner
        async with cluster.journal() as journal:
            run = await journal.get(run_id)
        assert (run.state, run.claims) == ("running", 4)
