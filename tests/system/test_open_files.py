"""A server asks for as many open files as it may have, and says so where they are too few."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tailrace.cli.commands.serve import FILES_BESIDE, files_warning

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="limits are POSIX's")

ASK = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
from tailrace.system.open_files import allow_open_files
print(allow_open_files(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def asked(*, soft: int, hard: int) -> list[int]:
    """What `allow_open_files` returns in a process with these limits, and the limits that it has then."""
    program = ASK.format(soft=soft, hard=hard)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return [int(number) for number in done.stdout.split()]


def test_the_limit_of_a_shell_is_raised_to_what_the_system_allows() -> None:
    assert asked(soft=100, hard=200) == [200, 200, 200]
    assert asked(soft=150, hard=150) == [150, 150, 150]


def test_too_few_files_for_the_requests_are_warned_of_with_the_remedy() -> None:
    assert files_warning(65_536, max_requests=4096) == ""
    assert files_warning(0, max_requests=4096) == ""  # no limit, or one that is not known
    warning = files_warning(1024, max_requests=4096)
    assert "1024 files" in warning
    assert "server.max_requests is 4096" in warning
    assert "ulimit -n" in warning


def test_the_files_of_all_workers_count_for_the_requests_that_they_share() -> None:
    one = files_warning(1024, max_requests=1024)
    assert one.startswith("this process may have 1024 files open, enough for ")
    assert files_warning(1024, max_requests=1024, workers=4) == ""
    several = files_warning(1024, max_requests=4096, workers=4)
    streams = 4 * ((1024 - FILES_BESIDE) // 2)
    assert several.startswith(
        f"each of the 4 workers may have 1024 files open, enough for {streams} streams of all workers together, "
        "and server.max_requests is 4096: "
    )
