"""PostgreSQL and Redis as products need them: their files are on the product's small disk, and they are not killed."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from proof.streams.http import free_port

START_S = 30.0


class Service:
    """A program in the foreground that takes connections at its port once it serves."""

    def __init__(self, argv: Sequence[str], port: int, directory: Path, user: str | None = None) -> None:
        self._argv = list(argv)
        self._port = port
        self._directory = directory
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        log = self._directory.parent / f"{self._directory.name}.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - it outlives this call
                self._argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self._directory, user=self._user
            )
        async with asyncio.timeout(START_S):
            while self._process.poll() is None:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self._port)
                except OSError:
                    await asyncio.sleep(0.1)
                else:
                    writer.close()
                    return
        raise RuntimeError(f"{self._argv[0]} does not serve: {log.read_text(errors='replace')[-1000:]}")

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


class Postgres(Service):
    USER = "proof"

    def __init__(self, directory: Path) -> None:
        bin_folder = postgres_programs()
        if bin_folder is None:
            raise RuntimeError("PostgreSQL's initdb and postgres are not on this machine")
        self.url = f"postgresql://{self.USER}@127.0.0.1:{(port := free_port())}/postgres"
        data = directory / "postgres"
        data.mkdir()
        owner = None
        if os.geteuid() == 0:  # it refuses to run as root
            owner = next(name for name in ("postgres", "nobody") if _is_user(name))
            shutil.chown(data, owner)
            directory.chmod(0o755)
        made = [
            str(bin_folder / "initdb"),
            "-D",
            str(data),
            "-U",
            self.USER,
            "--auth=trust",
            "-E",
            "UTF8",
            "--locale=C",
        ]
        subprocess.run(made, check=True, capture_output=True, cwd=data, user=owner)
        options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "shared_buffers": "16MB",
            "min_wal_size": "32MB",
            "max_wal_size": "64MB",
        }
        words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        super().__init__([str(bin_folder / "postgres"), "-D", str(data), "-p", str(port), *words], port, data, owner)


class Redis(Service):
    """Appends to a file, as a Redis does whose data are to survive."""

    def __init__(self, directory: Path) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise RuntimeError("redis-server is not on the PATH")
        folder = directory / "redis"
        folder.mkdir()
        port = free_port()
        self.url = f"redis://127.0.0.1:{port}"
        super().__init__(
            [program, "--port", str(port), "--bind", "127.0.0.1", "--appendonly", "yes", "--dir", str(folder)],
            port,
            folder,
        )


def postgres_programs() -> Path | None:
    folders = [*Path("/usr/lib/postgresql").glob("*/bin"), *(Path(name) for name in os.environ["PATH"].split(":"))]
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    return None


def _is_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
