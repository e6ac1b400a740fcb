"""The terminal: what the model reads, and that nothing of a command is left when it is ended."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import signal
import sys
from typing import Any

import pytest
import uvloop

from tailrace.ports import Effect, ToolOutcome
from tailrace.system.own_task import finish
from tailrace.tools import process, terminal
from tailrace.tools.process import run_process
from tailrace.tools.terminal import Output, Terminal
from tools.tool_context import PATH, Workplace, is_alive

linux = pytest.mark.skipif(sys.platform != "linux", reason="finds processes by /proc")
# Leaves its process id, ignores what can be ignored, and stays.
STUBBORN = "trap '' TERM HUP INT; echo $$ > $$.new; mv $$.new $$.pid; echo ready; while :; do sleep 60 & wait $!; done"


def tool(**environment: str) -> Terminal:
    return Terminal({"PATH": PATH, **environment})


async def run(here: Workplace, command: str, **args: Any) -> ToolOutcome:
    return await tool().run({"command": command, **args}, here)


def pids(here: Workplace) -> list[int]:
    return [int(file.stem) for file in here.directory.glob("*.pid")]


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


# ── what the model reads ─────────────────────────────────────────────────────────────────────────────────────


async def test_output_and_error_together_and_the_exit_code(here: Workplace) -> None:
    assert await run(here, "echo out; echo err >&2; exit 3") == ToolOutcome("out\nerr\n[exit code 3]", ok=False)
    assert await run(here, "printf x") == ToolOutcome("x\n[exit code 0]")
    assert await run(here, "true") == ToolOutcome("[exit code 0]")
    assert await run(here, "kill -9 $$") == ToolOutcome("[ended by signal 9]", ok=False)


async def test_it_runs_in_the_directory_it_is_given(here: Workplace) -> None:
    (here.directory / "sub").mkdir()
    assert (await run(here, "pwd -P")).output == f"{here.directory.resolve()}\n[exit code 0]"
    assert (await run(here, "pwd -P", directory="sub")).output == f"{here.directory.resolve()}/sub\n[exit code 0]"
    assert await run(here, "pwd", directory="none") == ToolOutcome("none is not a directory", ok=False)


async def test_J125_no_directory_outside(here: Workplace) -> None:
    (here.directory / "link").symlink_to("/")
    for outside in ("..", "/", "link", "link/tmp"):
        outcome = await run(here, "pwd", directory=outside)
        assert not outcome.ok
        assert "lies outside" in outcome.output


async def test_commands_see_the_environment_they_are_given_and_no_other(
    here: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_TEST_SECRET", "s3cret")
    outcome = await tool(GIVEN="this").run({"command": "env"}, here)
    assert "GIVEN=this" in outcome.output
    assert "s3cret" not in outcome.output


async def test_nobody_answers_questions(here: Workplace) -> None:
    assert (await run(here, "read answer || echo nobody; test -t 1 || echo no terminal")).output.startswith("nobody")


async def test_head_and_tail_of_long_output(here: Workplace) -> None:
    outcome = await run(here, "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done")
    head, gap, tail = re.split(r"\n… (\d+) characters left out …\n", outcome.output)
    assert head.startswith("line 0\nline 1\n")
    assert tail.endswith("line 19999\n[exit code 0]")
    printed = sum(len(f"line {i}\n") for i in range(20_000))
    assert len(head) == terminal.HEAD_CHARS
    assert int(gap) == printed - terminal.HEAD_CHARS - terminal.TAIL_CHARS


async def test_A02_characters_split_between_reads_stay_whole() -> None:
    output = Output()
    for byte in "grüße 🎏".encode():
        output.add(bytes([byte]))
    assert output.text() == "grüße 🎏"


async def test_bytes_that_are_no_text_are_shown_as_such(here: Workplace) -> None:
    assert (await run(here, r"printf 'a\377b\303'")).output == "a\ufffdb\ufffd\n[exit code 0]"


async def test_progress_is_the_last_line_while_it_runs(here: Workplace) -> None:
    """The command waits for a file that is made only once its first line has been seen."""
    command = "echo first; until [ -e go ]; do sleep 0.01; done; printf '10%%\\r20%%'"
    async with asyncio.TaskGroup() as group:
        running = group.create_task(run(here, command))
        await here.until(lambda reports: "first" in reports)
        here.write("go", "")
    assert running.result().ok
    assert here.reports[-1] == "20%"


def test_an_effect_and_a_preview_for_whoever_is_asked() -> None:
    assert tool().effect({"command": "rm -rf x\ny"}) == Effect("command", "rm -rf x\ny")
    assert tool().effect({}) == Effect("command", "")
    assert tool().preview({"command": "echo  a\nb"}) == "echo a b"
    assert tool().invalid({"command": ""}) != ""
    assert tool().invalid({"command": "x", "timeout_s": 0}) != ""
    assert tool().invalid({"command": "x", "timeout": 5}) != ""
    assert tool().invalid({"command": "x", "timeout_s": "5"}) == ""
    assert (tool().repeatable, tool().parallel) == (False, False)


async def test_a_command_that_cannot_be_started_is_an_outcome(here: Workplace) -> None:
    assert not (await run(here, "echo " + "x" * 3_000_000)).ok
    assert not (await run(here, "echo \0")).ok


# ── the end of the tree ──────────────────────────────────────────────────────────────────────────────────────


async def test_time_out_keeps_what_was_printed(here: Workplace) -> None:
    outcome = await run(here, "echo begun; exec sleep 60", timeout_s=1)
    assert outcome == ToolOutcome("begun\n[ended after 1 s: it had not finished]", ok=False)


@linux
@pytest.mark.parametrize(
    ("command", "processes"),
    [
        ("exec sh stubborn", 1),
        ("sh stubborn & sh stubborn", 2),
        ("sh -c 'sh -c \"sh stubborn; true\"; true'; true", 1),
        ("setsid sh stubborn & sleep 60", 1),
        ("(setsid sh stubborn &); exec sleep 60", 1),
        ("env -i PATH=$PATH sh stubborn & sleep 60", 1),
    ],
    ids=["ignores SIGTERM", "background", "grandchild", "own session", "daemon", "own environment"],
)
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_an_interrupt_ends_the_whole_tree(
    here: Workplace, command: str, processes: int, loop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "GRACE_S", 0.1)  # none of these uses it
    here.write("stubborn", STUBBORN)

    async def interrupt() -> None:
        running = asyncio.ensure_future(run(here, command))
        await here.until(lambda _: len(pids(here)) >= processes)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(interrupt())
    assert len(pids(here)) == processes
    assert [pid for pid in pids(here) if is_alive(pid)] == []


@linux
async def test_F71_cancelled_again_and_again_the_tree_is_still_ended(here: Workplace) -> None:
    running = asyncio.ensure_future(run(here, STUBBORN))
    await here.until(lambda _: bool(pids(here)))
    running.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
        running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not is_alive(pids(here)[0])


async def test_a_tree_that_ends_when_asked_is_not_made_to_wait(
    here: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets its moment to clean up, and no more than it needs."""
    monkeypatch.setattr(process, "GRACE_S", 30.0)
    command = "trap 'echo cleaned; exit 0' TERM; echo ready; while :; do sleep 0.01; done"
    began = asyncio.get_running_loop().time()
    running = asyncio.ensure_future(run(here, command))
    await here.until(lambda reports: "ready" in reports)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert here.reports[-1] == "cleaned"
    assert asyncio.get_running_loop().time() - began < 15


@linux
async def test_a_child_left_in_the_background_goes_on_and_holds_nothing_up(here: Workplace) -> None:
    outcome = await run(here, "sleep 60 & echo $!", timeout_s=30)
    child = int(outcome.output.split("\n")[0])
    assert outcome == ToolOutcome(f"{child}\n[exit code 0]")
    assert is_alive(child)
    os.kill(child, signal.SIGKILL)


async def test_a_chatty_child_in_the_background_holds_nothing_up(here: Workplace) -> None:
    outcome = await run(here, "yes & exit 0", timeout_s=30)  # the next line it writes is its last: nobody reads it
    assert outcome.ok


async def test_everything_the_command_wrote_is_there_when_it_ends(here: Workplace) -> None:
    for _ in range(20):
        outcome = await run(here, "head -c 60000 /dev/zero | tr '\\0' x; sleep 5 & exit 0")
        assert outcome.output.startswith("x" * terminal.HEAD_CHARS)
        assert outcome.output.count("x") >= terminal.HEAD_CHARS + terminal.TAIL_CHARS


@linux
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_no_descriptor_task_or_transport_is_left(here: Workplace, loop: Any) -> None:
    async def some(here: Workplace) -> None:
        await run(here, "echo fine")
        await run(here, "sleep 5 & true")
        await run(here, "exec sleep 60", timeout_s=1)
        running = asyncio.ensure_future(run(here, "echo begun; exec sleep 60"))
        await here.until(lambda reports: "begun" in reports)
        running.cancel()
        await asyncio.wait({running})
        starting = asyncio.ensure_future(run(here, "exec sleep 60"))
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait({starting})
        assert asyncio.all_tasks() == {asyncio.current_task()}

    def once() -> int:
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(some(Workplace(here.directory)))
        gc.collect()  # warnings of transports that nobody closed are errors here
        return open_descriptors()

    assert once() == once()


async def test_a_watcher_that_fails_ends_the_command(here: Workplace) -> None:
    def broken(_: bytes) -> None:
        raise LookupError("the run is not ours any more")

    with pytest.raises(LookupError, match="not ours"):
        await run_process(
            ("/bin/sh", "-c", "echo x; exec sleep 60"),
            broken,
            directory=here.directory,
            environment={"PATH": PATH},
            timeout_s=60,
        )


async def test_a_program_that_is_not_there_leaks_nothing(here: Workplace) -> None:
    before = open_descriptors() if sys.platform == "linux" else 0
    with pytest.raises(FileNotFoundError):
        await run_process(("/none",), print, directory=here.directory, environment={}, timeout_s=1)
    assert sys.platform != "linux" or open_descriptors() == before


async def test_clean_up_runs_to_its_end_and_then_the_cancellation_goes_on() -> None:
    steps: list[str] = []
    go = asyncio.Event()

    async def clean() -> None:
        await go.wait()
        steps.append("clean")

    async def work() -> None:
        try:
            await finish(clean())
        finally:
            steps.append("left")

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    assert steps == []
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert steps == ["clean", "left"]
