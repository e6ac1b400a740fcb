"""Where file tools may go (J125): `..`, links, and links that are swapped in between the judging and the opening."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.tools.paths import PathRefused, Place, opened_directory, opened_file, placed, write_whole
from tools.tool_context import Workplace


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file outside the working directory."""
    outside = tmp_path / "outside"
    outside.mkdir()
    file = outside / "secret"
    file.write_text("the secret", encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("a", ("a",)),
        ("./a/../b", ("b",)),
        ("", ()),
        (".", ()),
        ("a//b/", ("a", "b")),
        ("inside", ("real",)),
        ("inside/x", ("real", "x")),
        ("…/ü", ("…", "ü")),
    ],
)
def test_paths_inside(here: Workplace, path: str, parts: tuple[str, ...]) -> None:
    (here.directory / "inside").symlink_to("real")
    assert placed(path, here) == Place(path, here.directory.resolve(), parts)


@pytest.mark.parametrize(
    "path",
    ["..", "../outside/secret", "a/../../outside", "/etc/passwd", "link", "link/secret", "chain", "up/outside/secret"],
)
def test_J125_paths_outside_are_refused(here: Workplace, secret: Path, path: str) -> None:
    (here.directory / "link").symlink_to(secret.parent)
    (here.directory / "chain").symlink_to("link/secret")
    (here.directory / "up").symlink_to("..")
    with pytest.raises(PathRefused, match="lies outside the working directory"):
        placed(path, here)


def test_J125_a_name_that_merely_begins_like_the_directory_is_outside(here: Workplace) -> None:
    here.directory.with_name("work-too").mkdir()
    with pytest.raises(PathRefused):
        placed("../work-too/x", here)


def test_odd_paths_are_refused_in_words(here: Workplace) -> None:
    with pytest.raises(PathRefused, match="NUL"):
        placed("a\0b", here)
    with pytest.raises(PathRefused, match="~ is not expanded"):
        placed("~/.ssh/id_rsa", here)


def test_further_directories_that_the_user_allowed(here: Workplace, secret: Path) -> None:
    allowed = Workplace(here.directory, secret.parent)
    place = placed(str(secret), allowed)
    assert (place.root, place.parts) == (secret.parent.resolve(), ("secret",))
    with opened_file(place) as file:
        assert file.read() == b"the secret"


def test_a_working_directory_that_is_a_link_itself(here: Workplace, tmp_path: Path) -> None:
    here.write("a", "text")
    (tmp_path / "alias").symlink_to(here.directory)
    with opened_file(placed("a", Workplace(tmp_path / "alias"))) as file:
        assert file.read() == b"text"


# ── swapped in between ───────────────────────────────────────────────────────────────────────────────────────


def test_J125_a_file_swapped_for_a_link_is_not_read(here: Workplace, secret: Path) -> None:
    file = here.write("a", "harmless")
    place = placed("a", here)
    file.unlink()
    file.symlink_to(secret)
    with pytest.raises(PathRefused, match="into a link meanwhile"), opened_file(place):
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="says ENOTDIR")
def test_J125_a_directory_swapped_for_a_link_is_not_entered(here: Workplace, secret: Path) -> None:
    here.write("sub/secret", "harmless")
    place = placed("sub/secret", here)
    (here.directory / "sub").rename(here.directory / "moved")
    (here.directory / "sub").symlink_to(secret.parent)
    for attempt in (lambda: opened_file(place).__enter__(), lambda: write_whole(place, b"overwritten")):
        with pytest.raises(PathRefused, match=r"not a directory|into a link"):
            attempt()
    assert secret.read_text(encoding="utf-8") == "the secret"


def test_J125_a_file_swapped_for_a_link_is_not_written_through(here: Workplace, secret: Path) -> None:
    place = placed("a", here)
    (here.directory / "a").symlink_to(secret)
    with pytest.raises(PathRefused, match="no plain file"):
        write_whole(place, b"overwritten")
    assert secret.read_text(encoding="utf-8") == "the secret"


def test_J125_a_missing_directory_swapped_for_a_link_gets_no_directories_made_in_it(
    here: Workplace, secret: Path
) -> None:
    place = placed("new/deeper/file", here)
    (here.directory / "new").symlink_to(secret.parent)
    with pytest.raises(PathRefused):
        write_whole(place, b"x")
    assert [path.name for path in secret.parent.iterdir()] == ["secret"]


# ── reading and writing ──────────────────────────────────────────────────────────────────────────────────────


def test_only_plain_files_are_opened(here: Workplace) -> None:
    os.mkfifo(here.directory / "pipe")
    (here.directory / "sub").mkdir()
    (here.directory / "loop").symlink_to("loop")
    for path, why in [
        ("pipe", "no plain file"),  # and does not wait for a writer
        ("sub", "is a directory"),
        (".", "is a directory"),
        ("none", "no such file"),
        ("pipe/x", "not a directory"),
        ("loop", "link"),
    ]:
        with pytest.raises(PathRefused, match=why), opened_file(placed(path, here)):
            pass


def test_writing_makes_directories_and_keeps_rights(here: Workplace) -> None:
    assert write_whole(placed("a/b/c", here), b"one") is False
    file = here.directory / "a/b/c"
    file.chmod(0o751)
    assert write_whole(placed("a/b/c", here), b"two") is True
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"two", 0o751)
    assert [path.name for path in file.parent.iterdir()] == ["c"]  # nothing temporary is left


def test_a_new_file_has_the_rights_that_the_user_asks_for(here: Workplace) -> None:
    before = os.umask(0o027)
    try:
        write_whole(placed("a", here), b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((here.directory / "a").stat().st_mode) == 0o640


def test_a_name_as_long_as_names_can_be(here: Workplace) -> None:
    write_whole(placed("n" * 255, here), b"x")
    with pytest.raises(PathRefused, match="too long"):
        write_whole(placed("n" * 256, here), b"x")


def test_a_link_within_the_directory_stays_a_link(here: Workplace) -> None:
    here.write("real", "old")
    (here.directory / "link").symlink_to("real")
    write_whole(placed("link", here), b"new")
    assert (here.directory / "link").is_symlink()
    assert (here.directory / "real").read_bytes() == b"new"


def test_a_failed_write_leaves_the_old_content_and_nothing_else(
    here: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.write("a", "old")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(PathRefused, match="no space left"):
        write_whole(placed("a", here), b"new")
    assert [(path.name, path.read_text()) for path in here.directory.iterdir()] == [("a", "old")]


@pytest.mark.parametrize("change", [lambda f: f.write_text("longer than before"), lambda f: f.unlink()])
def test_a_file_that_changed_meanwhile_is_not_overwritten(here: Workplace, change: Callable[[Path], object]) -> None:
    file = here.write("a", "old")
    seen = file.stat()
    change(file)
    with pytest.raises(PathRefused, match="changed by another program"):
        write_whole(placed("a", here), b"new", expected=seen)


def test_no_descriptor_is_left_open(here: Workplace) -> None:
    if sys.platform != "linux":
        pytest.skip("counts descriptors in /proc")
    here.write("a/b", "x")
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for path in ("a/b", "a", "a/none", "a/b/c", "none/x"):
        with pytest.raises(PathRefused), opened_file(placed(path, here)):
            raise PathRefused("within the block")
        with pytest.raises(PathRefused), opened_directory(placed(path, here)):
            raise PathRefused("within the block")
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
