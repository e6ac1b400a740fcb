"""search_files: ripgrep's manners, git's own word on what is ignored, and an end that can be forced."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from properties import examples
from tailrace.ports import ToolOutcome
from tailrace.tools.search import search_files
from tailrace.tools.search.ignore import IgnoreRules
from tailrace.tools.search.search_files import SearchFiles
from tools.tool_context import Workplace


async def search(here: Workplace, pattern: str = "needle", **args: Any) -> ToolOutcome:
    return await SearchFiles().run({"pattern": pattern, **args}, here)


async def found(here: Workplace, pattern: str = "needle", **args: Any) -> list[str]:
    outcome = await search(here, pattern, files_only=True, **args)
    return [] if outcome.output == "(no match)" else outcome.output.split("\n")


async def test_lines_with_their_file_and_number_in_order(here: Workplace) -> None:
    here.write("b.txt", "no\na needle\r\nneedles\n")
    here.write("a/c.txt", "needle")
    assert await search(here) == ToolOutcome("b.txt:2:a needle\nb.txt:3:needles\na/c.txt:1:needle")
    assert await search(here, "^needles?$", path="b.txt") == ToolOutcome("b.txt:3:needles")
    assert await search(here, "NEEDLE", ignore_case=True, path="a") == ToolOutcome("a/c.txt:1:needle")
    assert await search(here, "nowhere") == ToolOutcome("(no match)")


async def test_what_cannot_be_searched_is_said(here: Workplace, tmp_path: Path) -> None:
    here.write("a", "[a]")
    assert (await search(here, "(")).output.startswith("not a regular expression: ")
    assert (await search(here, "x", glob="[z-a]")).output.startswith("not a glob: ")
    assert await search(here, "[[]a]") == ToolOutcome("a:1:[a]")  # a warning of Python's is not for the model
    assert (await search(here, path="none")).output == "none: no such file or directory"
    (here.directory / "out").symlink_to(tmp_path)
    for outside in ("..", "/", "out"):
        outcome = await search(here, path=outside)
        assert (outcome.ok, "lies outside" in outcome.output) == (False, True)


async def test_J125_no_link_is_followed(here: Workplace, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("needle", encoding="utf-8")
    (here.directory / "file").symlink_to(tmp_path / "outside/secret")
    (here.directory / "directory").symlink_to(tmp_path / "outside")
    here.write("plain", "needle")
    assert await found(here) == ["plain"]


async def test_hidden_binary_and_odd_files_stay_out(here: Workplace) -> None:
    for path in (".hidden", ".dir/file", "seen"):
        here.write(path, "needle")
    here.write("binary", b"needle\0")
    here.write("late", b"needle" + b" " * 100_000 + b"\0")
    here.write("utf16", "a needle".encode("utf-16"))
    here.write("latin1", b"caf\xe9 needle")
    os.mkfifo(here.directory / "pipe")
    os.mkfifo(here.directory / ".gitignore")
    assert await found(here) == ["latin1", "seen", "utf16"]
    assert await found(here, path=".hidden") == [".hidden"]  # asked for by name
    assert await found(here, path=".dir") == [".dir/file"]


async def test_globs(here: Workplace) -> None:
    for path in ("a.py", "src/b.py", "src/deep/c.py", "src/d.ts"):
        here.write(path, "needle")
    assert await found(here, glob="*.py") == ["a.py", "src/b.py", "src/deep/c.py"]
    assert await found(here, glob="src/*.py") == ["src/b.py"]
    assert await found(here, glob="src/**/*.py") == ["src/b.py", "src/deep/c.py"]
    assert await found(here, glob="*.{py,ts}", path="src") == ["src/b.py", "src/d.ts", "src/deep/c.py"]
    assert await found(here, glob="[!a].py") == ["src/b.py", "src/deep/c.py"]


async def test_git_ignores_count_in_a_repository_only(here: Workplace) -> None:
    here.write(".gitignore", "*.log\n/build/\n!keep.log\n")
    for path in ("a.log", "keep.log", "build/x", "sub/build/y", "sub/b.log"):
        here.write(path, "needle")
    assert await found(here) == ["a.log", "keep.log", "build/x", "sub/b.log", "sub/build/y"]
    (here.directory / ".git").mkdir()
    here.write(".git/info/exclude", "y\n")
    assert await found(here) == ["keep.log"]
    assert await found(here, path="a.log") == ["a.log"]
    assert await found(here, path="sub") == []  # the rules from above hold


async def test_a_repository_within_a_repository_has_rules_of_its_own(here: Workplace) -> None:
    for repository in (".", "inner"):
        (here.directory / repository / ".git").mkdir(parents=True)
    here.write(".gitignore", "*.txt\n")
    here.write("a.txt", "needle")
    here.write("inner/b.txt", "needle")
    assert await found(here) == ["inner/b.txt"]


async def test_many_matches_are_cut_and_long_lines_too(here: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    here.write("a", "needle\n" * 500)
    *lines, note = (await search(here)).output.split("\n")
    assert (len(lines), note) == (200, "… stopped after 200 matches; narrow the pattern, the path or the glob")
    here.write("a", "needle" + "x" * 1000)
    assert (await search(here)).output == "a:1:needle" + "x" * 394 + " …"
    monkeypatch.setattr(search_files, "MAX_MATCHES", 2)
    here.write("a", "needle\n" * 2)
    assert (await search(here)).output == "a:1:needle\na:2:needle"


# ── a pattern that never ends ────────────────────────────────────────────────────────────────────────────────

ENDLESS = "(a|a)+$"


async def test_F74_an_endless_pattern_neither_blocks_the_loop_nor_stays(here: Workplace) -> None:
    """What was found before the time was up is kept."""
    here.write("a", "aaa\n" + "a" * 60 + "b")
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.ensure_future(tick())
    outcome = await SearchFiles(timeout_s=3).run({"pattern": ENDLESS}, here)
    ticking.cancel()
    assert outcome == ToolOutcome("a:1:aaa\n… ended after 3 s; narrow the pattern, the path or the glob", ok=False)
    assert ticks > 10
    assert searching_in(here) == []


async def test_cancelling_ends_the_search(here: Workplace) -> None:
    here.write("a", "a" * 60 + "b")
    (here.directory / ".git").mkdir()
    os.mkfifo(here.directory / ".gitignore")  # opened by the search once it is under way
    running = asyncio.ensure_future(SearchFiles().run({"pattern": ENDLESS}, here))
    gate = await asyncio.to_thread(os.open, here.directory / ".gitignore", os.O_WRONLY)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    os.close(gate)
    assert searching_in(here) == []


def searching_in(here: Workplace) -> list[str]:
    if sys.platform != "linux":
        return []
    lines = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and process.name != str(os.getpid()):
            try:
                lines.append((process / "cmdline").read_bytes().decode(errors="replace"))
            except OSError:
                continue
    return [line for line in lines if str(here.directory) in line]


# ── git's own word ───────────────────────────────────────────────────────────────────────────────────────────

PATHS = (
    *("a", "b.txt", "a.b", "ab", "dir/", "dir/a", "dir/b.txt", "dir/sub/", "dir/sub/a", "dir/sub/deep/a.b"),
    *(
        "a.{b,txt}",
        "{a,ab}",
        "1",
        "x/",
        "x/dir/",
        "x/dir/a",
        "!a",
        "#a",
        "a ",
        "sp ace",
        "[a]",
        "a]",
        "foo/",
        "foo/bar/",
        "foo/bar/baz",
        "\\a",
    ),
)
RULES = (
    *("a", "*.txt", "/a", "dir", "dir/", "/dir/", "dir/*", "dir/**", "**/a", "**/dir/a", "dir/**/a", "!a", "!dir/a"),
    *("# a", "\\#a", "\\!a", "a\\ ", "a ", "?", "??", "[ab]", "[!a]", "[^a]", "[a-b]", "*", "!*/", "!*.b", "/*", "**"),
    *("dir/sub", "sub/", "x/dir", "*b*", "a.*", "foo/**/baz", "foo/*/baz", "**/", "[a", "a]", "[]]", "\\a", "\\*", "/"),
    *(
        "*.{b,txt}",
        "{a,ab}",
        "[[:alpha:]]",
        "[[:alpha:]]*.b",
        "[![:alpha:]]*",
        "a[[:punct:]]b",
        "[[:digit:][:space:]]",
        "[z-a]",
    ),
    *("[[:nonsense:]]", "*[[:space:]]*", "dir[!x]a", "a\\", "*/**", "*/", "dir/**/", "a/**"),
    *("dir//a", "foo**baz", "*/a", "sp ace", "[[]a[]]", "dir/sub/", "!dir/", "\\[a\\]"),
)


def ours(root: Path, path: str) -> bool:
    """Whether the walk would leave it out: it, or any directory on the way to it."""
    rules: IgnoreRules | None = None
    folder = root
    parts = path.rstrip("/").split("/")
    for depth, part in enumerate(parts):
        rules = IgnoreRules(str(folder), rules)
        if rules.ignores(part, directory=path.endswith("/") or depth < len(parts) - 1):
            return True
        folder /= part
    return False


def gits(root: Path) -> set[str]:
    command = ["git", "check-ignore", "--no-index", "--stdin", "-z"]
    asked = "\0".join(path.rstrip("/") for path in PATHS).encode()
    output = subprocess.run(command, cwd=root, input=asked, capture_output=True, check=False).stdout
    return {path for path in output.decode().split("\0") if path}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    root = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    for path in PATHS:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        if path.endswith("/"):
            (root / path).mkdir(exist_ok=True)
        else:
            (root / path).write_text("", encoding="utf-8")
    return root


def compare(repository: Path, top: list[str], below: list[str]) -> None:
    (repository / ".gitignore").write_text("\n".join(top) + "\n", encoding="utf-8")
    (repository / "dir/.gitignore").write_text("\n".join(below) + "\n", encoding="utf-8")
    assert {path.rstrip("/") for path in PATHS if ours(repository, path)} == gits(repository)


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_means_what_git_says(repository: Path, rule: str) -> None:
    compare(repository, [rule], [])
    compare(repository, ["*", rule], [])
    compare(repository, [], [rule])


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(top=st.lists(st.sampled_from(RULES), max_size=5), below=st.lists(st.sampled_from(RULES), max_size=3))
def test_rules_together_mean_what_git_says(repository: Path, top: list[str], below: list[str]) -> None:
    compare(repository, top, below)
