"""`tailrace doctor --fix`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tailrace.cli.setup.doctor import findings
from tailrace.cli.setup.finding import Finding


def found(*, fix: bool = False) -> list[Finding]:
    async def collect() -> list[Finding]:
        return [each async for each in findings(offline=True, fix=fix)]

    return asyncio.run(collect())


def test_doctor_takes_the_rights_of_others_away_where_it_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path))
    tmp_path.chmod(0o755)
    [open_to_others] = [each for each in found() if "other users" in each.what]
    assert (open_to_others.state, "doctor --fix" in open_to_others.advice) == ("broken", True)
    assert tmp_path.stat().st_mode & 0o077 != 0
    assert f"fixed: other users may not read {tmp_path} any more" in [each.what for each in found(fix=True)]
    assert tmp_path.stat().st_mode & 0o077 == 0
