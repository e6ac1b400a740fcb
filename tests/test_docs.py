"""The documents are held to the code: what they show runs, what they link to is there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from tailrace.cli.commands.decode import DecodedAnswer

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    ROOT / "README.md",
    *(ROOT / f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
MAX_WORDS = 35_000
MAX_PAGE_WORDS = 800  # of a page about one task
LONGER = {"failures.md", "threat-model.md", "performance.md"}  # tables


def words_in(document: Path) -> int:
    return len(document.read_text(encoding="utf-8").split())


def test_links_within_the_project_lead_somewhere() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#]+)", document.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_each_page_that_the_code_names_is_there() -> None:
    for module in (ROOT / "src").rglob("*.py"):
        for page in re.findall(r"(?<![\w/])docs/[\w/-]+\.md", module.read_text(encoding="utf-8")):
            assert (ROOT / page).exists(), f"{module.relative_to(ROOT)}: {page}"


def test_the_manual_stays_short() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert sum(map(words_in, pages)) <= MAX_WORDS
    tasks = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "integrations").glob("*.md")]
    long = {page.name: words_in(page) for page in tasks if words_in(page) > MAX_PAGE_WORDS}
    assert {name: words for name, words in long.items() if name not in LONGER} == {}


def test_the_map_names_every_page() -> None:
    listed = set(re.findall(r"\]\(([^)#]+)\)", (ROOT / "docs/index.md").read_text(encoding="utf-8")))
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert {page for page in pages if not page.startswith("decisions/0")} - listed == {"index.md"}


def test_the_reference_is_what_the_code_says() -> None:
    checked = subprocess.run(
        [sys.executable, "scripts/reference.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout) == (0, ""), checked.stderr


def test_the_architecture_names_rooms_that_are_there() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    paths = re.findall(r"`([a-z_0-9]+(?:/[a-z_0-9]+)*(?:/|\.py))`", page)
    assert len(paths) > 25
    for path in paths:
        assert (ROOT / "src/tailrace" / path).exists(), path


def test_the_page_shows_the_output_of_decode_as_it_is() -> None:
    [line] = re.findall(r"^\{.*\}$", (ROOT / "docs/decoding.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert list(json.loads(line)) == list(DecodedAnswer.__struct_fields__)


def test_the_readme_opens_with_the_two_commands() -> None:
    opening = (ROOT / "README.md").read_text(encoding="utf-8").split("```")[1]
    assert [line.split("#")[0].strip() for line in opening.strip().splitlines()] == ["make chat", "make test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"(?m)(?:`|^)make ([a-z]+)", (ROOT / "README.md").read_text(encoding="utf-8")):
        assert f"\n{target}:" in makefile, target
