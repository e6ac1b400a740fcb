"""A function in a process of its own: what it can import, and how it ends."""

from __future__ import annotations

import sys
import time

import pytest

from tailrace.system.child_process import ChildFailed, ChildTimedOut, run_in_child


def imported_from(_payload: bytes) -> bytes:
    """The child's part: where it looks for modules first, and where it found the package."""
    import tailrace

    return f"{sys.path[0]}\n{tailrace.__path__[0]}".encode()


def sleeping(_payload: bytes) -> bytes:
    time.sleep(60)
    return b""


def failing(_payload: bytes) -> bytes:
    raise ValueError


@pytest.fixture(autouse=True)
def _importable_here(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """The child imports this very module by its name."""
    monkeypatch.syspath_prepend(str(request.path.parent))
    for function in (imported_from, sleeping, failing):
        monkeypatch.setattr(function, "__module__", request.path.stem)


async def test_the_child_finds_the_package_and_none_of_its_modules_as_a_top_level_one() -> None:
    first, package = (await run_in_child(imported_from, b"", timeout_s=30)).decode().split("\n")
    assert f"{first}/tailrace" == package


async def test_a_child_that_takes_too_long_is_ended() -> None:
    with pytest.raises(ChildTimedOut):
        await run_in_child(sleeping, b"", timeout_s=0.2)


async def test_a_child_that_fails_is_told() -> None:
    with pytest.raises(ChildFailed):
        await run_in_child(failing, b"", timeout_s=30)
