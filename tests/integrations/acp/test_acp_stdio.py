"""The two pipes: nothing but the protocol on stdout, an answer to every line, and a start that says what is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from integrations.acp.acp_editor import LONGEST_S, write_config

JUNK = [b"hello", b"[]", b"42", b"{}", b"\xff\xfe", b"x" * 10_000_000, b'{"id":[1],"result":1}', b'{"id":9,"error":3}']
# What a library, a child process and a `print` may do once the agent runs.
STRAY = """
import os
import tailrace.integrations.acp.serve as acp_serve
serve = acp_serve.serve
async def stray(*args):
    print("stray")
    os.system("echo stray; cat")
    os.write(1, b"stray")
    await serve(*args)
acp_serve.serve = stray
"""
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}


def run_acp(home: Path, lines: bytes, *, code: str = "", **variables: str) -> subprocess.CompletedProcess[bytes]:
    """`tailrace acp`, fed with these lines and then the end of input. `code` runs first, in the same process."""
    program = f"import sys\n{code}\nfrom tailrace.cli.main import main; sys.exit(main(['acp']))"
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    return subprocess.run(
        [sys.executable, "-c", program],
        input=lines,
        capture_output=True,
        env={**environment, "TAILRACE_HOME": str(home), **variables},
        timeout=LONGEST_S,
        check=False,
    )


def messages(ended: subprocess.CompletedProcess[bytes]) -> list[dict[str, Any]]:
    assert ended.returncode == 0, ended.stderr.decode()
    assert b"Traceback" not in ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def lines_of(*requests: dict[str, Any] | bytes) -> bytes:
    return b"".join((one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n" for one in requests)


def test_every_line_that_is_no_message_gets_an_error_and_the_agent_lives_on(tmp_path: Path) -> None:
    """Also: what libraries, tools and a missing key have to say is on stderr, or an error."""
    write_config(tmp_path, "http://127.0.0.1:9", model={"provider": "openai", "name": "gpt-5"}, providers={})
    new = {"jsonrpc": "2.0", "id": 2, "method": "session/new", "params": {"cwd": "/", "mcpServers": []}}
    ended = run_acp(tmp_path, lines_of(*JUNK, INITIALIZE, new), code=STRAY)
    told = messages(ended)
    assert [one["error"]["code"] for one in told if one["id"] is None] == [-32700, *[-32600] * 3, *[-32700] * 2, -32600]
    assert ended.stderr.count(b"stray") == 3
    (hello,) = (one["result"] for one in told if one["id"] == 1)
    assert [(one["type"], one["vars"][0]["name"]) for one in hello["authMethods"]] == [("env_var", "OPENAI_API_KEY")]
    (refused,) = (one["error"] for one in told if one["id"] == 2)
    assert refused["code"] == -32000
    assert "OPENAI_API_KEY is not set" in refused["message"]


def test_a_config_that_cannot_be_loaded_is_told_in_the_editor(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("modle: {}\n", encoding="utf-8")
    new = {"jsonrpc": "2.0", "id": 2, "method": "session/new", "params": {"cwd": "/", "mcpServers": []}}
    ended = run_acp(tmp_path, lines_of(INITIALIZE, new))
    told = {one["id"]: one for one in messages(ended)}
    assert told[1]["result"]["protocolVersion"] == 1
    assert "modle: unknown key" in told[2]["error"]["message"]
    assert b"modle" in ended.stderr


@pytest.mark.parametrize(
    ("config", "line", "told"),
    [
        ("model:\n  provider: antropic\n  name: x\n", 2, "providers.antropic: no such provider"),
        ("\n\nagent: {tools: [terminl]}\n", 3, "agent.tools: there is no tool"),
    ],
)
def test_a_mistake_in_the_config_is_told_with_its_line(tmp_path: Path, config: str, line: int, told: str) -> None:
    (tmp_path / "config.yaml").write_text(config, encoding="utf-8")
    new = {"jsonrpc": "2.0", "id": 2, "method": "session/new", "params": {"cwd": "/", "mcpServers": []}}
    said = {one["id"]: one for one in messages(run_acp(tmp_path, lines_of(INITIALIZE, new)))}
    assert said[2]["error"]["message"].startswith(f"{tmp_path}/config.yaml:{line}: {told}")


def test_without_the_extra_it_says_how_to_install_it(tmp_path: Path) -> None:
    ended = run_acp(tmp_path, b"", code="sys.modules['acp'] = None")
    assert (ended.returncode, ended.stdout) == (1, b"")
    (line,) = ended.stderr.decode().splitlines()
    assert line.startswith("error: tailrace acp needs an extra: ")
    assert "[acp]" in line
