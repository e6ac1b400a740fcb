"""Clients that are not installed are a reason to skip a test, but not in CI."""

from __future__ import annotations

from pathlib import Path

import pytest

from clients.installed import clients_dir


def test_a_test_without_its_client_skips_and_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_CLIENTS_DIR", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="make clients"):
        clients_dir()


def test_in_ci_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_CLIENTS_DIR", str(tmp_path))
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="make clients"):
        clients_dir()
