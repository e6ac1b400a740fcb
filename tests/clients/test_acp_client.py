"""The TypeScript SDK of the Agent Client Protocol, as a second client of `tailrace acp`."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from clients.installed import PROGRAMS, run_client
from clients.serve import in_thread
from integrations.acp.acp_editor import write_config
from tailrace.testing.provider import FaultyProvider, call, reply

TURNS = {
    "reads": [reply("I look.", call("read_file", {"path": "notes.txt"})), reply("It says rain.")],
    "removes": [reply("Removing.", call("terminal", {"command": "rm -rf doomed"})), reply("That is that.")],
    "long": [reply(" ".join(f"word{number}" for number in range(100)))],
}
READ = {"title": "Read notes.txt", "kind": "read", "status": "completed"}
REMOVED = {"title": "rm -rf doomed", "kind": "execute", "status": "completed"}
REMOVING = {"stopReason": "end_turn", "text": "Removing.That is that."}
ANSWER = "I look.It says rain."


def test_the_typescript_sdk_does_whole_turns(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "notes.txt").write_text("rain\n", encoding="utf-8")
    shutil.copy(PROGRAMS / "acp_sdk.mjs", tmp_path)
    with in_thread(FaultyProvider(turns=TURNS)) as provider:
        write_config(tmp_path / "home", provider.openai_url)
        variables = {
            "AGENT": json.dumps([sys.executable, "-m", "tailrace", "acp"]),
            "PROJECT": str(project),
            "TAILRACE_HOME": str(tmp_path / "home"),
        }
        ended = run_client(["node", "acp_sdk.mjs"], tmp_path, variables)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == {
        "version": 1,
        "reads": {"stopReason": "end_turn", "text": ANSWER, "calls": [READ]},
        "again": "end_turn",
        "loaded": {"text": f"{ANSWER}It says rain.", "asked": "Go on.Go on."},
        "allowed": {**REMOVING, "calls": [REMOVED]},
        "rejected": {**REMOVING, "calls": [{**REMOVED, "status": "failed"}]},
        "questions": 2,
        "cancelled": "cancelled",
        "failed": {"code": -32603},
        "exit": 0,
    }
