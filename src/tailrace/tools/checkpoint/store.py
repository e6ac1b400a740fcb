"""A git object store of our own, driven by plumbing commands. The user's repository, index and settings play no part.

Owns how git is called and the trees it keeps. Which files belong to a snapshot and when one is taken is for
`checkpoint` to say.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, NamedTuple

from tailrace.errors import TailraceError
from tailrace.system.private_files import make_private_directory

REFS: Final = "refs/checkpoints/"
# Bytes go in and come out as they are, whatever the tree's own .gitattributes say; info/attributes wins over them.
_ATTRIBUTES: Final = "* -text -ident -filter !eol !working-tree-encoding\n"
_SETTINGS: Final = (
    *("core.bare=false", "core.fileMode=true", "core.symlinks=true", "core.autocrlf=false", "core.safecrlf=false"),
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.quotePath=false", "gc.auto=0"),
    *("core.looseCompression=1", "core.fsync=none"),  # as durable as the files that it is taken from
)
_TIMEOUT_S: Final = 600.0


class CheckpointError(TailraceError):
    """A checkpoint could not be taken, read or restored; says why, and what can be done."""


class Saved(NamedTuple):
    """One entry of a tree."""

    mode: str  # git's: 100644, 100755 or 120000
    object_id: str


class Commit(NamedTuple):
    number: int  # counts up, never reused
    tree: str
    at: float  # seconds since the epoch
    message: str


class SnapshotStore:
    """The object store of one directory."""

    def __init__(self, location: Path, directory: Path) -> None:
        self.location = location
        self.directory = directory
        self._git = shutil.which("git")

    @property
    def exists(self) -> bool:
        """Whether anything was ever kept of this directory."""
        return self.location.exists()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One at a time, in this process and others. Makes the store where there is none. An `OSError` of the block is
        a `CheckpointError` too."""
        if self._git is None:
            raise CheckpointError("checkpoints need git, which is not on the PATH: install it, or turn checkpoints off")
        if not self.directory.is_dir():
            raise CheckpointError(f"the directory {self.directory} is gone")
        try:
            make_private_directory(self.location)  # it holds copies of files that may be private
            with (self.location / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                self._prepare()
                yield
        except OSError as exc:
            reason = exc.strerror or str(exc)
            raise CheckpointError(f"the checkpoints in {self.location} cannot be used: {reason}") from exc

    def tree_of(self, paths: Sequence[str]) -> str:
        """Saves these files of the directory as they are now, and returns the tree of exactly them."""
        known = self._indexed()
        wanted = set(paths)
        self._run("update-index", "--force-remove", "-z", "--stdin", sends=_joined(known - wanted))
        self._run("update-index", "--add", "--remove", "--replace", "-z", "--stdin", sends=_joined(paths))
        return self._run("write-tree").decode().strip()

    def entries(self, tree: str) -> dict[str, Saved]:
        found = {}
        for line in _split(self._run("ls-tree", "-r", "-z", tree)):
            meta, _, path = line.partition("\t")
            mode, _, object_id = meta.split(" ")
            found[path] = Saved(mode, object_id)
        return found

    def commit(self, tree: str, number: int, message: str) -> None:
        made = self._run("commit-tree", tree, sends=message.encode("utf-8", "surrogateescape")).decode().strip()
        self._run("update-ref", f"{REFS}{number:010}", made)

    def commits(self) -> list[Commit]:
        """Newest first."""
        fields = "%(refname)%00%(tree)%00%(committerdate:unix)%00%(contents)%00"
        raw = _split(self._run("for-each-ref", "--sort=-refname", f"--format={fields}", REFS), strip="\n")
        rows = [raw[i : i + 4] for i in range(0, len(raw) - 3, 4)]
        return [Commit(int(ref.removeprefix(REFS)), tree, float(at), message) for ref, tree, at, message in rows]

    def forget(self, numbers: Iterable[int]) -> None:
        """Drops these commits and every object that nothing else holds."""
        for number in numbers:
            self._run("update-ref", "-d", f"{REFS}{number:010}")
        self._run("gc", "--quiet", "--prune=now")

    def contents(self, object_ids: Iterable[str]) -> Iterator[bytes]:
        """The content of each object, in this order."""
        with subprocess.Popen(  # noqa: S603 - git itself
            self._command("cat-file", "--batch"),
            cwd=self.directory,
            env=self._environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as git:
            assert git.stdin is not None and git.stdout is not None  # noqa: PT018, S101 - asked for above
            for object_id in object_ids:
                git.stdin.write(f"{object_id}\n".encode())
                git.stdin.flush()
                yield _next_object(git.stdout)
            git.stdin.close()

    def diff(self, old: str, new: str) -> str:
        """The change from one tree to another as text for people."""
        return self._run("diff-tree", "-r", "-p", "--no-renames", "--no-ext-diff", old, new).decode("utf-8", "replace")

    def _indexed(self) -> set[str]:
        """The index only saves reading what has not changed: one that cannot be read is made anew."""
        try:
            return set(_split(self._run("ls-files", "-z")))
        except CheckpointError:
            (self.location / "index").unlink(missing_ok=True)
            return set()

    def _prepare(self) -> None:
        (self.location / "index.lock").unlink(missing_ok=True)  # of a git that was killed: we hold the lock
        whose = self.location / "directory"  # written last: what is there without it was begun and not finished
        if not whose.exists():
            self._run("init", "--quiet", "--template=")
            (self.location / "info").mkdir(exist_ok=True)
            (self.location / "info" / "attributes").write_text(_ATTRIBUTES, encoding="utf-8")
            whose.write_text(f"{self.directory}\n", encoding="utf-8", errors="replace")

    def _run(self, *arguments: str, sends: bytes = b"") -> bytes:
        try:
            done = subprocess.run(  # noqa: S603 - git itself, with arguments of ours
                self._command(*arguments),
                cwd=self.directory,
                env=self._environment(),
                input=sends,
                capture_output=True,
                check=True,
                timeout=_TIMEOUT_S,
            )
        except subprocess.CalledProcessError as exc:
            words = exc.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise CheckpointError(f"git {arguments[0]} failed: {words or f'exit code {exc.returncode}'}") from exc
        except subprocess.TimeoutExpired as exc:
            raise CheckpointError(f"git {arguments[0]} took longer than {_TIMEOUT_S:g} s") from exc
        return done.stdout

    def _command(self, *arguments: str) -> list[str]:
        settings = [part for setting in _SETTINGS for part in ("-c", setting)]
        return [self._git or "git", *settings, *arguments]

    def _environment(self) -> dict[str, str]:
        """All that git gets to know: nothing of the user's settings, nothing of the user's repository."""
        return {
            "PATH": os.defpath,
            "HOME": str(self.location),
            "LC_ALL": "C",
            "GIT_DIR": str(self.location),
            "GIT_WORK_TREE": str(self.directory),
            "GIT_INDEX_FILE": str(self.location / "index"),  # kept: what has not changed is not read again
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            **{f"GIT_{who}_{what}": "tailrace" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        }


def _next_object(output: IO[bytes]) -> bytes:
    header = output.readline().split()
    if len(header) != 3:
        raise CheckpointError(f"the checkpoint is damaged: {b' '.join(header).decode(errors='replace')}")
    content = output.read(int(header[2]))
    output.read(1)  # the line end after it
    return content


def _split(data: bytes, strip: str = "") -> list[str]:
    text = data.decode("utf-8", "surrogateescape")  # a name need not be text; it comes back as the bytes it was
    return [part.lstrip(strip) if strip else part for part in text.split("\0")[:-1]]


def _joined(paths: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(path) + b"\0" for path in paths)
