"""Checkpoints: what they hold, what they never touch, and the way back and forth."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.agent.tool_runner import Snapshots
from tailrace.tools.checkpoint import checkpoint as checkpointing
from tailrace.tools.checkpoint.checkpoint import Checkpoints, SnapshotLimits, TurnSnapshots
from tailrace.tools.checkpoint.store import CheckpointError
from tools.tool_context import Workplace

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def made(here: Workplace, home: Path) -> Checkpoints:
    return Checkpoints(home / "checkpoints", here.directory)


def git(directory: Path, *arguments: str) -> str:
    settings = ["-c", "user.name=t", "-c", "user.email=t", "-c", "commit.gpgsign=false"]
    return subprocess.check_output(["git", *settings, *arguments], cwd=directory, text=True)


def state(directory: Path) -> dict[str, object]:
    """Every file and link below, with its content and whether it can be executed."""
    found: dict[str, object] = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))  # noqa: PTH115
        elif path.is_file():
            found[name] = (path.read_bytes(), bool(path.stat().st_mode & stat.S_IXUSR))
    return found


def roll_back(made: Checkpoints, number: int = 1) -> list[tuple[str, str]]:
    plan = made.plan(number)
    made.restore(plan)
    return [(change.kind, change.path) for change in plan.changes]


# ── there and back ───────────────────────────────────────────────────────────────────────────────────────────


def test_changed_deleted_and_new_files(here: Workplace, made: Checkpoints) -> None:
    here.write("same", "same")
    here.write("changed", "before")
    here.write("sub/deleted", "content")
    before = state(here.directory)
    assert made.take_snapshot("first")
    here.write("changed", "after")
    (here.directory / "sub/deleted").unlink()
    (here.directory / "sub").rmdir()
    here.write("new/deep/file", "x")
    after = state(here.directory)
    assert roll_back(made) == [("change", "changed"), ("delete", "new/deep/file"), ("create", "sub/deleted")]
    assert state(here.directory) == before
    assert not (here.directory / "new").exists()
    assert roll_back(made) == [("change", "changed"), ("create", "new/deep/file"), ("delete", "sub/deleted")]
    assert state(here.directory) == after  # the rollback was undone


def test_bytes_rights_links_and_odd_names(here: Workplace, made: Checkpoints) -> None:
    here.write("crlf", b"a\r\nb\n\r\n")
    here.write("binary", bytes(range(256)))
    here.write(".gitattributes", "* text=auto eol=lf ident\n*.txt filter=lfs working-tree-encoding=UTF-16\n")
    here.write("ident.txt", "$Id$\n")
    here.write("empty", "")
    here.write("run.sh", "#!/bin/sh\n").chmod(0o755)
    here.write("new\nline \t\"quo'te ü", "odd")
    (here.directory / "link").symlink_to("empty")
    (here.directory / "dangling").symlink_to("/no/such/file")
    name = os.fsdecode(b"no-\xff-text")
    here.write(name, "bytes")
    before = state(here.directory)
    made.take_snapshot()
    for path in list(here.directory.iterdir()):
        path.unlink()
    here.write("link", "was a link")
    (here.directory / "empty").symlink_to("/etc/passwd")
    here.write("run.sh", "#!/bin/sh\n").chmod(0o644)
    roll_back(made)
    assert state(here.directory) == before


def test_a_private_file_stays_private(here: Workplace, made: Checkpoints) -> None:
    file = here.write("secret", "one")
    file.chmod(0o600)
    made.take_snapshot()
    file.write_text("two", encoding="utf-8")
    roll_back(made)
    assert (file.read_text(encoding="utf-8"), stat.S_IMODE(file.stat().st_mode)) == ("one", 0o600)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda p: p.write_text("file"), lambda p: (p.mkdir(), (p / "in").write_text("x"))),
        (lambda p: p.write_text("file"), lambda p: p.symlink_to("elsewhere")),
        (lambda p: p.symlink_to("elsewhere"), lambda p: (p.mkdir(), (p / "in").write_text("x"))),
    ],
    ids=["file-directory", "file-link", "link-directory"],
)
def test_a_thing_that_became_another_kind_of_thing(
    here: Workplace, made: Checkpoints, one: Callable[[Path], object], other: Callable[[Path], object]
) -> None:
    path = here.directory / "thing"
    one(path)
    first = state(here.directory)
    made.take_snapshot()
    path.unlink()
    other(path)
    second = state(here.directory)
    roll_back(made)
    assert state(here.directory) == first
    roll_back(made)
    assert state(here.directory) == second


def test_several_checkpoints_count_from_the_latest(here: Workplace, made: Checkpoints) -> None:
    for content in ("one", "two", "three"):
        here.write("a", content)
        assert made.take_snapshot(f"before {content} goes")
    assert made.take_snapshot("the same again") is False
    assert [(c.number, c.label) for c in made.all()] == [
        (1, "before three goes"),
        (2, "before two goes"),
        (3, "before one goes"),
    ]
    assert made.plan(1).changes == ()
    roll_back(made, 3)
    assert (here.directory / "a").read_text(encoding="utf-8") == "one"
    assert len(made.all()) == 3  # how it was before the rollback is checkpoint 1 already
    roll_back(made, 1)
    assert (here.directory / "a").read_text(encoding="utf-8") == "three"


def test_numbers_that_there_are_not(here: Workplace, made: Checkpoints) -> None:
    with pytest.raises(CheckpointError, match="there is no checkpoint of"):
        made.plan()
    here.write("a", "")
    made.take_snapshot()
    with pytest.raises(CheckpointError, match=r"there is no checkpoint 2 .*: there are 1"):
        made.plan(2)


def test_a_plan_that_is_out_of_date_is_refused(here: Workplace, made: Checkpoints) -> None:
    here.write("a", "one")
    made.take_snapshot()
    here.write("a", "two")
    plan = made.plan()
    here.write("a", "what the user typed meanwhile")
    with pytest.raises(CheckpointError, match="has changed since"):
        made.restore(plan)
    assert (here.directory / "a").read_text(encoding="utf-8") == "what the user typed meanwhile"
    plan = made.plan()
    made.take_snapshot()
    with pytest.raises(CheckpointError, match="has changed since"):
        made.restore(plan)


def test_what_would_change_as_text(here: Workplace, made: Checkpoints) -> None:
    here.write("a", "one\n")
    made.take_snapshot()
    here.write("a", "two\n")
    assert "\n-two\n+one\n" in made.diff(made.plan())


# ── what is never touched ────────────────────────────────────────────────────────────────────────────────────


def test_the_users_repository_and_index_are_untouched(here: Workplace, made: Checkpoints) -> None:
    git(here.directory, "init", "-q")
    here.write("tracked", "one")
    here.write("staged", "s1")
    git(here.directory, "add", ".")
    git(here.directory, "commit", "-qm", "first")
    here.write("staged", "s2")
    git(here.directory, "add", "staged")
    here.write("tracked", "two")
    untouched = {path: path.read_bytes() for path in (here.directory / ".git").rglob("*") if path.is_file()}
    made.take_snapshot()
    here.write("tracked", "three")
    roll_back(made)
    assert {path: path.read_bytes() for path in (here.directory / ".git").rglob("*") if path.is_file()} == untouched
    assert git(here.directory, "status", "--porcelain") == "M  staged\n M tracked\n"


def test_the_users_settings_play_no_part(
    here: Workplace, made: Checkpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gitconfig").write_text("[core]\n\tautocrlf = true\n\thooksPath = /evil\n[broken", encoding="utf-8")
    for variable in ("GIT_CONFIG_GLOBAL", "GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.setenv(variable, str(tmp_path / "gitconfig"))
    here.write("a", "x\r\n")
    made.take_snapshot()
    here.write("a", "y\n")
    roll_back(made)
    assert (here.directory / "a").read_bytes() == b"x\r\n"


def test_what_git_ignores_is_neither_kept_nor_deleted(here: Workplace, made: Checkpoints) -> None:
    (here.directory / ".git").mkdir()
    here.write(".gitignore", "build/\n*.log\n")
    here.write("build/out", "old")
    made.take_snapshot()
    here.write("build/out", "new")
    here.write("build/more", "new")
    here.write("a.log", "new")
    here.write("b.txt", "new")
    assert roll_back(made) == [("delete", "b.txt")]
    assert (here.directory / "build/out").read_text(encoding="utf-8") == "new"
    assert (here.directory / "build/more").exists()


def test_what_was_ignored_then_is_not_taken_for_new_now(here: Workplace, made: Checkpoints) -> None:
    """The agent deletes the .gitignore: a rollback must not delete everything that it spoke of."""
    (here.directory / ".git").mkdir()
    here.write(".gitignore", "data/\n*.env\n")
    here.write("data/precious", "p")
    here.write("local.env", "p")
    made.take_snapshot()
    (here.directory / ".gitignore").unlink()
    assert roll_back(made) == [("create", ".gitignore")]
    assert (here.directory / "data/precious").exists()
    assert (here.directory / "local.env").exists()


def test_files_of_repositories_within_are_kept_too(here: Workplace, made: Checkpoints) -> None:
    (here.directory / "inner").mkdir()
    git(here.directory / "inner", "init", "-q")
    here.write("inner/a", "one")
    git(here.directory / "inner", "add", ".")
    git(here.directory / "inner", "commit", "-qm", "first")
    made.take_snapshot()
    here.write("inner/a", "two")
    assert roll_back(made) == [("change", "inner/a")]
    assert (here.directory / "inner/a").read_text(encoding="utf-8") == "one"


def test_J125_links_are_kept_as_links_and_never_followed(here: Workplace, made: Checkpoints, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("theirs", encoding="utf-8")
    (here.directory / "link").symlink_to(outside)
    here.write("dir/file", "ours")
    made.take_snapshot()
    shutil.rmtree(here.directory / "dir")
    (here.directory / "dir").symlink_to(outside)  # what is restored must not land out there
    assert roll_back(made) == [("delete", "dir"), ("create", "dir/file")]
    assert (outside / "file").read_text(encoding="utf-8") == "theirs"
    assert (here.directory / "dir/file").read_text(encoding="utf-8") == "ours"
    assert (here.directory / "link").is_symlink()


def test_our_own_home_is_nobodys_work(here: Workplace) -> None:
    home = here.directory / ".tailrace"
    made = Checkpoints(home / "checkpoints", here.directory)
    here.write(".tailrace/tailrace.db", "one")
    here.write("a", "one")
    made.take_snapshot()
    here.write(".tailrace/tailrace.db", "two")
    here.write("a", "two")
    assert roll_back(made) == [("change", "a")]
    assert (home / "tailrace.db").read_text(encoding="utf-8") == "two"
    within = Checkpoints(home / "checkpoints", home)  # the home itself as the working directory
    within.take_snapshot()
    assert within.plan().changes == ()


def test_the_store_is_private(here: Workplace, made: Checkpoints, home: Path) -> None:
    made.take_snapshot()
    [store] = (home / "checkpoints").iterdir()
    assert stat.S_IMODE(store.stat().st_mode) == 0o700
    assert (store / "directory").read_text(encoding="utf-8") == f"{here.directory.resolve()}\n"


# ── limits ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_that_is_too_large_is_left_alone(here: Workplace, home: Path) -> None:
    made = Checkpoints(home / "checkpoints", here.directory, SnapshotLimits(max_file_mb=0.001))
    here.write("large", "x" * 2000)
    here.write("grows", "small")
    made.take_snapshot()
    here.write("large", "now small")
    here.write("grows", "y" * 2000)
    plan = made.plan()
    assert (plan.changes, plan.left) == ((), ("grows",))
    made.restore(plan)
    assert (here.directory / "large").read_text(encoding="utf-8") == "now small"
    assert (here.directory / "grows").read_text(encoding="utf-8") == "y" * 2000


@pytest.mark.parametrize("limits", [SnapshotLimits(max_total_mb=0.001), SnapshotLimits(max_files=2)])
def test_too_much_is_refused_in_words(here: Workplace, home: Path, limits: SnapshotLimits) -> None:
    for name in "abc":
        here.write(name, "x" * 500)
    with pytest.raises(CheckpointError, match=r"holds more than .*: name what is not your work in a \.gitignore"):
        Checkpoints(home / "checkpoints", here.directory, limits).take_snapshot()


def test_old_checkpoints_go(here: Workplace, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpointing, "_SPARE", 2)
    made = Checkpoints(home / "checkpoints", here.directory, SnapshotLimits(keep=3))
    for number in range(8):
        here.write("a", f"state {number}")
        made.take_snapshot(str(number))
        assert len(made.all()) <= 5
    labels = [checkpoint.label for checkpoint in made.all()]
    assert labels == ["7", "6", "5", "4", "3"]
    here.write("a", "later")
    roll_back(made, len(labels))
    assert (here.directory / "a").read_text(encoding="utf-8") == f"state {labels[-1]}"


def test_files_that_cannot_be_read_are_left_out(here: Workplace, made: Checkpoints) -> None:
    os.mkfifo(here.directory / "pipe")
    here.write("fine", "x")
    assert made.take_snapshot()
    (here.directory / "fine").unlink()
    assert roll_back(made) == [("create", "fine")]
    assert stat.S_ISFIFO((here.directory / "pipe").stat().st_mode)


def test_one_file_that_cannot_be_restored_keeps_no_other_from_it(here: Workplace, made: Checkpoints) -> None:
    (here.directory / ".git").mkdir()
    here.write(".gitignore", "*.o\n")
    here.write("a", "one")
    here.write("b", "one")
    made.take_snapshot()
    (here.directory / "a").unlink()
    here.write("a/kept.o", "ignored, so it stays")
    here.write("b", "two")
    with pytest.raises(CheckpointError, match="not everything could be restored: a is a directory"):
        roll_back(made)
    assert (here.directory / "b").read_text(encoding="utf-8") == "one"


def test_looking_for_a_checkpoint_makes_no_store(here: Workplace, home: Path) -> None:
    made = Checkpoints(home / "checkpoints", here.directory)
    assert made.all() == []
    with pytest.raises(CheckpointError, match="there is no checkpoint of"):
        made.plan()
    assert not (home / "checkpoints").exists()


def test_without_git_it_says_so(here: Workplace, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(CheckpointError, match="need git, which is not on the PATH"):
        Checkpoints(home / "checkpoints", here.directory).take_snapshot()


def test_a_store_that_cannot_be_written_says_so(here: Workplace, tmp_path: Path) -> None:
    (tmp_path / "blocked").write_text("", encoding="utf-8")
    with pytest.raises(CheckpointError, match="cannot be used: Not a directory"):
        Checkpoints(tmp_path / "blocked", here.directory).take_snapshot()


def test_a_store_whose_objects_are_gone_says_so(here: Workplace, made: Checkpoints, home: Path) -> None:
    here.write("a", "one")
    made.take_snapshot()
    here.write("a", "two")
    plan = made.plan()
    [store] = (home / "checkpoints").iterdir()
    blob = hashlib.sha1(b"blob 3\0one", usedforsecurity=False).hexdigest()
    for path in (store / "objects").rglob(blob[2:]):
        path.unlink()
    with pytest.raises(CheckpointError):
        made.restore(plan)


@pytest.mark.parametrize(("name", "content"), [("index", b"garbage"), ("index.lock", b"")])
def test_what_a_killed_git_left_behind_is_cleared_away(
    here: Workplace, made: Checkpoints, home: Path, name: str, content: bytes
) -> None:
    here.write("a", "one")
    made.take_snapshot()
    [store] = (home / "checkpoints").iterdir()
    (store / name).write_bytes(content)
    here.write("a", "two")
    assert roll_back(made) == [("change", "a")]


# ── in a turn ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_one_checkpoint_per_turn_before_its_first_change(here: Workplace, home: Path) -> None:
    here.write("a", "one")
    turn: Snapshots = TurnSnapshots(home / "checkpoints", here.directory, label="fix the tests")
    await asyncio.gather(turn.before_change(), turn.before_change())
    here.write("a", "two")
    await turn.before_change()
    made = Checkpoints(home / "checkpoints", here.directory)
    assert [checkpoint.label for checkpoint in made.all()] == ["fix the tests"]
    roll_back(made)
    assert (here.directory / "a").read_text(encoding="utf-8") == "one"


async def test_a_turn_that_goes_on_after_a_crash_has_its_checkpoint(here: Workplace, home: Path) -> None:
    for content in ("one", "two"):
        here.write("a", content)
        await TurnSnapshots(home / "checkpoints", here.directory, turn="run_1").before_change()
    made = Checkpoints(home / "checkpoints", here.directory)
    assert len(made.all()) == 1
    await TurnSnapshots(home / "checkpoints", here.directory, turn="run_2").before_change()
    assert len(made.all()) == 2


def test_what_a_turn_left_as_it_was_is_the_checkpoint_of_the_next_one(here: Workplace, made: Checkpoints) -> None:
    here.write("a", "one")
    assert made.take_snapshot("look", turn="run_1")
    assert made.take_snapshot("change", turn="run_2")
    assert not made.take_snapshot("change", turn="run_2")
    assert [(each.label, each.turn) for each in made.all()] == [("change", "run_2")]
    here.write("a", "two")
    made.take_snapshot("look again", turn="run_3")
    roll_back(made, 2)
    assert roll_back(made) == [("change", "a")]  # though the rollback's own checkpoint is as run_3 found it
    assert [each.turn for each in made.all()] == ["", "", "run_2"]


def test_a_rollback_notes_where_it_went_though_its_own_checkpoint_is_there(here: Workplace, made: Checkpoints) -> None:
    for content in ("one", "two"):
        here.write("a", content)
        made.take_snapshot(content)
    for number in (1, 3):
        here.write("a", "three")
        roll_back(made, number)
    assert len(made.all()) == 3
    assert made.edited(made.plan(), made.all()[0].restored) == []
    here.write("a", "by hand")
    assert made.edited(made.plan(), made.all()[0].restored) == ["a"]


async def test_a_checkpoint_that_failed_is_tried_again(here: Workplace, home: Path) -> None:
    here.write("a", "x" * 2000)
    turn = TurnSnapshots(home / "checkpoints", here.directory, limits=SnapshotLimits(max_total_mb=0.001))
    for _ in range(2):
        with pytest.raises(CheckpointError):
            await turn.before_change()
    here.write("a", "x")
    await turn.before_change()


# ── what cannot be used ──────────────────────────────────────────────────────────────────────────────────────


def test_a_directory_that_is_gone_is_said_to_be(here: Workplace, made: Checkpoints) -> None:
    assert made.take_snapshot()
    shutil.rmtree(here.directory)
    with pytest.raises(CheckpointError, match=r"the directory .* is gone"):
        made.take_snapshot()


def test_a_store_that_cannot_be_written_is_an_error_of_its_own(here: Workplace, made: Checkpoints) -> None:
    assert made.take_snapshot()
    [store] = (here.directory.parent / "home" / "checkpoints").iterdir()
    (store / "directory").unlink()
    shutil.rmtree(store / "info")
    (store / "info").write_text("in the way", encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"the checkpoints in .* cannot be used: "):
        made.take_snapshot()
