"""What a search for integrations finds, and what it says of packages that are broken."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, distributions
from pathlib import Path

import pytest

from plugins.broken_package import GOOD, broken_package
from tailrace.errors import ConfigError
from tailrace.plugins.installed import GROUP, installed, search


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("import no_such_library\n", "cannot be loaded: ModuleNotFoundError: No module named 'no_such_library'"),
        ("raise RuntimeError('born\\nbroken')\n", "cannot be loaded: RuntimeError: born broken"),
        ("", "cannot be loaded: AttributeError: module 'tailrace_odd' has no attribute 'INTEGRATION'"),
        ("INTEGRATION = 'me'\n", "cannot be used: tailrace_odd:INTEGRATION is no Integration of that name"),
        (
            GOOD + "INTEGRATION = Integration(name='other')\n",
            "cannot be used: tailrace_odd:INTEGRATION is no Integration of that name",
        ),
    ],
)
def test_a_broken_package_is_left_out_and_named(
    source: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = broken_package(tmp_path, "odd", source)
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "tailrace_odd", raising=False)
    [package] = distributions(path=[str(site)])
    found = search([*package.entry_points, EntryPoint("acp", "tailrace.integrations.acp:INTEGRATION", GROUP)])
    assert (list(found.installed), dict(found.problems)) == (["acp"], {"odd": f"the integration odd {why}"})


def test_a_part_that_cannot_be_loaded_or_fails_is_a_config_error() -> None:
    slack = installed()["slack"]
    with pytest.raises(ConfigError, match=r"platforms.slack: Slack cannot be loaded: AttributeError"):
        slack.load(".setup:NO_SUCH", key="platforms.slack")
    with pytest.raises(ConfigError, match=r"the library of Slack is not installed \(No module named .*slack\]"):
        slack.load(".no_such_module")
    with pytest.raises(ConfigError, match="Slack failed: TypeError"):
        slack.call(".adapter:make")


def test_of_two_packages_with_one_name_the_first_is_taken() -> None:
    points = [
        EntryPoint("slack", "tailrace.integrations.slack:INTEGRATION", GROUP),
        EntryPoint("slack", "tailrace.integrations.slack.setup:QUESTIONS", GROUP),
        EntryPoint("acp", "tailrace.integrations.slack:INTEGRATION", GROUP),
    ]
    found = search([*points, points[0]])
    assert [(name, each.package) for name, each in found.installed.items()] == [
        ("slack", "tailrace.integrations.slack")
    ]
    assert "no Integration of that name" in found.problems["acp"]
    assert "is not used" in found.problems["slack"]
