"""The clients that `make clients` installs: where they are, and how a test runs one.

`TAILRACE_CLIENTS_DIR` names the directory; without it, `.clients` in the project is taken. A test skips with the reason
where they are not installed, and fails where `CI` is set: there they must be.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
# what is not meant for this machine goes to a port where nobody listens
LOOPBACK_ONLY = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9"),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
}
_LONGEST_S = 300  # of one client, on a busy machine


def clients_dir() -> Path:
    """The directory with `node_modules` and `venv`. Skips the test where there is none, and fails it in CI."""
    directory = Path(os.environ.get("TAILRACE_CLIENTS_DIR") or ROOT / ".clients").absolute()
    if (directory / "node_modules").is_dir() and (directory / "venv/bin/python").exists():
        return directory
    reason = f"no clients in {directory}; run: make clients"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def client_environment(home: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """What a client sees: the clients' programs on the PATH, an empty home, and nobody's own keys or proxies."""
    clients = clients_dir()
    path = [clients / "venv/bin", clients / "node_modules/.bin", os.environ.get("PATH", "")]
    return {"PATH": os.pathsep.join(map(str, path)), "HOME": str(home), "LANG": "C.UTF-8", **LOOPBACK_ONLY, **variables}


def run_client(
    command: Sequence[str | Path], home: Path, variables: Mapping[str, str], *, fed: str = ""
) -> subprocess.CompletedProcess[str]:
    """Runs a client to its end in `home`; `node` finds the installed packages from there."""
    packages = home / "node_modules"
    if not packages.exists():
        packages.symlink_to(clients_dir() / "node_modules")
    return subprocess.run(
        command,
        cwd=home,
        env=client_environment(home, variables),
        input=fed,
        capture_output=True,
        text=True,
        timeout=_LONGEST_S,
        check=False,
    )
