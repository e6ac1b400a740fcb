"""docs/tools.md is held to the code."""

from __future__ import annotations

import re
from pathlib import Path

from tailrace.config.section_parser import parse_section
from tailrace.config.sections import Sections
from tailrace.ports import ToolOutcome
from tailrace.tools import process, terminal
from tailrace.tools.checkpoint.checkpoint import SnapshotLimits
from tailrace.tools.function import FunctionTool
from tailrace.tools.mcp.link import MAX_TOOLS
from tailrace.tools.mcp.servers import McpServers
from tailrace.tools.mcp.tools import MAX_CHARS, offered_name
from tailrace.tools.search import search_files
from tailrace.tools.toolbox import BUILTIN
from tailrace.tools.web import page_fetch, web_fetch
from tools.tool_context import Workplace

TEXT = (Path(__file__).parents[2] / "docs/tools.md").read_text(encoding="utf-8")


async def test_the_example_is_a_tool(here: Workplace) -> None:
    [code] = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    names: dict[str, object] = {"__name__": "example"}
    exec(code, names)  # noqa: S102 - our own document
    forecast = names["forecast"]
    assert isinstance(forecast, FunctionTool)
    assert await forecast.run({"city": "Ulm"}, here) == ToolOutcome("Ulm: rain for 3 days")
    assert forecast.spec.parameters["properties"]["city"]["description"] == "Name of the city, in English."


def test_every_built_in_tool_has_its_row() -> None:
    assert re.findall(r"(?m)^`(\w+)` \|.*\| (?:no|unless the command is known)$", TEXT) == list(BUILTIN)


def test_the_servers_can_be_configured_like_this() -> None:
    [yaml] = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    servers = parse_section(yaml, Sections, "docs/tools.md").mcp.servers
    McpServers(servers, environment={"TICKETS_KEY": "k"})
    assert offered_name("files", "read_file") in TEXT


def test_the_numbers_are_those_of_the_code() -> None:
    words = " ".join(TEXT.split())
    for said in (
        f"the head ({terminal.HEAD_CHARS:,} characters) and the tail ({terminal.TAIL_CHARS:,})".replace(",", " "),
        f"`timeout_s` ({terminal.DEFAULT_TIMEOUT_S})",
        f"is ended after {search_files.TIMEOUT_S:g} s",
        f"up to {web_fetch.MAX_BYTES // 2**20} MB and {web_fetch.TIMEOUT_S:g} s",
        f"files over {SnapshotLimits().max_file_mb} MB",
        f"{SnapshotLimits().max_files:,} files or {SnapshotLimits().max_total_mb} MB".replace(",", " "),
        f"at most {MAX_TOOLS} tools are offered",
        f"up to {MAX_CHARS:,} characters of a text".replace(",", " "),
        f"The latest {SnapshotLimits().keep} to {SnapshotLimits().keep + 10} checkpoints",
    ):
        assert said in words, said
    assert (process.GRACE_S, page_fetch.MAX_REDIRECTS) == (1.0, 5)
