"""docs/failures.md lists every failure that the code and the tests name, and each is shown by a test."""

from __future__ import annotations

import pytest
from scripts.failure_tests import PAGE, ROOT, filled_in, named_in, rows

LISTED = rows(PAGE.read_text(encoding="utf-8"))
TESTED = named_in(ROOT / "tests")


@pytest.mark.parametrize("failure", sorted(LISTED))
def test_each_failure_is_shown_by_a_test(failure: str) -> None:
    assert failure in TESTED, f"no test names {failure}"


def test_each_id_in_the_code_and_the_tests_is_explained() -> None:
    named = set(named_in(ROOT / "src")) | set(TESTED)
    assert named - set(LISTED) == set()


def test_the_page_names_the_tests_that_there_are() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert filled_in(page, TESTED) == page, "run: python scripts/failure_tests.py"
