"""Which files tell the rules of a project, in which order, and how much of them is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.app.project_rules import MAX_BYTES, project_rules

NAMES = ("AGENTS.md", "CLAUDE.md")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory two levels below the top of a work tree."""
    inner = tmp_path / "project" / "part" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "project" / ".git").mkdir()
    return inner


def test_the_nearest_file_stands_last_and_nothing_above_the_work_tree_counts(project: Path, tmp_path: Path) -> None:
    top = tmp_path / "project"
    for place, text in ((tmp_path, "stranger"), (top, "outer"), (project, "inner")):
        (place / "AGENTS.md").write_text(text)
    (top / "part" / "CLAUDE.md").write_text("middle")
    (top / "CLAUDE.md").write_text("not read beside AGENTS.md")
    rules = project_rules(project, NAMES)
    assert rules.files == (top / "AGENTS.md", top / "part" / "CLAUDE.md", project / "AGENTS.md")
    assert [word for word in rules.text.split() if word in ("stranger", "outer", "middle", "inner")] == [
        "outer",
        "middle",
        "inner",
    ]
    assert "beside" not in rules.text


def test_without_a_work_tree_only_the_directory_itself_counts_outside_the_home(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("above")
    inner = tmp_path / "inner"
    inner.mkdir()
    assert project_rules(inner, NAMES).files == ()
    (inner / "AGENTS.md").write_text("here")
    assert project_rules(inner, NAMES).files == (inner / "AGENTS.md",)


def test_long_rules_are_cut_the_outermost_first(project: Path, tmp_path: Path) -> None:
    (tmp_path / "project" / "AGENTS.md").write_text("o" * MAX_BYTES)
    (project / "AGENTS.md").write_text("i" * (MAX_BYTES - 100))
    text = project_rules(project, NAMES).text
    assert (text.count("i" * (MAX_BYTES - 100)), "o" * 100 in text, "o" * 101 in text) == (1, True, False)
    assert "cut off" in text
    assert len(text) < MAX_BYTES + 1000


def test_a_link_out_of_the_project_is_no_rule(project: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (project / "AGENTS.md").symlink_to(tmp_path / "secret")
    (project / "CLAUDE.md").symlink_to(tmp_path / "gone")
    assert project_rules(project, NAMES).files == ()


def test_what_is_no_file_and_what_may_not_be_read_is_left_out(project: Path) -> None:
    (project / "AGENTS.md").mkdir()
    (project / "CLAUDE.md").write_bytes(b"caf\xe9")
    assert "caf�" in project_rules(project, NAMES).text
    assert project_rules(project, ()).files == ()
