"""What a product is to the test: processes that can be started and killed, and what a client can ask of them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeAlias

from proof.streams.http import Broken, fetch

ENVIRONMENTS = Path(os.environ.get("PROOF_STREAMS_HOME", "~/.cache/tailrace-proof")).expanduser()
PROGRAMS = Path(__file__).parent / "programs"  # servers around libraries, for a product's own interpreter
START_S = 120.0


# ── what a viewer is told ──


class Accepted(NamedTuple):
    """The product took the request."""


class Text(NamedTuple):
    """The answer grew. `cursor` is what the viewer resumes after; empty where the protocol has none."""

    text: str
    cursor: str = ""


class Cleared(NamedTuple):
    """The protocol tells the viewer to show nothing of what it has: it will be sent again, or is withdrawn."""


class Ended(NamedTuple):
    """`complete`, `failed` or `stopped`, as the product says it."""

    how: str


Sight: TypeAlias = Accepted | Text | Cleared | Ended


class Kept(NamedTuple):
    """What the product says of a run in the end: `complete`, `failed`, `stopped`, `running` or `unknown`."""

    status: str
    text: str


class Refused(Exception):
    """The product did not take the request, and said so."""


# ── the product ──


class Place(NamedTuple):
    """What a product under test is given."""

    directory: Path  # all that it stores goes here
    provider_url: str
    log: Path  # what its processes print


class Product:
    """One adapter. A method that the product has no feature for is not called: `lacks` says why, by need.

    needs: `resume` (a viewer comes back, or a second one joins), `stop`, `tools` (the product runs them), `durable` (it
    promises runs that outlive its process), `store` (it writes to a disk), `servers` (several share the work), `limits`
    (a setting for how long a model may be silent), `mends` (it looks at what a model answers).
    """

    name: ClassVar[str]
    page: ClassVar[str]  # where the product's own docs say how to set it up so
    setup: ClassVar[str]  # the configuration, in a line
    packages: ClassVar[Sequence[str]] = ()  # of the product's own environment; those of npm begin with "npm:"
    lacks: ClassVar[Mapping[str, str]] = {}
    environment: ClassVar[str] = ""  # the folder of its environment; products may share one

    def __init__(self, place: Place) -> None:
        self.place = place
        self.servers: list[Server] = []

    async def start(self) -> None:
        raise NotImplementedError

    def ask(self, run: str, prompt: str, *, slow: bool = False) -> AsyncGenerator[Sight, None]:
        """Begins a run and watches it. Raises `Refused`, `Broken`."""
        raise NotImplementedError

    def attach(self, run: str, cursor: str, *, slow: bool = False) -> AsyncGenerator[Sight, None]:
        """Watches a run that was begun, after `cursor`. Raises `Broken`."""
        raise NotImplementedError

    async def halt(self, run: str) -> None:
        """Returns when the product has confirmed. Raises `Broken`, `Refused`."""
        raise NotImplementedError

    async def kept(self, run: str) -> Kept | None:
        """What the product says of the run now; None where it keeps nothing."""
        raise NotImplementedError

    def tool(self, url: str) -> tuple[str, dict[str, object]]:
        """The tool call that makes the product ask for `url` once."""
        return "record", {"url": url}

    async def restart(self) -> None:
        """As a supervisor does after a crash."""
        await asyncio.gather(*(server.start() for server in self.servers if not server.runs))

    def kill_one(self) -> None:
        """Kills one of several servers; from now on viewers go to another one."""
        self.servers[0].kill()

    def hang_one(self) -> int:
        """Stops one of several servers, and says which process that is; viewers go to another one."""
        self.servers[0].signal_all(signal.SIGSTOP)
        return self.servers[0].pid

    async def stop(self) -> None:
        for server in self.servers:
            server.end()

    @classmethod
    def python(cls) -> str:
        return str(ENVIRONMENTS / (cls.environment or cls.name) / "bin" / "python")

    @classmethod
    def is_installed(cls) -> bool:
        """With these versions, not with those of an earlier time."""
        kept = ENVIRONMENTS / (cls.environment or cls.name) / "installed"
        return not cls.packages or (kept.exists() and kept.read_text() == "\n".join(cls.packages))

    @classmethod
    def versions(cls) -> str:
        pins = (package.removeprefix("npm:") for package in cls.packages)
        return ", ".join(" ".join(re.split(r"==|(?<=.)@", pin)) for pin in pins)


class Server:
    """A process group of a product's: its workers die with it. `ready` is an address that answers once it serves."""

    def __init__(
        self, name: str, argv: Sequence[str], ready: str, place: Place, *, env: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self._argv = list(argv)
        self._ready = ready
        self._cwd = place.directory
        self._log = place.log
        self._env = dict(env or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was started"
        return self._process.pid

    async def start(self) -> None:
        """Raises `RuntimeError` with its last words where it does not serve in time."""
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - it outlives this call; argv is an adapter's
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._cwd,
                env={**_plain_environment(), **self._env},
                start_new_session=True,
            )
        try:
            async with asyncio.timeout(START_S):
                while not await self._serves():
                    if not self.runs:
                        break
                    await asyncio.sleep(0.1)
        except TimeoutError:
            pass
        if not await self._serves():
            raise RuntimeError(f"{self.name} does not serve: {self._log.read_text(errors='replace')[-1500:]}")

    async def _serves(self) -> bool:
        try:
            return (await fetch("GET", self._ready, timeout_s=5)).status < 500
        except Broken:
            return False

    def signal_all(self, number: signal.Signals) -> None:
        if self.runs:
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """As `kill -9` of the whole service does."""
        self.signal_all(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def workers(self) -> list[int]:
        """The children, where a parent divides the work among them."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text(encoding="ascii")
        return [int(pid) for pid in children.split()]

    def end(self) -> None:
        if self.runs:
            self.signal_all(signal.SIGTERM)
            try:
                assert self._process is not None
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                pass
        self.kill()


def _plain_environment() -> dict[str, str]:
    """Nothing of this shell's settings for one product or another reaches it."""
    names = ("PATH", "HOME", "LANG", "TMPDIR", "USER")
    return {name: os.environ[name] for name in names if name in os.environ}


def install(product: type[Product]) -> None:
    """Puts the packages into an environment of the product's own, outside this folder. Raises `CalledProcessError`."""
    folder = ENVIRONMENTS / (product.environment or product.name)
    if product.is_installed():
        return
    folder.mkdir(parents=True, exist_ok=True)
    if any(_is_npm(package) for package in product.packages):
        (folder / "package.json").write_text(json.dumps({"private": True, "type": "module"}))
        names = [package.removeprefix("npm:") for package in product.packages]
        _run("npm", "install", "--no-audit", "--no-fund", "--loglevel=error", *names, cwd=folder)
    else:
        _run(sys.executable, "-m", "venv", str(folder), cwd=folder)
        pip = ("-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-compile")
        _run(str(folder / "bin" / "python"), *pip, *product.packages, cwd=folder)
    (folder / "installed").write_text("\n".join(product.packages))


def _is_npm(package: str) -> bool:
    return package.startswith("npm:")


def _run(*argv: str, cwd: Path) -> None:
    subprocess.run(argv, cwd=cwd, check=True)
