"""Each dependency has its reason in docs/dependencies.md, and the locks pin what they install by hash."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REASONS = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
THREATS = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
_ROW = re.compile(r"^([a-z][a-z0-9.-]+) \| ([a-z]*) ?\| (.{20,})$", re.MULTILINE)


def name_of(requirement: str) -> str:
    [name] = re.findall(r"^[A-Za-z0-9._-]+", requirement)
    return str(name).lower()


def test_each_dependency_has_a_reason_and_its_extra() -> None:
    installed = {name_of(requirement): "" for requirement in PROJECT["dependencies"]}
    for extra, requirements in PROJECT["optional-dependencies"].items():
        installed |= {name_of(requirement): extra for requirement in requirements if extra != "all"}
    explained = {name: extra for name, extra, _ in _ROW.findall(REASONS)}
    assert explained == installed


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_each_pin_has_its_hashes_and_no_index_is_named(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    pins = re.findall(r"(?m)^[a-z0-9][^\n]*==[^\n]*(?:\n    [^\n]+)*", text)
    assert len(pins) == len(re.findall("==", re.sub(r"(?m)^#.*| ;.*", "", text))) >= 1
    for pin in pins:
        assert "--hash=sha256:" in pin, pin.splitlines()[0]
    assert "://" not in re.sub(r"(?m)^#.*", "", text)
    assert "-index" not in text


def test_the_threat_model_names_tests_that_are_there() -> None:
    rows = re.findall(r"^(.+) \| (.+) \| ((?:`[a-z_/0-9]+\.py`(?:, )?)+)$", THREATS, re.MULTILINE)
    assert len(rows) > 30
    for threat, answer, shown_by in rows:
        paths = [ROOT / "tests" / path for path in re.findall(r"`([^`]+)`", shown_by)]
        texts = "".join(path.read_text(encoding="utf-8") for path in paths)
        for failure in re.findall(r"\b[A-M]\d{2,3}\b", threat + answer):
            assert failure in texts, f"{failure} is shown by none of {shown_by}"


def test_each_security_failure_is_in_the_threat_model() -> None:
    failures = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
    security = re.findall(r"(?m)^(J\d+) \|", failures)
    assert [failure for failure in security if failure not in THREATS] == []
