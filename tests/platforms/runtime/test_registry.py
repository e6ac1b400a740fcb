"""Which platforms there are, and what a missing library means."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tailrace.config.load import load
from tailrace.errors import ConfigError
from tailrace.platforms.runtime.registry import make_platform
from tailrace.system.extras import install_command

LIBRARIES = {"telegram": "telegram", "discord": "discord", "slack": "slack_sdk.errors", "matrix": "nio"}


@pytest.mark.parametrize(("name", "library"), LIBRARIES.items())
def test_without_its_library_one_line_says_what_to_install(
    name: str, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    for module in [module for module in sys.modules if module.startswith(f"tailrace.platforms.{name}")]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(ConfigError, match=re.escape(install_command(name))) as missing:
        make_platform(load({}, tmp_path), name)
    assert "\n" not in str(missing.value)
