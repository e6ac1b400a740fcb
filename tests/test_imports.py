"""Importing the package, all of it, changes nothing in the process that a host program may rely on."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import importlib, logging, pkgutil, signal, sqlite3, sys

def process_wide():
    foreign = {
        name: ([h for h in logger.handlers if not isinstance(h, logging.NullHandler)], logger.filters, logger.level)
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and name.partition(".")[0] != "tailrace"
    }
    changed = {name: state for name, state in foreign.items() if state != ([], [], 0)}
    root = (list(logging.root.handlers), list(logging.root.filters), logging.root.level)
    hooks = (signal.getsignal(signal.SIGINT), sys.excepthook)
    return changed, root, dict(sqlite3.adapters), dict(sqlite3.converters), hooks

before = process_wide()
import tailrace

for module in pkgutil.walk_packages(tailrace.__path__, "tailrace."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
after = process_wide()
assert after == before, (before, after)
print(len(sys.modules))
"""


def test_importing_every_module_leaves_loggers_and_sqlite3_as_they_were() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 1000, "and it did import them"
