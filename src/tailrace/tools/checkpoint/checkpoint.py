"""Checkpoints: the working directory as it was before the first change of a turn, and the way back to it.

Kept in a git object store of our own per directory, beside the user's repository and never in it. A rollback shows what
it would do, does exactly that, and is itself preceded by a checkpoint: it can be undone like anything else.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from tailrace.tools.checkpoint.store import CheckpointError, Commit, Saved, SnapshotStore
from tailrace.tools.paths import PathRefused, Place, opened_directory, write_whole
from tailrace.tools.search.ignore import IgnoreRules
from tailrace.values.validation_words import decoding_problem

log = logging.getLogger("tailrace.checkpoints")
_LINK: Final = "120000"
_EXECUTABLE: Final = "100755"
_SPARE: Final = 10  # this many past the limit before the store is cleaned: cleaning takes a while
MB: Final = 1024 * 1024


class SnapshotLimits(msgspec.Struct, frozen=True):
    max_file_mb: float = 20  # a larger file is left out, and left alone when something is restored
    max_total_mb: float = 1000
    max_files: int = 50_000
    keep: int = 50  # checkpoints per directory


QUICK: Final = SnapshotLimits(max_total_mb=200, max_files=10_000)  # of a snapshot that Tailrace takes by itself


class Listing(NamedTuple):
    """Paths relative to the directory. `skipped` exists too, but is not part of the checkpoint: files, or directories
    as a whole."""

    files: list[str]
    skipped: list[str]


def listing(directory: Path, apart: frozenset[str], limits: SnapshotLimits) -> Listing:
    """`apart` are directories of our own, without the user's work. Raises `CheckpointError` where there is too much."""
    found = Listing([], [])
    total = 0
    for path, status in _walk(str(directory), "", IgnoreRules.at(str(directory)), apart, found.skipped):
        if status.st_size > limits.max_file_mb * MB:
            found.skipped.append(path)
            continue
        total += status.st_size
        found.files.append(path)
        if len(found.files) > limits.max_files or total > limits.max_total_mb * MB:
            raise CheckpointError(
                f"{directory} holds more than {limits.max_files} files or {limits.max_total_mb:g} MB: name what is not"
                " your work in a .gitignore, or turn checkpoints off"
            )
    return found


def _walk(
    directory: str, below: str, rules: IgnoreRules, apart: frozenset[str], skipped: list[str]
) -> Iterator[tuple[str, os.stat_result]]:
    """Goes down by name; a directory that cannot be read, or that is swapped for a link meanwhile, holds nothing."""
    try:
        entries = sorted(os.scandir(os.path.join(directory, below)), key=lambda entry: entry.name)  # noqa: PTH118
    except OSError:
        skipped.append(below)
        return
    for entry in entries:
        path = f"{below}/{entry.name}" if below else entry.name
        if entry.name == ".git":  # a repository's own memory is not what it is about
            continue
        is_directory = entry.is_dir(follow_symlinks=False)
        if entry.path in apart or rules.ignores(entry.name, directory=is_directory):
            skipped.append(path)
        elif is_directory:
            yield from _walk(directory, path, IgnoreRules(entry.path, rules), apart, skipped)
        elif (status := _status(entry)) is not None:
            yield path, status
        else:
            skipped.append(path)


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """None for what cannot be kept: a pipe, a device, a file that we may not read, one that is gone."""
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return None
    if stat.S_ISLNK(status.st_mode):
        return status
    return status if stat.S_ISREG(status.st_mode) and os.access(entry.path, os.R_OK) else None


class _Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is written down with a checkpoint."""

    label: str = ""
    turn: str = ""
    skipped: tuple[str, ...] = ()  # existed then, was not saved: none of our business when we restore
    restored: str = ""  # the tree that the rollback went back to


class Checkpoint(msgspec.Struct, frozen=True):
    """`number` is how far back it lies: 1 is the latest. `turn` names what it was taken for; empty: a rollback."""

    number: int
    at: float  # seconds since the epoch
    label: str
    turn: str = ""
    restored: str = ""  # the tree that the rollback went back to


class Change(msgspec.Struct, frozen=True):
    """What a rollback would do to one file."""

    kind: Literal["change", "create", "delete"]
    path: str


class RollbackPlan(msgspec.Struct, frozen=True):
    """A rollback as it was shown: from the tree that was there then, to the one that is wanted. `left` is what it would
    not touch although it has changed: too large to be kept by now, or ignored, so that there would be no way back."""

    number: int
    changes: tuple[Change, ...]
    left: tuple[str, ...]
    now: str
    target: str


class Checkpoints:
    """The checkpoints of one directory. Every method blocks, and raises `CheckpointError`."""

    def __init__(self, root: Path, directory: Path, limits: SnapshotLimits | None = None) -> None:
        """`root` holds the stores of all directories; it lies in Tailrace's own home, which is never part of one."""
        self._directory = Path(os.path.realpath(directory))
        root = Path(os.path.realpath(root))
        self._apart = frozenset({str(root), str(root.parent)})
        self._limits = limits or SnapshotLimits()
        name = hashlib.sha256(os.fsencode(self._directory)).hexdigest()[:24]
        self._store = SnapshotStore(root / name, self._directory)

    def take_snapshot(self, label: str = "", *, turn: str = "") -> bool:
        """Keeps the directory as it is now; where the latest checkpoint is just the same, it becomes this turn's. False
        where it is this turn's already."""
        with self._store.locked():
            commits = self._store.commits()
            if turn and commits and _note(commits[0]).turn == turn:
                return False
            tree, skipped = self._now()
            is_kept = self._keep(commits, tree, _Note(label, turn, skipped))
            if len(commits) >= self._limits.keep + _SPARE:  # never in a rollback: it may go back to one of these
                self._store.forget(commit.number for commit in commits[self._limits.keep - 1 :])
            return is_kept

    def all(self) -> list[Checkpoint]:
        """Latest first."""
        if not self._store.exists:  # looking makes none
            return []
        with self._store.locked():
            return [
                Checkpoint(number, commit.at, (note := _note(commit)).label, note.turn, note.restored)
                for number, commit in enumerate(self._store.commits(), 1)
            ]

    def plan(self, number: int = 1) -> RollbackPlan:
        """What going back to this checkpoint would do."""
        if not self._store.exists:
            raise self._no_checkpoint()
        with self._store.locked():
            wanted = self._commit(self._store.commits(), number)
            tree, skipped = self._now()
            before, after = self._store.entries(tree), self._store.entries(wanted.tree)
            unknown_then, unsaved_now = _Paths(_note(wanted).skipped), _Paths(skipped)
            changes = [
                Change("change" if path in before else "create", path)
                for path, saved in after.items()
                if before.get(path) != saved and path not in unsaved_now
            ]
            changes += [Change("delete", path) for path in before if path not in after and path not in unknown_then]
            left = tuple(path for path in after if path not in before and path in unsaved_now)
            return RollbackPlan(number, tuple(sorted(changes, key=lambda change: change.path)), left, tree, wanted.tree)

    def diff(self, plan: RollbackPlan, *, back: bool = True) -> str:
        """What the plan would change; or, not `back`, what has changed since that checkpoint."""
        trees = (plan.now, plan.target) if back else (plan.target, plan.now)
        with self._store.locked():
            return self._store.diff(*trees)

    def edited(self, plan: RollbackPlan, tree: str) -> list[str]:
        """What the plan would change and is not as in this tree, now."""
        with self._store.locked():
            now, then = self._store.entries(plan.now), self._store.entries(tree) if tree else {}
        return [change.path for change in plan.changes if now.get(change.path) != then.get(change.path)]

    def restore(self, plan: RollbackPlan) -> None:
        """Does what was planned, after a checkpoint of how it is now. Refuses where the directory or the checkpoints
        have changed since the plan was made."""
        with self._store.locked():
            tree, skipped = self._now()
            commits = self._store.commits()
            if (self._commit(commits, plan.number).tree, tree) != (plan.target, plan.now):
                raise CheckpointError("something has changed since this was planned: look at what it would do again")
            at = time.localtime(self._commit(commits, plan.number).at)
            label = time.strftime("before the rollback to %Y-%m-%d %H:%M:%S", at)
            self._keep(commits, tree, _Note(label, skipped=skipped, restored=plan.target))
            self._apply(plan)

    def _now(self) -> tuple[str, tuple[str, ...]]:
        """The tree, and what exists and is not part of it."""
        found = listing(self._directory, self._apart, self._limits)
        return self._store.tree_of(found.files), tuple(map(_text, found.skipped))

    def _keep(self, commits: list[Commit], tree: str, note: _Note) -> bool:
        is_same = bool(commits) and commits[0].tree == tree
        if is_same and _note(commits[0]).turn == note.turn and not note.restored:
            return False
        number = commits[0].number + (not is_same) if commits else 1
        self._store.commit(tree, number, msgspec.json.encode(note).decode())
        return True

    def _commit(self, commits: list[Commit], number: int) -> Commit:
        if not commits:
            raise self._no_checkpoint()
        if not 1 <= number <= len(commits):
            raise CheckpointError(f"there is no checkpoint {number} of {self._directory}: there are {len(commits)}")
        return commits[number - 1]

    def _no_checkpoint(self) -> CheckpointError:
        return CheckpointError(
            f"there is no checkpoint of {self._directory}; it needs git, and `--checkpoints` where there are many files"
        )

    def _apply(self, plan: RollbackPlan) -> None:
        """Deletes first: what is a file now may have been a directory."""
        entries = self._store.entries(plan.target)
        failures: list[str] = []
        for change in plan.changes:
            if change.kind == "delete":
                with _noted(failures):
                    _delete(self._place(change.path))
        written = [(change.path, entries[change.path]) for change in plan.changes if change.kind != "delete"]
        contents = self._store.contents(saved.object_id for _, saved in written)
        for (path, saved), content in zip(written, contents, strict=True):
            with _noted(failures):
                _write(self._place(path), saved, content)
        if failures:
            raise CheckpointError(f"not everything could be restored: {'; '.join(failures)}")

    def _place(self, path: str) -> Place:
        return Place(path, self._directory, tuple(path.split("/")))


class TurnSnapshots:
    """The checkpoint of one turn, taken before its first change. `turn` names it: a turn that goes on after a crash has
    its checkpoint already."""

    def __init__(
        self,
        root: Path,
        directory: Path,
        *,
        label: str = "",
        turn: str = "",
        limits: SnapshotLimits | None = None,
        required: bool = True,
    ) -> None:
        """`required`: without a checkpoint nothing is changed."""
        self._required = required
        self._checkpoints = Checkpoints(root, directory, limits)
        self._label = label
        self._turn = turn
        self._taking = asyncio.Lock()
        self._taken = False

    async def before_change(self) -> None:
        """Raises `CheckpointError`, and then again at the next change: nothing changes without one."""
        async with self._taking:
            if self._taken:
                return
            try:
                await asyncio.to_thread(self._checkpoints.take_snapshot, self._label, turn=self._turn)
            except CheckpointError as exc:
                if self._required:
                    raise
                log.info("no checkpoint of this turn: %s", exc)
            self._taken = True


class _Paths:
    """A set of paths that holds what lies below them, too."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = frozenset(paths)

    def __contains__(self, path: str) -> bool:
        text = _text(path)
        return any(text[:at] in self._paths for at, character in enumerate(f"{text}/") if character == "/")


def _text(path: str) -> str:
    """A name that is no text, in text."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _note(commit: Commit) -> _Note:
    try:
        return msgspec.json.decode(commit.message, type=_Note)
    except msgspec.DecodeError as exc:
        raise CheckpointError(f"checkpoint {commit.number} is damaged: {decoding_problem(exc)}") from exc


@contextmanager
def _noted(failures: list[str]) -> Iterator[None]:
    """One file that cannot be restored keeps no other from it."""
    try:
        yield
    except PathRefused as exc:
        failures.append(str(exc))
    except OSError as exc:
        failures.append(f"{exc.filename}: {exc.strerror}")


def _delete(place: Place) -> None:
    """The file, and the directories that are empty without it."""
    parents = [place.parts[:depth] for depth in range(len(place.parts) - 1, -1, -1)]
    with opened_directory(place._replace(parts=parents[0])) as folder, suppress(FileNotFoundError):
        os.unlink(place.parts[-1], dir_fd=folder)
    for emptied in parents[:-1]:
        with opened_directory(place._replace(parts=emptied[:-1])) as folder:
            try:
                os.rmdir(emptied[-1], dir_fd=folder)
            except OSError:  # something else is in there
                return


def _write(place: Place, saved: Saved, content: bytes) -> None:
    if saved.mode != _LINK:
        _remove_link(place)
        write_whole(place, content, executable=saved.mode == _EXECUTABLE)
        return
    with opened_directory(place._replace(parts=place.parts[:-1]), make=True) as folder:
        try:
            with suppress(FileNotFoundError):
                os.unlink(place.parts[-1], dir_fd=folder)
            os.symlink(content, place.parts[-1], dir_fd=folder)
        except OSError as exc:
            raise PathRefused(f"{place.asked}: {(exc.strerror or 'cannot be written').lower()}") from exc


def _remove_link(place: Place) -> None:
    """A link that stands where a plain file was is replaced, not written through."""
    with suppress(PathRefused, OSError), opened_directory(place._replace(parts=place.parts[:-1])) as folder:
        if stat.S_ISLNK(os.stat(place.parts[-1], dir_fd=folder, follow_symlinks=False).st_mode):
            os.unlink(place.parts[-1], dir_fd=folder)
