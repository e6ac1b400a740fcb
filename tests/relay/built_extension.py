"""The C extension, compiled from the checkout."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@cache
def compiled() -> ModuleType:
    """Skips the test where it cannot be compiled, and says why."""
    if sys.platform != "linux":
        pytest.skip("tailrace-relay needs Linux")
    if shutil.which("cc") is None:
        pytest.skip("no C compiler: cc is not on the PATH")
    if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        pytest.skip("this Python has no headers")
    directory = Path(tempfile.mkdtemp(prefix="tailrace-relay-"))
    build = "import sys, pathlib, build_relay; print(build_relay.compile_module(pathlib.Path(sys.argv[1])))"
    command = [sys.executable, "-c", build, str(directory)]
    made = subprocess.run(command, cwd=ROOT / "relay", check=True, capture_output=True, text=True).stdout.strip()
    spec = importlib.util.spec_from_file_location("tailrace_relay", made)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shutil.rmtree(directory)  # it is loaded
    return module
