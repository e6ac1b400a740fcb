"""How long a call waits before it asks again, and what the provider's headers ask for."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.config.sections import CallPolicy
from tailrace.providers.retry.backoff import delay_s, retry_after_s

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": format_datetime(NOW + timedelta(seconds=40), usegmt=True)}, 40.0),
        ({"retry-after": format_datetime(NOW - timedelta(hours=1), usegmt=True)}, 0.0),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Sun, 99 Nov 2026 12:00:00 GMT"}, None),
        ({"retry-after": "Sun, 15 Nov 2026 12:00:30 GMT", "date": "Sun, 15 Nov 2026 12:00:10 GMT"}, 20.0),
    ],
)
def test_E66_what_the_headers_ask_for(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers, now=NOW) == seconds


@given(seed=st.integers(), failures=st.integers(1, 5000), asked=st.none() | st.floats(0, 1e12))
def test_E66_a_wait_is_never_negative_nor_past_the_cap(seed: int, failures: int, asked: float | None) -> None:
    policy = CallPolicy(backoff_s=0.5, backoff_max_s=30.0)
    wait = delay_s(policy, failures=failures, asked_s=asked, rng=random.Random(seed))
    assert 0 <= wait <= 33.0
    if asked is not None:
        assert wait >= min(asked, 30.0)
