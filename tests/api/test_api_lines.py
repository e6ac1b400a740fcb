"""Programs in few lines: ours have at most as many as the shortest of another library, and the manual says so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests/clients/programs/lines"  # `clients/test_lines.py` runs them
ROWS = {  # of the table in the manual
    "a tool, streamed": "streamed_tool.py",
    "one question, blocking": "blocking.py",
    "a typed answer": "typed.py",
    "a call paid once per key": "once_per_key.py",
    "three steps, parallel, resumed after `kill -9`": "three_steps.py",
    "a provider that breaks on request": "test_faulty_provider.py",
}
NAMES = {"pydantic_ai": "pydantic-ai", "openai_agents": "openai-agents", "langgraph": "LangGraph", "dbos": "DBOS"}


def lines_in(program: Path) -> int:
    return sum(bool(line.strip()) for line in program.read_text(encoding="utf-8").splitlines())


def table() -> dict[str, tuple[int, str]]:
    page = (ROOT / "docs/library.md").read_text(encoding="utf-8")
    rows = re.findall(r"^(.+?) \| (\d+) \| (.+)$", page, re.MULTILINE)
    return {label: (int(ours), others) for label, ours, others in rows}


@pytest.mark.parametrize(("label", "name"), ROWS.items(), ids=ROWS.values())
def test_a_program_is_no_longer_than_the_shortest_of_another_library(label: str, name: str) -> None:
    ours = lines_in(PROGRAMS / "tailrace" / name)
    others = {path.parent.name: lines_in(path) for path in PROGRAMS.glob(f"*/{name}") if path.parent.name != "tailrace"}
    told, words = table()[label]
    assert told == ours
    if not others:
        assert words == "none"
        return
    shortest = min(others.values())
    assert ours <= shortest, others
    assert words.startswith(f"{shortest}: ")
    assert {NAMES[library] for library, count in others.items() if count == shortest} == set(
        re.findall(r"[a-zA-Z]+(?:-[a-z]+)?", words.partition(": ")[2])
    )


def test_every_program_stands_in_the_table() -> None:
    assert {path.name for path in PROGRAMS.glob("*/*.py")} == set(ROWS.values())
    assert set(table()) == {*ROWS, "watched elsewhere"}
