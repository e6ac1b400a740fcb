"""The command that installs an extra works where it is said."""

from __future__ import annotations

import importlib.metadata
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.system.extras import install_command


class _Distribution:
    def __init__(self, direct_url: object) -> None:
        self._direct_url = direct_url

    def read_text(self, _name: str) -> str | None:
        return json.dumps(self._direct_url) if self._direct_url is not None else None


@pytest.mark.parametrize(
    ("direct_url", "command"),
    [
        (None, "pip install 'tailrace[mcp]'"),
        ({"url": "file:///home/a%20b/src", "dir_info": {"editable": True}}, "pip install -e '/home/a b/src[mcp]'"),
        ({"url": "file:///src", "dir_info": {}}, "pip install '/src[mcp]'"),
        (
            {"url": "file:///dist/tailrace-0.1.0-py3-none-any.whl", "archive_info": {}},
            "pip install 'tailrace[mcp] @ file:///dist/tailrace-0.1.0-py3-none-any.whl'",
        ),
        ("no object", "pip install 'tailrace[mcp]'"),
    ],
)
def test_M156_an_extra_is_installed_from_where_the_package_came(
    monkeypatch: pytest.MonkeyPatch, direct_url: object, command: str
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _name: _Distribution(direct_url))
    assert install_command("mcp") == command


def test_M156_the_command_works_here() -> None:
    if importlib.metadata.distribution("tailrace").read_text("direct_url.json") is None:
        pytest.skip("installed from an index")
    arguments = shlex.split(install_command("prices"))[1:]
    dry = ["--dry-run", "--no-deps", "--no-build-isolation", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *arguments, *dry], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
