"""`tailrace doctor --fix`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.cli.setup.doctor import findings


async def test_doctor_takes_the_rights_of_others_away_where_it_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path))
    tmp_path.chmod(0o755)
    [found] = [each async for each in findings(offline=True) if "other users" in each.what]
    assert (found.state, "doctor --fix" in found.advice) == ("broken", True)
    assert tmp_path.stat().st_mode & 0o077 != 0
    said = [each.what async for each in findings(offline=True, fix=True)]
    assert f"fixed: other users may not read {tmp_path} any more" in said
    assert tmp_path.stat().st_mode & 0o077 == 0
