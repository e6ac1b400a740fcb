"""The balancers of `deploy/` as real processes before nodes of a test, with the files as they are but for addresses."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest

from cluster.nodes import PATIENCE_S, Node
from end_with_tests import ended_with_tests
from postgres_server import free_port

BalancerName = Literal["nginx", "caddy"]
DEPLOY = Path(__file__).parents[2] / "deploy"
PID_FILE = "balancer.pid"
SBIN = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"))
# What a test's nginx keeps in its own directory, and not in the machine's.
NGINX_PATHS = " ".join(f"{name}_temp_path {name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))


def behind(*names: BalancerName) -> pytest.MarkDecorator:
    """A test with each of these as its `name`, skipped where the program is not installed."""
    return pytest.mark.parametrize(
        "name",
        [
            pytest.param(name, marks=pytest.mark.skipif(shutil.which(name, path=SBIN) is None, reason=f"needs {name}"))
            for name in names
        ],
    )


class Balancer:
    """`url` is where clients find it."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.log: list[str] = []
        self._logged = asyncio.Condition()
        self._ended = False

    async def read_log(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            async with self._logged:
                self.log.append(line.decode(errors="replace").rstrip())
                self._logged.notify_all()
        async with self._logged:
            self._ended = True
            self._logged.notify_all()

    async def logged(self, text: str) -> None:
        """Returns when a line of its log has this text."""
        async with asyncio.timeout(PATIENCE_S), self._logged:
            await self._logged.wait_for(lambda: self._ended or any(text in line for line in self.log))
        assert not self._ended, "it has ended"


@asynccontextmanager
async def balancing(name: BalancerName, nodes: Sequence[Node], directory: Path) -> AsyncGenerator[Balancer, None]:
    """Runs within the block, before these two nodes."""
    program = shutil.which(name, path=SBIN)
    assert program is not None, f"needs {name}"
    balancer = Balancer(free_port())
    addresses = [node.url.removeprefix("http://") for node in nodes]
    prepare = _nginx if name == "nginx" else _caddy
    arguments, ready = prepare(addresses, balancer.url.removeprefix("http://"), directory)
    with ended_with_tests(directory / PID_FILE):
        process = await asyncio.create_subprocess_exec(
            *(program, *arguments),
            cwd=directory,
            env={**os.environ, **dict.fromkeys(("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"), str(directory))},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        reading = asyncio.create_task(balancer.read_log(process))
        try:
            await balancer.logged(ready)
            yield balancer
        except BaseException:  # the report of a failed test shows it
            sys.stderr.write("".join(f"{name}: {line}\n" for line in balancer.log))
            raise
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            await reading
            (directory / PID_FILE).unlink(missing_ok=True)  # its number may be another's from now on


def nginx_file(nodes: Sequence[str], address: str) -> str:
    """`deploy/nginx.conf` with these addresses, and with nothing outside the working directory."""
    text = _with_nodes((DEPLOY / "nginx.conf").read_text(encoding="utf-8"), nodes)
    text = text.replace("listen 8080;", f"listen {address};")
    return text.replace("http {", f"http {{ access_log off; {NGINX_PATHS}", 1)


def caddy_file(nodes: Sequence[str], address: str) -> str:
    """`deploy/Caddyfile` with these addresses, and without the port for its administration, which is the same for
    every process of a machine."""
    host, _, port = address.rpartition(":")
    text = _with_nodes((DEPLOY / "Caddyfile").read_text(encoding="utf-8"), nodes)
    text = text.replace(":8080 {", f":{port} {{\n\tbind {host}")
    return "{\n\tadmin off\n}\n" + text


def _with_nodes(text: str, nodes: Sequence[str]) -> str:
    for name, address in zip(("node-a", "node-b"), nodes, strict=True):
        text = re.sub(rf"\b{name}:8642\b", address, text)
    return text


def _nginx(nodes: Sequence[str], address: str, directory: Path) -> tuple[list[str], str]:
    """Its arguments, and what it says when it serves. One process: no worker is left behind where it is killed."""
    config = directory / "nginx.conf"
    config.write_text(nginx_file(nodes, address), encoding="utf-8")
    settings = f"daemon off; master_process off; pid {directory / PID_FILE}; error_log stderr notice;"
    return ["-p", str(directory), "-c", str(config), "-g", settings], "getrlimit(RLIMIT_NOFILE)"


def _caddy(nodes: Sequence[str], address: str, directory: Path) -> tuple[list[str], str]:
    config = directory / "Caddyfile"
    config.write_text(caddy_file(nodes, address), encoding="utf-8")
    options = ["--config", str(config), "--adapter", "caddyfile", "--pidfile", str(directory / PID_FILE)]
    return ["run", *options], "serving initial configuration"
