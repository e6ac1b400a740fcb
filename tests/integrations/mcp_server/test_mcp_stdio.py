"""The host's messages between the pipes and the SDK: what is refused, and what never waits for ever."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra is not installed")

from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from cli.screen.vt import VirtualTerminal
from tailrace.integrations.mcp_server import stdio
from tailrace.integrations.mcp_server.stdio import Cancelled, stdio_streams
from tailrace.system.json_rpc.lines import MAX_LINE_BYTES
from tailrace.system.json_rpc.stdio import Pipes

LONGEST_S = 30.0


class Host:
    """The other ends of the two pipes."""

    def __init__(self) -> None:
        incoming, self._out = os.pipe()
        self._in, outgoing = os.pipe()
        self.pipes = Pipes(incoming, outgoing)
        self.cancelled = Cancelled()

    async def say(self, *lines: bytes) -> None:
        for line in lines:
            await asyncio.to_thread(os.write, self._out, line + b"\n")

    async def heard(self) -> Any:
        return json.loads(await asyncio.to_thread(os.read, self._in, 65_536))

    def leave(self) -> None:
        os.close(self._out)
        self._out = -1

    def close(self) -> None:
        for descriptor in (*self.pipes, self._out, self._in):
            if descriptor >= 0:
                os.close(descriptor)


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    host = Host()
    yield host
    host.close()


async def test_what_is_no_message_is_answered_and_the_next_one_is_read(host: Host) -> None:
    async with asyncio.timeout(LONGEST_S), stdio_streams(host.pipes, host.cancelled) as streams:
        await host.say(b'{"jsonrpc":"2.0","id":3,"method":"tools/list","params":[1]}')
        refused = await host.heard()
        assert (refused["id"], refused["error"]["code"], "params" in refused["error"]["message"]) == (3, -32600, True)
        await host.say(b'{"id":4,"method":"ping"}')
        assert "jsonrpc" in (await host.heard())["error"]["message"]
        await host.say(b'{"jsonrpc":"2.0","id":5,"method":"ping"}')
        received = await streams.incoming.receive()
        assert isinstance(received, SessionMessage)
        assert received.message == JSONRPCRequest(jsonrpc="2.0", id=5, method="ping")


async def test_an_answer_that_breaks_the_protocol_ends_the_question(host: Host) -> None:
    """An error that went back would be taken for the answer to the host's own request of that number."""
    async with asyncio.timeout(LONGEST_S), stdio_streams(host.pipes, host.cancelled) as streams:
        await host.say(b'{"jsonrpc":"2.0","id":1,"result":null}')
        received = await streams.incoming.receive()
        assert isinstance(received, SessionMessage)
        assert isinstance(received.message, JSONRPCError)
        assert received.message.id == 1


async def test_a_line_without_an_end_is_not_kept(host: Host) -> None:
    piece = b"x" * 2**20
    async with asyncio.timeout(LONGEST_S), stdio_streams(host.pipes, host.cancelled) as streams:

        def flood() -> None:
            for _ in range(MAX_LINE_BYTES // len(piece) + 1):
                rest = memoryview(piece)
                while rest:
                    rest = rest[os.write(host._out, rest) :]

        await asyncio.to_thread(flood)
        await host.say(b"", b'{"jsonrpc":"2.0","id":5,"method":"ping"}')
        refused = await host.heard()
        assert "longer than" in refused["error"]["message"]
        await streams.incoming.receive()


async def test_a_host_that_reads_nothing_does_not_hold_up_the_end(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "LAST_WRITES_S", 0.01)
    async with asyncio.timeout(LONGEST_S), stdio_streams(host.pipes, host.cancelled) as streams:
        long = JSONRPCResponse(jsonrpc="2.0", id=1, result={"text": "x" * 1_000_000})
        await streams.outgoing.send(SessionMessage(long))
        host.leave()


def test_reasons_of_cancellations_are_for_one_request_and_do_not_pile_up() -> None:
    def cancel(number: int) -> JSONRPCNotification:
        params = {"requestId": number, "reason": "no"}
        return JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled", params=params)

    cancelled = Cancelled()
    cancelled.note(cancel(1))  # it came after the answer
    cancelled.note(JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/call"))
    assert cancelled.reason_of(1) is None
    for number in range(5000):
        cancelled.note(cancel(number))
    assert (cancelled.reason_of(0), cancelled.reason_of(4999)) == (None, "no")


async def test_a_person_who_starts_it_by_hand_is_told_who_should(tmp_path: Path) -> None:
    env = {**os.environ, "TAILRACE_HOME": str(tmp_path)}
    async with VirtualTerminal([sys.executable, "-m", "tailrace", "mcp"], env) as terminal:
        await terminal.until("tailrace mcp is for an MCP host to start")
