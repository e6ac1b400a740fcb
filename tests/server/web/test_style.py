"""The page's design stands once, in `variables.css`: every other style takes its measures from there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

STYLE = Path(__file__).parents[3] / "src/tailrace/server/web/style"
SHARED = ("base", "sidebar", "conversation", "answer", "approvals")


@pytest.mark.parametrize("name", SHARED)
def test_sizes_radii_and_colours_are_those_of_the_design(name: str) -> None:
    style = (STYLE / f"{name}.css").read_text(encoding="utf-8")
    sizes = re.findall(r"font-size: ([^;]+?)(?: !important)?;", style)
    assert [size for size in sizes if not re.fullmatch(r"var\(--text-\d\d\)|[\d.]+em", size)] == []
    radii = re.findall(r"border-radius: ([^;]+);", style)
    assert [radius for radius in radii if radius not in ("var(--radius)", "var(--round)", "inherit")] == []
    assert re.findall(r"#[0-9a-f]{6}\b", style) == [], "colours have names"
    spaces = re.findall(r"(?:padding|margin|gap)(?:-[a-z-]+)?: ([^;]+);", style)
    own = [each for value in spaces for each in re.findall(r"(?<![\w-])-?([\d.]+)rem", value)]
    assert [each for each in own if float(each) > 0.1] == []
