"""docs/integrations/mcp_server.md is held to the code."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="the extra is not installed")

from tailrace.cli.main import parser_of
from tailrace.integrations.mcp_server.run_report import RunReport
from tailrace.integrations.mcp_server.run_tools import TOOLS
from tailrace.integrations.mcp_server.watch import PROGRESS_EVERY_S, SIGN_OF_LIFE_S

TEXT = (Path(__file__).parents[3] / "docs/integrations/mcp_server.md").read_text(encoding="utf-8")


def test_the_blocks_start_the_command() -> None:
    blocks = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)]
    servers = [server for block in blocks for group in block.values() for server in group.values()]
    assert len(servers) == 1
    for server in servers:
        command, *args = server["args"]
        assert (server["command"], command) == ("tailrace", "mcp")
        assert parser_of("mcp").parse_args(args).directory == Path("/home/ada/mill")


def test_every_tool_and_its_arguments_have_their_row() -> None:
    rows = dict(re.findall(r"(?m)^`(\w+)\(([^)]*)\)` \|", TEXT))
    described = {
        name: ", ".join(
            field if field in tool.arguments.__struct_fields__[: _required(tool.arguments)] else f"{field}?"
            for field in tool.arguments.__struct_fields__
        )
        for name, tool in TOOLS.items()
    }
    assert {name: sorted(args.split(", ")) for name, args in rows.items()} == {
        name: sorted(args.split(", ")) for name, args in described.items()
    }


def _required(arguments: type) -> int:
    fields, defaults = arguments.__struct_fields__, arguments.__struct_defaults__  # type: ignore[attr-defined]
    return len(fields) - len(defaults)


def test_the_fields_and_numbers_are_those_of_the_code() -> None:
    fields = re.findall(r"`(\w+)`", TEXT.partition("`outputSchema`): ")[2].partition(".")[0])
    assert set(fields) <= set(RunReport.__struct_fields__)
    assert (PROGRESS_EVERY_S, SIGN_OF_LIFE_S) == (1 / 4, 10)
