"""`kill -9` at every fact of ten steps with `parallel` and `for_each`: it goes on, and nothing finished is repeated."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tailrace.testing.provider import FaultyProvider

HARNESS = Path(__file__).with_name("kill_instances.py")
ASKED = re.compile(rb"round (\d+) step (s\d+)(?: ([xy]))?")
ASKING = ("s1", "s2", "s3", "s4", "s6 x", "s6 y", "s8", "s10")


async def rounds(directory: Path, server: FaultyProvider) -> list[dict[str, Any]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(HARNESS),
        str(directory),
        server.url,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()[-4000:]
    return [json.loads(line) for line in out.splitlines()]


def place(block_id: str) -> str:
    """A step as the prompts name it."""
    match = re.fullmatch(r"each\[(\d)\]\.(s\d+)", block_id)
    return f"{match[2]} {'xy'[int(match[1])]}" if match else block_id


@pytest.mark.skipif(not hasattr(os, "fork"), reason="victims are forked")
async def test_I103_I106_a_kill_at_every_fact_changes_nothing_and_repeats_no_finished_step(tmp_path: Path) -> None:
    async with FaultyProvider() as server:
        undisturbed, *killed = await rounds(tmp_path, server)
        asked: dict[str, list[tuple[str, str]]] = {}
        for request in server.requests:
            found = ASKED.search(request.body)
            assert found is not None
            step = b" ".join(part for part in found.groups()[1:] if part).decode()
            asked.setdefault(found[1].decode(), []).append((request.headers["x-victim"], step))
    assert undisturbed["status"] == "completed"
    assert Counter(step for _, step in asked["000"]) == Counter(ASKING)
    assert undisturbed["entries"] > 40
    assert len(killed) == undisturbed["entries"] - 1
    disturbed = 0
    for one in killed:
        assert one["status"] == "completed", one
        assert one["output"] == undisturbed["output"], one["round"]
        requests = asked[f"{one['round']:03}"]
        again = {step for victim, step in requests if victim == "second"}
        disturbed += bool(again or one["found"])
        assert not again & {place(block_id) for block_id in one["found"]}, one
        assert {step for _, step in requests} == set(ASKING)
    assert disturbed > len(killed) * 0.9
