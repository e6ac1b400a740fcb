"""The embedded model's server as a resource of this process: the child process, its private socket and key, and what it
wrote before it died. Hands out an address, to which `HttpProvider` speaks HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import secrets
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

import msgspec

from tailrace.errors import ConfigError, Unavailable
from tailrace.providers.local.child import Report, Settings
from tailrace.providers.local.weights import SMOLLM2, Fetch, Weights
from tailrace.system.extras import install_command
from tailrace.system.own_program import typed

BASE_URL: Final = "http://local/v1"  # the host is a name only: the socket decides where requests go
MODEL_NAME: Final = "smollm2-135m"
MODEL_PATH_KEY: Final = "providers.local.model_path"
GGUF_MAGIC: Final = b"GGUF"
EMBEDDED_ANSWER_TOKENS: Final = 1024  # a model this small does not always find its end
LOG_TAIL_BYTES: Final = 8192
LEAVES_WITHIN_S: Final = 10.0  # a child that has said that it leaves
MAX_SOCKET_PATH_BYTES: Final = 100  # `sun_path` holds 104 bytes on macOS, 108 on Linux


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server listens. Valid until it dies: ask `LocalServer.start` again for each call."""

    base_url: str
    key: str = field(repr=False)
    uds: Path


class LocalServer:
    """llama.cpp's HTTP server in a child process. Bound to the event loop it is first started on."""

    def __init__(
        self,
        models: Path,
        *,
        model_path: Path | None = None,
        model_name: str = MODEL_NAME,
        weights: Weights = SMOLLM2,
        context_tokens: int = 8192,
        slots: int = 4,
        start_timeout_s: float = 120.0,
    ) -> None:
        self._models = models  # where fetched weights are kept; unused with a `model_path`
        self._model_path = model_path
        self._model_name = model_name
        self._weights = weights
        self._context_tokens = context_tokens
        self._slots = slots
        self._start_timeout_s = start_timeout_s
        self._starting = asyncio.Lock()
        self._child: _Child | None = None

    @property
    def context_tokens(self) -> int:
        """How many tokens the model takes."""
        return self._context_tokens

    def serves(self, model: str) -> bool:
        """Whether this is a name for the model that is loaded. A file that the user named goes by any."""
        return self._model_path is not None or model == self._model_name

    def downloads_first(self) -> bool:
        """Whether the weights are to be fetched before it can start, which shows its progress on the terminal."""
        return self._model_path is None and not self._weights.is_complete(self._models / self._weights.file_name)

    async def start(self) -> Address:
        """The address of a server that is ready: the running one, or a new one where there is none or it has died.
        Raises `ConfigError` where the user must act (engine, model file), `Permanent` without weights,
        `Unavailable` where the server does not come up."""
        async with self._starting:
            if self._child is None or not self._child.alive:
                self._child = await self._launch()
            return self._child.address

    @property
    def pid(self) -> int | None:
        """The server's process, while it runs."""
        return self._child.pid if self._child is not None and self._child.alive else None

    async def died(self, *, within_s: float) -> Unavailable | None:
        """Why the server is gone, or None if it still runs. A closed connection is seen before its process ends: hence
        the wait."""
        child = self._child
        if child is None:
            return None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await child.gone.wait()
        return child.obituary() if child.gone.is_set() else None

    async def aclose(self) -> None:
        """Ends the server at once, whatever it is doing; one that is being started, when it has."""
        async with self._starting:
            child, self._child = self._child, None
            if child is not None:
                await child.end()

    async def _launch(self) -> _Child:
        if sys.platform == "win32":
            raise ConfigError(
                "the embedded model needs unix sockets, which this platform lacks: choose another provider"
            )
        if importlib.util.find_spec("xllamacpp") is None:
            raise ConfigError(
                f"the embedded model's engine is not installed: {install_command('local')}, "
                f"or choose another model with {typed('init')}"
            )
        model = await self._model()
        child = await _Child.spawn()
        settings = Settings(
            model_path=str(model),
            model_name=self._model_name,
            socket=str(child.address.uds),
            key=child.address.key,
            parent=os.getpid(),
            threads=max(1, _usable_cores() // 2),
            context_tokens=self._context_tokens,
            slots=self._slots,
            answer_tokens=EMBEDDED_ANSWER_TOKENS if self._model_path is None else -1,
        )
        try:
            async with asyncio.timeout(self._start_timeout_s):
                report = await child.introduce(settings)
        except TimeoutError:
            await child.end()
            raise Unavailable(
                f"the embedded model was not ready after {self._start_timeout_s:g} s", provider="local"
            ) from None
        except BaseException:  # cancelled, or the child died: no caller has it, so it is ended here
            await child.end()
            raise
        match report.state:
            case "ready":
                return child
            case "no_engine":
                await child.end()
                raise ConfigError(
                    f"the embedded model's engine cannot be imported ({report.detail}): {install_command('local')}"
                )
            case "not_loaded":
                await child.end(leaves_within_s=LEAVES_WITHIN_S)
                error = ConfigError(f"{model} cannot be loaded: {child.last_words}", key=MODEL_PATH_KEY)
                error.add_note(child.log)
                raise error

    async def _model(self) -> Path:
        if self._model_path is not None:
            return await asyncio.to_thread(_checked, self._model_path)
        fetch = Fetch(self._weights, self._models)
        try:
            return await asyncio.to_thread(fetch.run)
        except asyncio.CancelledError:
            fetch.cancel()
            raise


class _Child(asyncio.SubprocessProtocol):
    """One child process, from its first byte to its last."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.gone = asyncio.Event()  # after the process ended and everything it wrote was read
        self._report: asyncio.Future[Report] = asyncio.get_running_loop().create_future()
        self._words = bytearray()
        self._log = bytearray()
        self._transport: asyncio.SubprocessTransport  # there since `connection_made`, hence after `spawn`

    @classmethod
    async def spawn(cls) -> _Child:
        directory = _private_directory()
        address = Address(BASE_URL, secrets.token_urlsafe(32), directory / "llama.sock")
        child = cls(address)
        try:
            await asyncio.get_running_loop().subprocess_exec(
                lambda: child,
                *(sys.executable, "-P", "-m", "tailrace.providers.local.child"),
                start_new_session=True,  # Ctrl-C in the terminal is for the parent to handle
            )
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        return child

    @property
    def alive(self) -> bool:
        return self._transport.get_returncode() is None

    @property
    def pid(self) -> int:
        return self._transport.get_pid() or 0

    async def introduce(self, settings: Settings) -> Report:
        """Sends the settings and waits for the child's word. Raises `Unavailable` if it dies without one."""
        stdin = cast("asyncio.WriteTransport", self._transport.get_pipe_transport(0))
        stdin.write(msgspec.json.encode(settings) + b"\n")
        return await self._report

    async def end(self, *, leaves_within_s: float = 0.0) -> None:
        """Kills the process: it has no state to save. `leaves_within_s`: the time for one that has reported why it ends
        to write its log."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(leaves_within_s):
                    await self.gone.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                self._transport.kill()
            await self.gone.wait()

    @property
    def log(self) -> str:
        """The end of what llama.cpp wrote."""
        return self._log.decode(errors="replace").strip()

    @property
    def last_words(self) -> str:
        """The last error in the log, without its time stamp; else its last line."""
        lines = self.log.splitlines()
        errors = [line.partition(" E ")[2] for line in lines if " E " in line]
        return " ".join((errors or lines or ["it said nothing"])[-1].split())

    def obituary(self) -> Unavailable:
        code = self._transport.get_returncode()
        cause = signal.Signals(-code).name if code is not None and code < 0 else f"exit {code}"
        error = Unavailable(f"the embedded model's server died ({cause}): {self.last_words}", provider="local")
        if self.log:
            error.add_note(self.log)
        return error

    # ── what the event loop calls ────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._log += data
            del self._log[:-LOG_TAIL_BYTES]
            return
        self._words += data
        line, newline, _ = self._words.partition(b"\n")
        if newline and not self._report.done():
            self._report.set_result(msgspec.json.decode(line, type=Report))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the event loop's signature
        shutil.rmtree(self.address.uds.parent, ignore_errors=True)
        if not self._report.done():
            self._report.set_exception(self.obituary())
            self._report.exception()  # marks it as retrieved, where no task waits for it any more
        self._transport.close()
        self.gone.set()


def _checked(path: Path) -> Path:
    try:
        with path.open("rb") as file:
            magic = file.read(len(GGUF_MAGIC))
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read: {exc.strerror}", key=MODEL_PATH_KEY) from exc
    if magic != GGUF_MAGIC:
        raise ConfigError(f"{path} is not a GGUF file", key=MODEL_PATH_KEY)
    return path.absolute()


def _private_directory() -> Path:
    """Readable by this user alone, and short enough for a socket's address."""
    directory = Path(tempfile.mkdtemp(prefix="tailrace-"))
    if len(os.fsencode(directory)) <= MAX_SOCKET_PATH_BYTES - len("/llama.sock"):
        return directory
    directory.rmdir()
    return Path(tempfile.mkdtemp(prefix="tailrace-", dir="/tmp"))


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # where the platform can say, only those this process may use
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
