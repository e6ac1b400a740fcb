"""A real PostgreSQL for tests: started from the installed binaries on a free port, in a directory of its own.

`conftest.py` starts one for each test process. A test that stops its server, or that is about durability, starts
another. PostgreSQL refuses to run as root: it runs as `postgres` or `nobody` then.
"""

from __future__ import annotations

import os
import pwd
import secrets
import select
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from end_with_tests import ended_with_tests

USER = "tailrace"
LOCKED_USER, LOCKED_PASSWORD = "locked", "hunter2"


def binaries() -> Path:
    """The newest installed version's. Skips the test without one, unless it runs in CI, where it must be there."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    if found:
        return found[-1]
    if os.environ.get("CI") == "true":
        pytest.fail("PostgreSQL is not installed in /usr/lib/postgresql")
    pytest.skip("PostgreSQL is not installed in /usr/lib/postgresql")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class PostgresServer:
    """Use `running`, or `replicated`. `durable` keeps `fsync` on, as a test of durability needs it. With `primary`
    it is a standby that streams from that server."""

    def __init__(self, *, durable: bool, primary: PostgresServer | None = None) -> None:
        self._bin = binaries()
        self._identity: dict[str, Any] = {}
        self.directory = Path(tempfile.mkdtemp(prefix="tailrace-postgres-"))
        if os.geteuid() == 0:
            user = next(pwd.getpwnam(name) for name in ("postgres", "nobody") if _exists(name))
            self._identity = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            os.chown(self.directory, user.pw_uid, user.pw_gid)
        self._data = self.directory / "data"
        self.port = free_port()
        self._locked = [LOCKED_USER]  # users that need their password
        options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.directory),
            "shared_buffers": "32MB",
            "max_connections": "200",
            "fsync": "on" if durable else "off",
            "full_page_writes": "on" if durable else "off",
        }
        self._options = " ".join(f"-c {name}={value}" for name, value in options.items())
        if primary is not None:
            source = ("-h", "127.0.0.1", "-p", primary.port, "-U", USER)
            self._run("pg_basebackup", "-D", self._data, *source, "-R", "-X", "stream", "-c", "fast", "--no-sync")
            return
        self._run("initdb", "-D", self._data, "-U", USER, "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C")
        self._write_hba()

    def _write_hba(self) -> None:
        locked = "".join(f"host all {user} 127.0.0.1/32 scram-sha-256\n" for user in self._locked)
        others = "host all,replication all 127.0.0.1/32 trust\nlocal all all trust\n"
        (self._data / "pg_hba.conf").write_text(locked + others)

    def require_password(self, user: str) -> None:
        self._locked.append(user)
        self._write_hba()
        self.sql("SELECT pg_reload_conf()")

    @property
    def data(self) -> Path:
        return self._data

    def own(self, directory: Path) -> None:
        """Gives what a test has put there to the server's user."""
        if self._identity:
            for path in (directory, *directory.rglob("*")):
                os.chown(path, self._identity["user"], self._identity["group"])

    def _run(self, program: str, *args: object, timeout_s: float = 60) -> str:
        done = subprocess.run(
            [str(self._bin / program), *map(str, args)],
            check=False,
            capture_output=True,
            text=True,
            cwd=self.directory,
            timeout=timeout_s,
            **self._identity,
        )
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"
        return str(done.stdout)

    def start(self) -> None:
        log = self.directory / "log"
        # Not captured: the server would keep the pipe open for as long as it runs.
        done = subprocess.run(
            [
                *(str(self._bin / "pg_ctl"), "start", "-w", "-s", "-D", str(self._data), "-l", str(log)),
                *("-o", f"-p {self.port} {self._options}"),
            ],
            check=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.directory,
            timeout=60,
            **self._identity,
        )
        assert done.returncode == 0, log.read_text()[-2000:]

    def stop(self, mode: str = "fast") -> None:
        """`fast` ends the connections with "admin shutdown"; `immediate` is a crash."""
        self._run("pg_ctl", "stop", "-w", "-D", self._data, "-m", mode)

    def promote(self) -> None:
        """The standby becomes the primary."""
        self._run("pg_ctl", "promote", "-w", "-s", "-D", self._data)

    def kill(self) -> None:
        """SIGKILL to every process of the server."""
        parent = int((self._data / "postmaster.pid").read_text().split()[0])
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(parent)], capture_output=True, text=True, check=True
        )
        handles = [os.pidfd_open(pid) for pid in (parent, *map(int, children.stdout.split()))]
        for handle in handles:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        for handle in handles:  # its shared memory is in use until the last one is dead
            assert select.select([handle], [], [], 30)[0]
            os.close(handle)
        for lock in (self._data / "postmaster.pid", *self.directory.glob(".s.PGSQL.*")):
            lock.unlink()  # the process table may still have the dead process, by which a new one would judge

    def sql(self, statement: str, database: str = "postgres", *, timeout_s: float = 60) -> str:
        return self._run(
            *("psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1"),
            *("-h", "127.0.0.1", "-p", self.port, "-U", USER, "-d", database, "-c", statement),
            timeout_s=timeout_s,
        )

    def url(self, schema: str = "", *, port: int | None = None) -> str:
        """Of a schema that no other test uses, where none is named."""
        schema = schema or f"t_{secrets.token_hex(6)}"
        return f"postgresql://{USER}@127.0.0.1:{port or self.port}/postgres?schema={schema}"


def _exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


@contextmanager
def running(*, durable: bool = False) -> Iterator[PostgresServer]:
    with _started(PostgresServer(durable=durable)) as server:
        server.sql(f"CREATE ROLE {LOCKED_USER} LOGIN PASSWORD '{LOCKED_PASSWORD}'")
        yield server


@contextmanager
def replicated() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """A primary and its standby, which has each commit before the client hears of it."""
    with running(durable=True) as primary, _started(PostgresServer(durable=True, primary=primary)) as standby:
        primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        primary.sql("SELECT pg_reload_conf()")
        while primary.sql("SELECT sync_state FROM pg_stat_replication").strip() != "sync":
            select.select([], [], [], 0.05)  # the server tells nobody
        yield primary, standby


@contextmanager
def _started(server: PostgresServer) -> Iterator[PostgresServer]:
    pid_file = server.directory / "data" / "postmaster.pid"
    with ended_with_tests(pid_file, server.directory):
        try:
            server.start()
            yield server
        finally:
            if pid_file.exists():
                server.stop("immediate")
            shutil.rmtree(server.directory, ignore_errors=True)
