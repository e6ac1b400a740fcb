"""The judge against bash itself: what it allows is really run, and must neither delete, change nor send anything.

The programs that bash finds are the system's harmless ones, real deleting ones, and stand-ins for those that send.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.agent.safety.judge import assess
from tailrace.agent.safety.places import Places

CORPUS = Path(__file__).parent / "corpus"
BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="needs bash")
REAL = """
    awk base64 basename bash cat chmod cmp column comm cp cut date dd diff dirname du echo egrep env expr false
    file find fold grep gunzip gzip head hexdump id install join jq ln ls md5sum mkdir mktemp mv nice nl nproc od
    paste patch perl printenv printf pwd python3 readlink realpath rev rm rmdir sed seq sh sha256sum sort split
    stat stdbuf strings tac tail tar tee test timeout touch tr tree true truncate uname uniq unlink wc which xargs
    xxd zcat
"""
SENDING = ("curl", "wget", "nc", "ssh", "scp", "rsync", "http")
# Waits for something, stays in the background, or is a whole program of its own.
WAITS = re.compile(
    r"\buntil\b|\bwatch\b|tail -f|\bsleep\b|\btop\b|\bnohup\b|\bsetsid\b|&\s*$|& |\bvim\b|\bnano\b|\bless\b"
    r"|\bman\b|python3 -m"
)
# Starts with another environment than the scene's: a login shell reads the system's profile.
LEAVES_THE_SCENE = re.compile(r"\bbash -\w*l|\benv -i")
SECRET = "the-secret-of-the-victim"
TIMEOUT_S = 20


class Scene(NamedTuple):
    """A working directory with files, a home and a neighbour with victims, and programs of its own."""

    root: Path

    @classmethod
    def make(cls, root: Path) -> Scene:
        scene = cls(root)
        for name in (
            "work/src",
            "work/sub",
            "work/precious",
            "work/docs",
            "home/.ssh",
            "home/Documents",
            "next",
            "bin",
        ):
            (root / name).mkdir(parents=True)
        for name in ("a", "b", "x", "file", "list", "x.txt", "x.json", "x.csv", "src/x.py", "data.txt", "old.py"):
            (root / "work" / name).write_text("1\n", encoding="utf-8")
        victims = ("work/precious/keep.dat", "home/.bashrc", "home/.ssh/id_ed25519", "home/Documents/keep", "next/keep")
        for name in victims:
            (root / name).write_text(f"{SECRET} {name}\n", encoding="utf-8")
        for name in REAL.split():
            if place := shutil.which(name):
                (root / "bin" / name).symlink_to(place)
        for name in SENDING:
            stand_in = root / "bin" / name
            stand_in.write_text(
                f'#!/bin/sh\n{{ echo "{name} $*"; [ -t 0 ] || cat; }} >> {root}/sent\n', encoding="utf-8"
            )
            stand_in.chmod(0o755)
        return scene

    def run(self, line: str) -> None:
        work = self.root / "work"
        environment = {"PATH": str(self.root / "bin"), "HOME": str(self.root / "home"), "LC_ALL": "C.UTF-8"}
        environment |= {"TMPDIR": str(self.root / "tmp"), "GIT_CONFIG_NOSYSTEM": "1"}
        (self.root / "tmp").mkdir(exist_ok=True)
        process = subprocess.Popen(
            [str(BASH), "-c", "--", line],
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def victims(self) -> dict[str, str]:
        places = [self.root / "home", self.root / "next", self.root / "work" / "precious"]
        found = [path for place in places for path in sorted(place.rglob("*")) if path.is_file()]
        return {str(path.relative_to(self.root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}

    def places(self) -> Places:
        work = str(self.root / "work")
        return Places((work,), (work,), str(self.root / "home"))


def allowed_lines() -> list[str]:
    """Lines that end by themselves and find no other programs than the scene's."""
    text = (CORPUS / "run.txt").read_text(encoding="utf-8")
    lines = [line for line in text.split("\n") if line and not LEAVES_THE_SCENE.search(line)]
    return [line.replace("⏎", "\n") for line in lines if not WAITS.search(line)]


@pytest.mark.parametrize("part", range(8))
def test_M153_what_is_allowed_harms_nothing_when_bash_runs_it(tmp_path: Path, part: int) -> None:
    scene = Scene.make(tmp_path)
    before = scene.victims()
    ran = 0
    for written in allowed_lines()[part::8]:
        line = written.replace("/tmp", str(tmp_path / "tmp"))  # noqa: S108 - the system's own is not written to
        if assess(line, scene.places()).verdict != "allow":
            continue  # what leads out of this working directory
        scene.run(line)
        ran += 1
        assert scene.victims().items() >= before.items(), line
        sent = tmp_path / "sent"
        assert not sent.exists() or SECRET not in sent.read_text(encoding="utf-8"), line
    assert ran > 60


# Pieces that shells and readers of shells disagree about, around a program that must not start unasked. None holds a
# slash, a dot or a tilde: a real program that bash finds in spite of the PATH cannot leave the directory.
PIECES = [
    "rm ", "rm v", "rm", "echo ", "ls", "x", "1", "-c ", "'", '"', "\\", "\n", "\\\n", " ", ";", "&&", "||", "|",
    "|&", "!", "#", " # ", "$(", ")", "`", "${x:-", "}", "{ ", "; }", "(", "((", "))", "[[ ", " ]]", "$'", '$"',
    "\\'", '\\"', "<(", ">(", "<<<", "<<E\n", "<<'E'\n", "\nE\n", "<<-E\n", "\tE\n", "E", "=", "x=", "$x", "${x}",
    "a=(", "<", "in", "case x in x) ", ";; esac", "if true; then ", "; fi", "for x in rm; do ", "; done",
    "while false; do ", "f() ", "f", "eval ", "bash -c ", "sh -ec ", "env ", "-S ", "exec ", "command ", "{rm,}",
    "r", "m", "$IFS", "＇", "＃", "\u00a0", "*", "?", "time ", "trap ", " EXIT", "xargs ", "alias x=", "${x",
    "@", "%", "\t", "&", ">", "-", "--", "y",
]  # fmt: skip


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An `rm` that notes its start and deletes nothing, and no other program that could do anything."""
    root = tmp_path_factory.mktemp("bash")
    (root / "bin").mkdir()
    (root / "work").mkdir()
    for name in ("env", "bash", "sh", "xargs"):
        (root / "bin" / name).symlink_to(str(shutil.which(name)))
    stand_in = root / "bin" / "rm"
    stand_in.write_text(f"#!/bin/sh\necho ran >> {root}/started\n", encoding="utf-8")
    stand_in.chmod(0o755)
    return root


def starts_rm(root: Path, line: str) -> bool:
    started = root / "started"
    started.unlink(missing_ok=True)
    environment = {"PATH": str(root / "bin"), "HOME": str(root), "LC_ALL": "C.UTF-8"}
    command = f"ulimit -u 400 -t 2 -f 100 2>/dev/null\n{line}"
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [str(BASH), "-c", "--", command],
            cwd=root / "work",
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    return started.exists()


@settings(max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(st.sampled_from(PIECES), min_size=2, max_size=14))
def test_M153_bash_starts_no_program_that_the_judge_has_not_seen(stand_ins: Path, pieces: list[str]) -> None:
    line = "".join(pieces)
    if assess(line).verdict == "allow":
        assert not starts_rm(stand_ins, line), line
