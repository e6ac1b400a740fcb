"""A test process that is killed leaves no server behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from postgres_server import binaries
from redis_server import PROGRAM

HERE = Path(__file__).parent
POSTGRES = """
from postgres_server import running
with running() as server:
    print((server.directory / "data" / "postmaster.pid").read_text().split()[0], server.directory, flush=True)
    input()
"""
REDIS = """
import sys
from pathlib import Path
from redis_server import redis_server
with redis_server(Path(sys.argv[1])) as server:
    print(server.pid_file.read_text().strip(), flush=True)
    input()
"""


@pytest.mark.parametrize("program", [POSTGRES, REDIS], ids=["postgres", "redis"])
def test_a_server_ends_with_the_test_process_that_is_killed(tmp_path: Path, program: str) -> None:
    if program is POSTGRES:
        binaries()  # skips the test without them
    elif PROGRAM is None:
        pytest.skip("redis-server is not installed")
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(HERE)},
        text=True,
    ) as tests:
        assert tests.stdout is not None
        pid, *directories = tests.stdout.readline().split()
        server = os.pidfd_open(int(pid))
        tests.send_signal(signal.SIGKILL)
        assert select.select([server], [], [], 60)[0], "the server goes on"
        os.close(server)
        assert tests.stdout.read() == ""  # whoever cleans up has this pipe too, until it has
        assert not any(Path(directory).exists() for directory in directories)
