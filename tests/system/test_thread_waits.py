from __future__ import annotations

import sys
import threading

import pytest

from tailrace.journal.sqlite.commits import wait_count


def test_a_thread_that_waits_is_counted() -> None:
    before = wait_count()
    threading.Event().wait(0.001)
    assert wait_count() > before


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a wait cannot be ruled out")
def test_a_thread_that_computes_has_not_waited() -> None:
    def waits_of_a_computation() -> int:
        before = wait_count()
        sum(range(1000))
        return wait_count() - before

    assert min(waits_of_a_computation() for _ in range(20)) == 0
