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
        ("raise SystemExit('no licence')\n", "cannot be loaded: SystemExit: no licence"),
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


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ("settings=PlatformSettings()", "its settings are no class"),
        ("commands=None", "its commands: Expected `object`, got `null`"),
        ("commands={'odd': 'module'}", "its commands: Expected `array`, got `str` - at `$[...]`"),
        ("commands={'odd': CliCommand('help', None)}", "its commands: Expected `str`, got `null` - at `$[...][1]`"),
        ("routes=len", "its routes: <built-in function len> is of an unexpected type"),
        ("store=StoreKind('mysql', 'mysql://', '.x:y')", "its store: Expected `array`, got `str` - at `$[0]`"),
        ("streams='yes'", "its streams: Expected `bool`, got `str`"),
    ],
)
def test_a_field_of_another_type_is_named(
    fields: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = GOOD + f"from tailrace.plugins import CliCommand, StoreKind\nINTEGRATION = Integration('odd', {fields})\n"
    site = broken_package(tmp_path, "odd", source)
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "tailrace_odd", raising=False)
    [package] = distributions(path=[str(site)])
    assert search(package.entry_points) == ({}, {"odd": f"the integration odd cannot be used: {why}"})


def test_a_part_that_cannot_be_loaded_or_fails_is_a_config_error() -> None:
    slack = installed()["slack"]
    with pytest.raises(ConfigError, match=r"platforms.slack: Slack cannot be loaded: AttributeError"):
        slack.load(".setup:NO_SUCH", key="platforms.slack")
    with pytest.raises(ConfigError, match=r"the library of Slack is not installed \(No module named .*slack\]"):
        slack.load(".no_such_module")
    with pytest.raises(ConfigError, match="Slack failed: TypeError"):
        slack.call(".adapter:make")
    with pytest.raises(ConfigError, match="Slack failed: SystemExit: 3"):
        slack.call("sys:exit", 3)


def test_what_a_call_returns_is_checked_one_by_one() -> None:
    slack = installed()["slack"]
    assert slack.call_for_each(int, "builtins:range", 2) == (0, 1)
    with pytest.raises(ConfigError, match="Slack failed: TypeError: 'NoneType' object is not iterable"):
        slack.call_for_each(int, "builtins:print")
    with pytest.raises(ConfigError, match="Slack failed: TypeError: builtins:list returned 'a', which is no int"):
        slack.call_for_each(int, "builtins:list", "a")
    with pytest.raises(ConfigError, match="Slack failed: ZeroDivisionError"):
        slack.call_for_each(int, "builtins:range", 2, check=lambda item: 1 // item)


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
