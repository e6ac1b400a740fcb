"""Writes the last column of docs/failures.md: which test modules name each failure. `--check` only compares, `--count`
prints how many tests show each failure.

A failure has an id such as B34. A test names it in its own name, its docstring or a comment; the page says what breaks
and what Tailrace does about it, and this script fills in where that is shown.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "failures.md"
MAX_TESTS = 3  # modules named per failure: the page is read by people
_ROW = re.compile(r"^\| ([A-M]\d{2,3}) \| (.*) \| (.*) \| (.*) \|$", re.MULTILINE)
_ID = re.compile(r"(?<![A-Za-z0-9])([A-M]\d{2,3})(?![0-9])")


def named_in(directory: Path) -> dict[str, list[str]]:
    """The ids that modules below the directory name, each with those modules, the most mentions first."""
    mentions: dict[str, dict[str, int]] = defaultdict(dict)
    for module in sorted(directory.rglob("*.py")):
        text = re.sub(r"# noqa:.*", "", module.read_text(encoding="utf-8"))
        for failure in _ID.findall(text):
            path = module.relative_to(ROOT).as_posix()
            mentions[failure][path] = mentions[failure].get(path, 0) + 1
    return {
        failure: sorted(modules, key=lambda module: (-modules[module], module)) for failure, modules in mentions.items()
    }


def shown_by() -> dict[str, list[str]]:
    """The failures that tests show, each with those tests: what a test's own name, decorators, docstring or body names.
    What the first line of a module names is shown by all of its tests."""
    tests: dict[str, list[str]] = defaultdict(list)
    for module in sorted((ROOT / "tests").rglob("test_*.py")):
        text = module.read_text(encoding="utf-8")
        tree, lines = ast.parse(text), text.splitlines()
        of_all = _ID.findall(ast.get_docstring(tree) or "")
        for node in _tests_in(tree):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            own = _ID.findall("\n".join(lines[first - 1 : node.end_lineno]))
            for failure in {*own, *of_all}:
                tests[failure].append(f"{module.relative_to(ROOT)}::{node.name}")
    return tests


def _tests_in(scope: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Where pytest looks for them: at the top of a module, and in its classes."""
    for node in scope.body:
        if isinstance(node, ast.ClassDef):
            yield from _tests_in(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node


def rows(page: str) -> dict[str, str]:
    """The ids that the page lists, each with its tests."""
    return {match[1]: match[4] for match in _ROW.finditer(page)}


def filled_in(page: str, tests: dict[str, list[str]]) -> str:
    """The page with the column of tests as the tests are now."""

    def row(match: re.Match[str]) -> str:
        shown = ", ".join(f"`{path.removeprefix('tests/')}`" for path in tests.get(match[1], [])[:MAX_TESTS])
        return f"| {match[1]} | {match[2]} | {match[3]} | {shown or '—'} |"

    return _ROW.sub(row, page)


def main() -> int:
    if "--count" in sys.argv[1:]:
        tests = shown_by()
        for failure in rows(PAGE.read_text(encoding="utf-8")):
            print(f"{failure} {len(tests[failure])}")
        return 0
    page = PAGE.read_text(encoding="utf-8")
    wanted = filled_in(page, named_in(ROOT / "tests"))
    if page == wanted:
        return 0
    if "--check" in sys.argv[1:]:
        print("docs/failures.md names other tests than there are\n  run: python scripts/failure_tests.py")
        return 1
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
