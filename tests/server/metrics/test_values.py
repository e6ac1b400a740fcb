"""The numbers that workers share: summed, kept when one dies, bounded."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator

import pytest

from tailrace.server.metrics.registry import Metrics
from tailrace.server.metrics.values import FILE_BYTES, WorkerValues, mark_dead, new_values_files


@pytest.fixture
def files() -> Iterator[list[int]]:
    made = new_values_files(2)
    yield made
    for fd in made:
        os.close(fd)


def test_each_worker_shows_the_sum_of_all(files: list[int]) -> None:
    one, two = (Metrics(WorkerValues(index, files)) for index in (1, 2))
    one.requests.inc("/runs", "200")
    two.requests.inc("/runs", "200")
    two.requests.inc('/"x"', "404", by=3)
    one.first_token.observe(0.2)
    two.first_token.observe(0.7)
    one.viewers.inc()
    two.viewers.inc()
    one.viewers.inc(by=-1)
    two.running.set(5)
    assert one.text() == two.text()
    assert 'tailrace_requests_total{route="/runs",status="200"} 2\n' in one.text()
    assert 'tailrace_requests_total{route="/\\"x\\"",status="404"} 3\n' in one.text()
    assert "tailrace_time_to_first_token_seconds_count 2\n" in one.text()
    assert "tailrace_time_to_first_token_seconds_sum 0.9\n" in one.text()
    assert (one.viewers.value, one.running.value) == (1, 5)


def test_a_dead_worker_s_counts_stay_and_what_it_had_in_flight_goes(files: list[int]) -> None:
    one, two = (Metrics(WorkerValues(index, files)) for index in (1, 2))
    for metrics in (one, two):
        metrics.requests.inc("/runs", "200")
        metrics.in_flight.inc()
        metrics.first_token.observe(0.2)
    mark_dead(files[1])
    assert (one.requests.values, one.in_flight.value) == ({("/runs", "200"): 2}, 1)
    replacement = Metrics(WorkerValues(2, files))
    assert replacement.in_flight.value == 1
    replacement.requests.inc("/runs", "200")
    replacement.in_flight.inc()
    assert (one.requests.values, one.in_flight.value) == ({("/runs", "200"): 3}, 2)
    assert sum(one.first_token.counts) == 2


def test_a_worker_that_died_while_it_added_a_series_leaves_no_numbers(files: list[int]) -> None:
    before = Metrics(WorkerValues(1, files))
    used = int.from_bytes(os.pread(files[0], 8, 0), sys.byteorder)
    os.pwrite(files[0], b"a" * 256, used)  # a long key; the bytes in use were not counted up yet
    mark_dead(files[0])
    replacement = Metrics(WorkerValues(1, files))
    replacement.requests.inc("/runs", "200")
    assert replacement.requests.values == {("/runs", "200"): 1}
    assert before.requests.values == {("/runs", "200"): 1}


def test_one_process_shows_what_it_did_before() -> None:
    alone = Metrics()
    alone.requests.inc("/runs", "200")
    alone.in_flight.inc()
    assert 'tailrace_requests_total{route="/runs",status="200"} 1\n' in alone.text()
    assert alone.in_flight.value == 1


def test_a_full_file_is_said_once_and_breaks_nothing(files: list[int], caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics(WorkerValues(1, files))
    logging.getLogger("tailrace").propagate = True
    with caplog.at_level(logging.WARNING, "tailrace.server"):
        for number in range(FILE_BYTES // 1000 + 10):
            metrics.requests.inc("/" + "x" * 1000, str(number))
    assert len(caplog.records) == 1
    assert metrics.requests.values["/" + "x" * 1000, "0"] == 1
    assert len(metrics.text()) < 2 * FILE_BYTES
