"""Runs of every kind in flight, and what must be so of each when it has ended, whatever happened meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from cluster.conversing import TEXT, TOOL, ConversingProvider
from cluster.nodes import PATIENCE_S, Cluster, Node, SeenEvent, events, has_ended, text_of
from cluster.sequences import SEQUENCE
from tailrace.flows.definition.public_ids import run_id_of
from tailrace.journal.fold import fold
from tailrace.ports import Journal

KINDS = {"unsafe": 40, "repeatable": 40, "response": 35, "sequence": 80}  # and about how many events each has


class Flight(msgspec.Struct, frozen=True, eq=False):
    """One run that has begun on a node."""

    kind: str
    tag: str
    owner: Node
    run_id: str
    response_id: str = ""


async def take_off(cluster: Cluster, kind: str, tag: str, owner: Node) -> Flight:
    """A run of this kind on this node."""
    if kind == "sequence":
        sequence = await cluster.post(owner, "/sequences", {**SEQUENCE, "name": tag})
        instance = await cluster.post(owner, "/instances", {"sequence_id": sequence["id"]})
        return Flight(kind, tag, owner, instance["id"])
    if kind == "response":
        body = {"model": "fake/any", "input": "Count.", "background": True, "store": True}
        response = await cluster.post(owner, "/v1/responses", body)
        [run] = (await cluster.get(owner, "/runs?kind=call&limit=1"))["data"]
        return Flight(kind, tag, owner, run["id"], response["id"])
    wish = f"{TOOL} It is terminal {tag}." if kind == "unsafe" else f"{TOOL} It is read_file."
    return Flight(kind, tag, owner, await cluster.run(owner, wish, session=tag))


async def check(cluster: Cluster, node: Node, flight: Flight, seen: list[SeenEvent], ran: Path) -> None:
    assert [event.seq for event in seen] == [*range(1, len(seen) + 1)]
    assert seen[-1]["status"] == "completed", seen[-1]
    assert [event.type for event in seen].count("run_finished") == 1
    if flight.kind == "sequence":
        finished = [event["block_id"] for event in seen if event.type == "step_finished"]
        assert sorted({*finished, "both"}) == ["a", "b", "both", "c"]
        assert len(finished) == len({*finished}), "a step finished twice"
        state = await cluster.get(node, f"/instances/{flight.run_id}")
        assert {state["outputs"][step]["message"]["content"] for step in "abc"} == {TEXT}
        return
    assert sum(event.type == "message_stop" and event["final"] for event in seen) == 1
    assert seen[-1]["output"] == TEXT
    if flight.kind == "response":
        final = await cluster.get(node, f"/v1/responses/{flight.response_id}")
        assert (final["status"], text_of(seen)) == ("completed", TEXT)
        return
    assert text_of(seen).endswith(TEXT)
    assert [event.type for event in seen].count("tool_output_recorded") == 1
    if flight.kind == "unsafe":
        written = (ran / flight.tag).read_text() if (ran / flight.tag).exists() else ""
        assert written.count("ran") <= 1, "a tool that is not safe to repeat ran again"


async def check_fold(journal: Journal, run_id: str) -> None:
    stored = run_id_of(run_id)
    run, entries = await journal.get(stored), await journal.read(stored)
    assert run.finished is not None
    assert fold(entries).output == run.finished.output


class ChoosingProvider(ConversingProvider):
    """Calls the tool that the question names; `terminal` leaves a word in a file of the run's own."""

    def __init__(self, ran: Path) -> None:
        super().__init__()
        self._ran = ran

    def tool_call(self, wish: str) -> tuple[str, dict[str, Any]]:
        if "read_file" in wish:
            return "read_file", {"path": "config.yaml"}
        tag = wish.rsplit(maxsplit=1)[-1].rstrip(".")
        return "terminal", {"command": f"echo ran >> '{self._ran}/{tag}'; sleep 0.2"}


async def follow(cluster: Cluster, node: Node, run_id: str) -> list[SeenEvent]:
    """All events of the run, seen through this node by a client that connects again where its stream is cut."""
    seen: list[SeenEvent] = []
    async with asyncio.timeout(PATIENCE_S):
        while not has_ended(seen):
            try:
                async for event in events(cluster, node, f"/runs/{run_id}/stream?after={len(seen)}"):
                    if "seq" not in event:
                        break  # why the stream is cut
                    seen.append(event)
            except (aiohttp.ClientError, AssertionError):
                pass
            await asyncio.sleep(0.1)  # as EventSource does
    return seen
