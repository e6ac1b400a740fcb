"""A parent and its workers, as real processes: started, replaced, and ended without leaving one behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tailrace.system.worker_processes import QUIT_S, usable_cores

PROGRAM = Path(__file__).with_name("worker_program.py")
pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")


class Parent:
    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self.child = child
        self.lines: list[str] = []
        self.pids: dict[int, int] = {}  # of each worker, by its index

    async def until(self, *beginnings: str) -> None:
        """Reads on until a line with each of these beginnings has come since the call."""
        left = set(beginnings)
        assert self.child.stdout is not None
        while left:
            line = (await self.child.stdout.readline()).decode().strip()
            assert line, (self.lines, (await self.child.communicate())[1].decode())
            self.lines.append(line)
            if line.startswith("worker "):
                _, index, pid = line.split()
                self.pids[int(index)] = int(pid)
            left -= {one for one in left if line.startswith(one)}

    async def ended(self) -> tuple[int, str]:
        out, err = await self.child.communicate()
        self.lines += out.decode().splitlines()
        assert self.child.returncode is not None
        return self.child.returncode, err.decode()


@asynccontextmanager
async def parent(mode: str, count: int, *args: str) -> AsyncGenerator[Parent, None]:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, str(PROGRAM), mode, str(count), *args),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,  # a group of its own, as a terminal gives a command
    )
    started = Parent(child)
    try:
        async with asyncio.timeout(60):
            yield started
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
        for pid in started.pids.values():
            await gone(pid)


async def gone(pid: int) -> None:
    """Returns when there is no such process."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(fd, over.set)
    try:
        async with asyncio.timeout(20):
            await over.wait()
    finally:
        asyncio.get_running_loop().remove_reader(fd)
        os.close(fd)


def children_of(pid: int) -> list[int]:
    """Zombies included."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


async def test_all_workers_start_and_drain_when_the_parent_is_told_to_stop() -> None:
    async with parent("serves", 3) as started:
        await started.until("worker 1", "worker 2", "worker 3")
        started.child.send_signal(signal.SIGTERM)
        code, err = await started.ended()
    assert code == 0
    assert started.lines.count("first") == 1
    before = started.lines[: started.lines.index("first")]
    assert not any(line.startswith(("worker 2", "worker 3")) for line in before)  # the first is started alone
    assert sorted(line for line in started.lines if line.startswith("draining")) == [f"draining {n}" for n in (1, 2, 3)]
    assert "killed" not in err


async def test_a_worker_that_was_killed_is_replaced_and_leaves_no_zombie() -> None:
    async with parent("serves", 2) as started:
        await started.until("worker 1", "worker 2")
        first = started.pids[2]
        os.kill(first, signal.SIGKILL)
        await started.until("death 2", "worker 2")
        assert started.pids[2] != first
        assert sorted(children_of(started.child.pid)) == sorted(started.pids.values())
        started.child.send_signal(signal.SIGTERM)
        code, err = await started.ended()
    assert code == 0
    assert f"worker 2 (process {first}) was killed by SIGKILL; another is started in 0.5 s" in err


async def test_a_worker_that_was_stopped_alone_is_replaced() -> None:
    async with parent("serves", 2) as started:
        await started.until("worker 1", "worker 2")
        os.kill(started.pids[1], signal.SIGTERM)
        await started.until("death 1", "worker 1")
        started.child.send_signal(signal.SIGTERM)
        assert (await started.ended())[0] == 0


async def test_a_parent_that_was_killed_takes_its_workers_along() -> None:
    async with parent("serves", 2) as started:
        await started.until("worker 1", "worker 2")
        started.child.kill()
        await started.until("draining 1", "draining 2")
        for pid in started.pids.values():
            await gone(pid)


async def test_a_signal_to_the_whole_group_is_one_signal() -> None:
    async with parent("serves", 2) as started:
        await started.until("worker 1", "worker 2")
        os.killpg(started.child.pid, signal.SIGTERM)
        code, _ = await started.ended()
    assert code == 0
    assert sorted(line for line in started.lines if "death" in line) == ["death 1", "death 2"]
    assert children_gone(started)


def children_gone(started: Parent) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in started.pids.values())


async def test_the_second_signal_ends_it_at_once() -> None:
    async with parent("drains", 2) as started:
        await started.until("worker 1", "worker 2")
        started.child.send_signal(signal.SIGTERM)
        await started.until("draining 1", "draining 2")
        started.child.send_signal(signal.SIGTERM)
        code, _ = await started.ended()
    assert code == 130
    assert children_gone(started)


async def test_a_signal_to_the_whole_group_while_a_worker_starts_is_an_orderly_stop() -> None:
    async with parent("second-starts", 2) as started:
        await started.until("worker 1", "starting 2")
        os.killpg(started.child.pid, signal.SIGTERM)
        code, err = await started.ended()
    assert (code, "Traceback" in err) == (0, False)


async def test_no_signal_makes_a_stop_last_longer() -> None:
    async with parent("deaf", 1) as started:
        await started.until("worker 1")
        begun = time.monotonic()
        started.child.send_signal(signal.SIGTERM)
        await started.until("draining 1")
        started.child.send_signal(signal.SIGTERM)
        code, _ = await started.ended()
    assert code == 130
    assert time.monotonic() - begun < QUIT_S, "the 2 s that it had from the first one"


async def test_workers_that_do_not_end_in_time_are_killed() -> None:
    async with parent("hangs", 2) as started:
        await started.until("worker 1", "worker 2")
        started.child.send_signal(signal.SIGTERM)
        code, err = await started.ended()
    assert code == 1
    assert "killed, because they did not end in time: workers 1, 2" in err
    assert children_gone(started)


async def test_what_keeps_the_first_worker_from_starting_is_said_once() -> None:
    async with parent("refuses", 4) as started:
        code, err = await started.ended()
    assert code == 3
    assert started.lines == ["refused 1", "death 1"]
    assert err == ""


async def test_a_first_worker_that_is_killed_is_said_in_one_line() -> None:
    async with parent("killed", 4) as started:
        code, err = await started.ended()
    assert code == 1
    [line] = err.splitlines()
    assert "was killed by SIGKILL before it served" in line


async def test_a_mistake_in_a_worker_shows_its_traceback_and_ends_with_1() -> None:
    async with parent("raises", 2) as started:
        code, err = await started.ended()
    assert code == 1
    assert err.count("RuntimeError: a mistake") == 1


async def test_it_gives_up_when_no_worker_can_be_started_any_more(tmp_path: Path) -> None:
    refusal = tmp_path / "refuse"
    async with parent("first-life", 2, str(refusal)) as started:
        await started.until("worker 1", "worker 2")
        refusal.touch()
        for pid in started.pids.values():
            os.kill(pid, signal.SIGKILL)
        code, err = await started.ended()
    assert code == 1
    assert err.splitlines()[-1] == "giving up: 5 workers in a row ended before they served"
    assert "in 0.5 s" in err
    assert "in 1 s" in err


@pytest.mark.parametrize(
    ("quota", "cores"), [("max 100000", None), ("100000 100000", 1), ("50000 100000", 1), ("nonsense", None)]
)
def test_usable_cores_are_those_of_the_process_and_its_container(tmp_path: Path, quota: str, cores: int | None) -> None:
    file = tmp_path / "cpu.max"
    file.write_text(quota + "\n", encoding="ascii")
    assert usable_cores(file) == (len(os.sched_getaffinity(0)) if cores is None else cores)
