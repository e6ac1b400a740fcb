"""The channel on real pipes: whole lines, an end that is noticed, and nothing that waits for ever."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tailrace.system.json_rpc.stdio import Pipes, StdioChannel

LONGEST_S = 30.0


class _Ends:
    """Both ends of the two pipes."""

    def __init__(self) -> None:
        incoming, self.to_us = os.pipe()
        self.from_us, outgoing = os.pipe()
        self.pipes = Pipes(incoming, outgoing)

    def close(self) -> None:
        for descriptor in {*self.pipes, self.to_us, self.from_us}:
            os.close(descriptor)


async def test_a_peer_that_does_not_read_mixes_no_lines() -> None:
    """Writers that are cancelled while the pipe is full leave no half of a line behind."""
    ends = _Ends()
    channel = StdioChannel(ends.pipes)
    long = [b"%d" % number * 150_000 + b"\n" for number in range(4)]
    writers = [asyncio.create_task(channel.write(line)) for line in long]
    await asyncio.sleep(0)
    writers[0].cancel()
    writers[2].cancel()
    got = b""
    while got.count(b"\n") < 4:
        got += await asyncio.to_thread(os.read, ends.from_us, 65_536)
    assert got == b"".join(long)
    await asyncio.gather(*writers, return_exceptions=True)
    await channel.close()
    with pytest.raises(ConnectionError):
        await channel.write(b"more\n")
    ends.close()


async def test_a_peer_that_reads_no_more_is_the_end() -> None:
    ends = _Ends()
    channel = StdioChannel(ends.pipes)
    waiting = asyncio.create_task(channel.receive())
    await asyncio.sleep(0)
    os.close(ends.from_us)
    ends.from_us = ends.to_us  # closed once
    await channel.send({"id": 1, "result": None})
    assert await asyncio.wait_for(waiting, LONGEST_S) is None
    ends.close()


async def test_input_from_a_file_is_read_to_its_end(tmp_path: Path) -> None:
    script = tmp_path / "lines"
    script.write_bytes(b'{"id":1,"method":"a"}\n{"id":2,"method":"b"}')
    output = tmp_path / "out"
    with script.open("rb") as incoming, output.open("wb") as outgoing:
        channel = StdioChannel(Pipes(incoming.fileno(), outgoing.fileno()))
        assert await channel.receive() == {"id": 1, "method": "a"}
        assert await channel.receive() == {"id": 2, "method": "b"}
        assert await channel.receive() is None
        await channel.send({"id": 1, "result": None})
    assert output.read_bytes() == b'{"id":1,"result":null}\n'


async def test_input_that_another_process_took_is_not_the_end() -> None:
    """A non-blocking pipe may be readable and then have nothing."""
    ends = _Ends()
    os.set_blocking(ends.pipes.incoming, False)
    channel = StdioChannel(ends.pipes)
    waiting = asyncio.create_task(channel.receive())
    await asyncio.sleep(0)
    os.write(ends.to_us, b"\n")
    os.read(ends.pipes.incoming, 1)
    channel._wake.set()
    await asyncio.sleep(0)
    os.write(ends.to_us, b'{"id":1,"method":"a"}\n')
    assert await asyncio.wait_for(waiting, LONGEST_S) == {"id": 1, "method": "a"}
    await channel.close()
    assert await asyncio.wait_for(channel.receive(), LONGEST_S) is None
    ends.close()
