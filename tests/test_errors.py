"""The taxonomy: what the caller can do is a class, and every message is one line."""

from __future__ import annotations

import inspect

import pytest

from tailrace import errors
from tailrace.errors import (
    ConfigError,
    CorruptLog,
    JournalError,
    PeerError,
    Permanent,
    ProviderError,
    Rejected,
    Retryable,
    RunNotFound,
    RunOwned,
    RunSealed,
    StaleEpoch,
    StreamCut,
    TailraceError,
    TimedOut,
    Unavailable,
)

ALL = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, Exception)]


def test_everything_raised_on_purpose_has_one_root() -> None:
    assert all(issubclass(cls, TailraceError) for cls in ALL)


@pytest.mark.parametrize("cls", [Unavailable, TimedOut, StreamCut, PeerError])
def test_what_may_succeed_later_is_retryable(cls: type[ProviderError]) -> None:
    assert issubclass(cls, Retryable)
    assert cls.kind == "retryable"


def test_what_will_fail_again_is_permanent() -> None:
    assert issubclass(Rejected, Permanent)
    assert Rejected.kind == "permanent"


def test_every_provider_error_is_one_of_the_two_and_never_both() -> None:
    for cls in ALL:
        if issubclass(cls, ProviderError) and cls is not ProviderError:
            assert issubclass(cls, Retryable) != issubclass(cls, Permanent), cls


@pytest.mark.parametrize("cls", [RunNotFound, RunOwned, StaleEpoch, RunSealed, CorruptLog])
def test_what_a_journal_refuses_is_a_journal_error(cls: type[Exception]) -> None:
    assert issubclass(cls, JournalError)


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ConfigError("bad", file="c.yaml", line=3, key="a.b"), "c.yaml:3: a.b: bad"),
        (ConfigError("bad", file="c.yaml", line=3), "c.yaml:3: bad"),
        (ConfigError("bad", file="c.yaml"), "c.yaml: bad"),
        (ConfigError("bad", key="VARIABLE"), "VARIABLE: bad"),
        (ConfigError("bad", line=3), "bad"),
        (ConfigError("bad"), "bad"),
    ],
)
def test_a_config_error_names_what_is_known(error: ConfigError, shown: str) -> None:
    assert str(error) == shown


def test_errors_carry_what_a_caller_decides_by() -> None:
    busy = Unavailable("busy", status=429, code="rate_limit_error", provider="p", retry_after_s=2.5)
    assert (busy.status, busy.code, busy.provider, busy.retry_after_s) == (429, "rate_limit_error", "p", 2.5)
    assert TimedOut("slow", deadline="first_token", provider="p").deadline == "first_token"
    assert StreamCut("cut").retry_after_s is None
    assert RunOwned("taken", owner="host:1").owner == "host:1"


def test_a_peer_error_keeps_the_beginning_of_the_bytes_and_no_more() -> None:
    assert PeerError("x", excerpt=b"a" * 10_000).excerpt == b"a" * 512
