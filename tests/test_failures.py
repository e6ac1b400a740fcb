"""docs/failures.md lists every failure that the code and the tests name, and a test shows each."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
_ROW = re.compile(r"(?m)^([A-O]\d{2,3}) \| (.+) \| (.+)$")
_ID = re.compile(r"(?<![A-Za-z0-9])([A-O]\d{2,3})(?![0-9])")
ROWS = _ROW.findall((ROOT / "docs" / "failures.md").read_text(encoding="utf-8"))
LISTED = {failure for failure, _, _ in ROWS}


def ids_in(text: str) -> set[str]:
    return set(_ID.findall(re.sub(r"# noqa:.*", "", text)))


def ids_shown_by(module: Path) -> Iterator[set[str]]:
    """What each test names in its name, decorators, docstring or body. The module's docstring counts for all."""
    text = module.read_text(encoding="utf-8")
    tree, lines = ast.parse(text), text.splitlines()
    for node in _tests_in(tree):
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        yield ids_in("\n".join([ast.get_docstring(tree) or "", *lines[first - 1 : node.end_lineno]]))


def _tests_in(scope: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Where pytest looks for them: at the top of a module, and in its classes."""
    for node in scope.body:
        if isinstance(node, ast.ClassDef):
            yield from _tests_in(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node


def test_a_test_shows_each_failure() -> None:
    """A mention in a module beside the tests does not count."""
    modules = [*(ROOT / "tests").rglob("test_*.py")]
    shown = {failure for module in modules for ids in ids_shown_by(module) for failure in ids}
    assert sorted(LISTED - shown) == []


def test_the_page_explains_each_id_of_the_code_and_the_tests() -> None:
    modules = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    named = {failure for module in modules for failure in ids_in(module.read_text(encoding="utf-8"))}
    assert sorted(named - LISTED) == []


def test_each_failure_has_one_row_that_ends_in_a_sentence() -> None:
    assert len(ROWS) == len(LISTED)
    assert [failure for failure, _, answer in ROWS if not answer.endswith((".", "`"))] == []
