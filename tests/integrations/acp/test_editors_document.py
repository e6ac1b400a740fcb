"""docs/integrations/acp.md: the blocks to paste start the command that there is, and what it names is so."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tailrace.cli.main import all_commands

PAGE = (Path(__file__).parents[3] / "docs/integrations/acp.md").read_text(encoding="utf-8")
BLOCKS = {
    editor: (language, text)
    for language, editor, text in re.findall(r"```(\w+) editor=(\S+)\n(.*?)```", PAGE, re.DOTALL)
}


def test_there_is_a_block_for_each_editor() -> None:
    assert set(BLOCKS) == {"zed", "jetbrains", "codecompanion", "avante", "agent-shell"}
    for language, text in BLOCKS.values():
        assert '"tailrace"' in text
        assert '"acp"' in text
        assert text.count("(") == text.count(")"), language
        assert text.count("{") == text.count("}"), language


def test_the_json_blocks_start_tailrace_acp() -> None:
    assert "acp" in all_commands()
    for language, text in BLOCKS.values():
        if language == "json":
            started = json.loads(text)["agent_servers"]["Tailrace"]
            assert (started["command"], started["args"]) == ("tailrace", ["acp"])
