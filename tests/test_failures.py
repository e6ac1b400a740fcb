"""docs/failures.md lists every failure that the code and the tests name, and each is shown by a test."""

from __future__ import annotations

import re
from functools import cache

import pytest
from scripts.failure_tests import PAGE, ROOT, filled_in, named_in, rows, shown_by

LISTED = rows(PAGE.read_text(encoding="utf-8"))
# Both read every test: when the first test here asks for them, not in each worker that collects the tests.
TESTED = cache(lambda: named_in(ROOT / "tests"))
SHOWN = cache(shown_by)


@pytest.mark.parametrize("failure", sorted(LISTED))
def test_each_failure_is_shown_by_a_test(failure: str) -> None:
    """By a test, not by a word in a module beside the tests."""
    assert SHOWN().get(failure), f"no test names {failure}"


def test_each_id_in_the_code_and_the_tests_is_explained() -> None:
    named = set(named_in(ROOT / "src")) | set(TESTED())
    assert named - set(LISTED) == set()


def test_the_page_names_the_tests_that_there_are() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert filled_in(page, TESTED()) == page, "run: python scripts/failure_tests.py"


def test_each_row_says_what_breaks_and_what_is_done_about_it() -> None:
    lines = re.findall(r"(?m)^\| [A-M]\d+ .*$", PAGE.read_text(encoding="utf-8"))
    assert len(lines) == len(LISTED), "an id is listed twice, or a row is not whole"
    for line in lines:
        _, _, breaks, done, shown, _ = re.split(r"(?<!\\) ?\| ?", line)
        assert breaks, line
        assert done.endswith((".", "`")), line
        assert shown not in ("", "—"), line
