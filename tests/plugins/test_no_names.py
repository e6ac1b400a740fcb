"""An integration is named in its own folder and nowhere else in the package."""

from __future__ import annotations

import re
from pathlib import Path

import tailrace
from tailrace.plugins.installed import installed

SOURCE = Path(tailrace.__file__).parent
OWN_ROOMS = (SOURCE / "integrations", SOURCE / "testing")
VENDORED = SOURCE / "server" / "web" / "vendor"  # libraries of others, minified: short names mean anything there


def pattern() -> re.Pattern[str]:
    """Each name, and each title with any mark between its words. `redis` is no part of `rediscover`, nor `mcp_server`
    of `mcp_servers`: those are where the agent's tools come from."""
    titles = {found.integration.title.removeprefix("the ") for found in installed().values()} - {""}
    spelled = [*installed(), *(re.sub(r"[- ]", "[-_ ]?", title) for title in titles)]
    return re.compile(rf"(?<![a-z])(?:{'|'.join(spelled)})(?:ql)?(?![a-z])", re.IGNORECASE)


def test_the_pattern_knows_each_spelling() -> None:
    found = pattern()
    named = [
        "telegram:7",
        "SLACK_BOT_TOKEN",
        "postgresql://",
        "Home Assistant's",
        "/ag-ui",
        "the AI SDK",
        "_redis(",
        "acp",
    ]
    others = ["rediscover", "slacken", "capacity", "mcp_servers", "mcp.servers", "an MCP server"]
    assert [text for text in [*named, *others] if found.search(text)] == named


def test_no_integration_is_named_outside_its_folder() -> None:
    found = pattern()
    named = [
        f"{path.relative_to(SOURCE)}:{number}: {line.strip()[:80]}"
        for path in sorted(SOURCE.rglob("*"))
        if path.suffix in (".py", ".js", ".css", ".html", ".json", ".sql") and not path.is_relative_to(OWN_ROOMS[0])
        if not path.is_relative_to(OWN_ROOMS[1]) and not path.is_relative_to(VENDORED)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if found.search(line)
    ]
    assert named == []


def test_each_folder_is_an_integration_with_an_entry_point() -> None:
    folders = {path.parent.name for path in (SOURCE / "integrations").glob("*/__init__.py")}
    assert set(installed()) >= folders
    assert {name for name in folders if installed()[name].package != f"tailrace.integrations.{name}"} == set()
