"""The documents are held to the code: what they show runs, what they link to is there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tailrace.cli.commands.decode import DecodedAnswer

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    ROOT / "README.md",
    *(ROOT / f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY")),
    *sorted((ROOT / "docs").rglob("*.md")),
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_within_the_project_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", document.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (document.parent / target).exists(), target


def test_the_architecture_names_rooms_that_are_there() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    paths = re.findall(r"`([a-z_0-9]+(?:/[a-z_0-9]+)*(?:/|\.py))`", page)
    assert len(paths) > 25
    for path in paths:
        assert (ROOT / "src/tailrace" / path).exists(), path


def test_the_readme_shows_the_output_of_decode_as_it_is() -> None:
    [line] = re.findall(r"^\{.*\}$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert list(json.loads(line)) == list(DecodedAnswer.__struct_fields__)


def test_the_readme_opens_with_the_two_commands() -> None:
    opening = (ROOT / "README.md").read_text(encoding="utf-8").split("```")[1]
    assert [line.split("#")[0].strip() for line in opening.strip().splitlines()] == ["make chat", "make test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"(?m)(?:`|^)make ([a-z]+)", (ROOT / "README.md").read_text(encoding="utf-8")):
        assert f"\n{target}:" in makefile, target
