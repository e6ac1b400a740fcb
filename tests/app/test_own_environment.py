"""What the children of a real process can read of its environment."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

import pytest

from tailrace.app.secrets.own_environment import hide_secrets
from tailrace.testing.provider import FaultyProvider, call, reply

KEY = "sk-the-key-of-the-provider-1"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
# Every process from the shell's parent up to the one that started tailrace, which is this test's own.
READ_ANCESTORS = (
    'p=$PPID; while [ "$p" != "$TEST_PID" ] && [ "$p" -gt 1 ]; do'
    ' echo "pid $p"; base64 -w0 < /proc/$p/environ; echo; env | base64 -w0; echo;'
    " p=$(awk '/^PPid/ {print $2}' /proc/$p/status); done"
)


async def test_J114_no_ancestor_that_is_ours_shows_the_key_to_a_command(tmp_path: Path) -> None:
    script = [reply(call("terminal", {"command": READ_ANCESTORS})), reply("Done.")]
    async with FaultyProvider(script=script) as server:
        provider = {"dialect": "chat", "base_url": server.openai_url, "key_env": "VICTIM_KEY"}
        config = {
            "model": {"provider": "faulty", "name": "ok"},
            "providers": {"faulty": provider},
            "server": {"keys": [{"name": "desk", "key_env": "DESK_KEY"}]},
        }
        (tmp_path / "config.yaml").write_text(json.dumps(config), encoding="utf-8")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tailrace", "chat", "-q", "Look.", "--yolo"),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            env={
                "PATH": os.environ["PATH"],
                "TAILRACE_HOME": str(tmp_path),
                "HOME": str(tmp_path),
                "VICTIM_KEY": KEY,
                "DESK_KEY": f"{KEY}-desk",
                "STAYS": "visible",
                "TEST_PID": str(os.getpid()),
            },
        )
        _, err = await process.communicate()
        assert process.returncode == 0, err
        used = server.requests[0].headers["authorization"]
        shown = server.requests[1].json()["messages"][-1]["content"]
    assert used == f"Bearer {KEY}", "the key is still there for what it is for"
    blocks = [base64.b64decode(line) for line in shown.splitlines() if line and not line.startswith(("pid ", "["))]
    assert shown.startswith("pid "), shown
    assert len(blocks) >= 2
    assert all(b"STAYS=visible" in block for block in blocks), "each block was read"
    assert not any(KEY.encode() in block for block in blocks)


def test_a_variable_that_is_not_set_is_no_matter() -> None:
    before = dict(os.environ)
    hide_secrets(["TAILRACE_NO_SUCH_VARIABLE"])
    assert dict(os.environ) == before
