"""The conversation in a real terminal: what a person types and sees."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from bench.render import answer, chunks_of

from cli.screen.vt import VirtualTerminal
from tailrace.app import open_app
from tailrace.config.load import load
from tailrace.testing.provider import FaultyProvider, Scenario, call, reply, think
from tailrace.testing.scripted.reply import Reply, TextBlock

MARKDOWN = """\
# The mill

Water **falls** on the wheel. 日本語の文章は幅が二倍になります。それでも折り返しは正しく、行は窓の中に収まります。

1. gate
2. wheel

```python
def grind(grain: float) -> float:
    return grain * 0.72
```

| grain | flour |
|-------|------:|
| rye   | 7 |

That is all.
"""


class Home:
    """A home directory whose config names the provider."""

    def __init__(self, path: Path, server: FaultyProvider) -> None:
        self.path = path
        self.server = server
        self.config: dict[str, Any] = {
            "model": {"provider": "faulty", "name": "ok"},
            "providers": {"faulty": {"dialect": "chat", "base_url": server.openai_url, "backoff_s": 0.001}},
            "streaming": {"enabled": True},
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TAILRACE_", "HERMES_"))}
        self.env = {**kept, "TAILRACE_HOME": str(path)}
        self.env.pop("NO_COLOR", None)

    def command(self, *args: str) -> list[str]:
        (self.path / "config.yaml").write_text(json.dumps(self.config))
        return [sys.executable, "-m", "tailrace", "chat", *args]

    def terminal(self, *args: str, columns: int = 80, rows: int = 24) -> VirtualTerminal:
        return VirtualTerminal(self.command(*args), self.env, columns=columns, rows=rows)


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    async with FaultyProvider() as server:
        yield Home(tmp_path, server)


async def ready(terminal: VirtualTerminal) -> None:
    await terminal.until(lambda: any(line.startswith("❯") for line in terminal.lines))


async def answered(terminal: VirtualTerminal, messages: int = 1) -> None:
    """So many messages are there, and nothing runs."""

    def there() -> bool:
        marks = sum(line.startswith("● ") for line in terminal.text.split("\n"))
        return marks > messages and not any("answering " in line for line in terminal.lines)  # the first is ours

    await terminal.until(there)


def last_word(terminal: VirtualTerminal) -> int:
    """The number of the last word of a long answer that is on the screen. One frame may show hundreds of new words: a
    test waits for the last one before a stall, or for any later one."""
    return max((int(number) for number in re.findall(r"word(\d+)", terminal.text)), default=-1)


def body(text: str) -> list[str]:
    """From the first question to the words of farewell."""
    lines = text.split("\n")
    first = next(at for at, line in enumerate(lines) if line.startswith("❯ "))
    last = next(at for at, line in enumerate(lines) if "go on with this conversation" in line)
    return lines[first:last]


# ── the answer ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_streamed_or_not_the_final_screen_is_the_same(home: Home) -> None:
    home.server.extend(Scenario(reply=reply(MARKDOWN), write_bytes=37), reply(MARKDOWN))
    screens = []
    for switch in ("--stream", "--no-stream"):
        async with home.terminal(switch) as terminal:
            await ready(terminal)
            terminal.enter("What is a mill?")
            await answered(terminal)
            terminal.type("\x04")
            assert await terminal.exit_code() == 0
            screens.append(body(terminal.text))
    assert screens[0] == screens[1]
    assert sum(line.startswith("● ") for line in screens[0]) == 1
    assert "    def grind(grain: float) -> float:" in screens[0]


async def test_a_long_answer_in_2000_chunks_scrolls_by_whole(home: Home) -> None:
    text = answer(10_000)
    home.server.extend(Reply((TextBlock(tuple(chunks_of(text, 2000))),)), reply(text))
    screens = []
    for switch in ("--stream", "--no-stream"):
        async with home.terminal(switch, columns=100) as terminal:
            await ready(terminal)
            terminal.enter("Tell me everything.")
            await answered(terminal)
            terminal.type("\x04")  # leaving draws the last frame whole
            assert await terminal.exit_code() == 0
            screens.append(body(terminal.text))
    assert screens[0] == screens[1]
    assert len(screens[0]) > 300


async def test_typing_while_the_answer_streams(home: Home) -> None:
    home.server.extend("long+pace@0.02", reply("Second."))
    async with home.terminal() as terminal:
        await ready(terminal)
        terminal.enter("Go on and on.")
        await terminal.until("word2")
        terminal.type("My next question")
        await terminal.until(lambda: "❯ My next question" in terminal.lines)
        before = last_word(terminal)
        await terminal.until(lambda: last_word(terminal) > before)  # it goes on meanwhile
        terminal.type("?\r")  # a new message takes over
        await terminal.until("Second.")
        await answered(terminal, 2)
    assert "interrupted" in terminal.text
    assert "word1999" not in terminal.text
    assert home.server.requests[-1].json()["messages"][-1]["content"] == "My next question?"


async def test_ctrl_c_interrupts_in_mid_stream_and_twice_leaves(home: Home) -> None:
    home.server.extend("long+stall@30%", reply("Still here."))
    async with home.terminal() as terminal:
        await ready(terminal)
        terminal.enter("Go.")
        await terminal.until("word599")
        terminal.type("\x03")
        await terminal.until("interrupted")
        await home.server.requests[0].over.wait()
        assert home.server.requests[0].disconnected_at is not None
        terminal.enter("There?")
        await terminal.until("Still here.")
        await answered(terminal, 2)
        terminal.type("\x03")
        await terminal.until("Ctrl-C again leaves")
        terminal.type("\x03")
        assert await terminal.exit_code() == 130


async def test_an_answer_that_another_terminal_stops_says_so(home: Home) -> None:
    home.server.extend("long+stall@1%")
    async with home.terminal() as terminal:
        await ready(terminal)
        terminal.enter("Go.")
        await terminal.until("word2")
        async with open_app(load(home.env)) as app:
            [run] = await app.journal.runs()
            await app.agents.stop(run.id, by="cli")
        await terminal.until("◼ stopped by another terminal")


async def test_the_window_changes_its_size_in_mid_stream(home: Home) -> None:
    home.server.extend(Scenario(reply=reply(" ".join(["flow"] * 400) + "\n\nAnd *done*."), pace_s=0.004))
    async with home.terminal(columns=80, rows=24) as terminal:
        await ready(terminal)
        terminal.enter("Go.")
        await terminal.until(lambda: terminal.text.count("flow") > 60)
        terminal.resize(50, 24)
        await terminal.until("And done.")
        await answered(terminal)
        assert max(map(len, terminal.lines)) <= 50
        assert sum(line.startswith("❯") for line in terminal.lines) == 1
        assert terminal.text.count("● flow") == 1
        assert terminal.text.count("flow") == 400  # nothing of what moved was left behind


def resized_in_tmux(home: Home, socket: Path, fifo: Path) -> str:
    """An answer that stands still in mid-sentence, the window made narrower and wider, Ctrl-C: all that is seen."""
    tmux = ("tmux", "-S", str(socket), "-f", "/dev/null")

    def do(*command: str) -> str:
        return subprocess.run([*tmux, *command], env=env, capture_output=True, text=True, check=True).stdout

    def shown() -> str:
        return do("capture-pane", "-p", "-S", "-200")

    def until(text: str) -> None:
        while text not in shown():
            assert changes.read(4096), shown()

    env = {**home.env, "LANG": "C.UTF-8"}
    os.mkfifo(fifo)
    do("new-session", "-d", "-x", "90", "-y", "30", " ".join(home.command()))
    try:
        do("pipe-pane", "-o", f"cat > {fifo}")  # whatever is drawn from now on tells us to look again
        with fifo.open("rb", buffering=0) as changes:
            until("❯")
            do("send-keys", "/help", "Enter")  # tmux keeps no blank rows: what moves is not at the very top
            until("as does Ctrl-D")
            do("send-keys", "go", "Enter")
            until("word98")
            do("resize-window", "-x", "60", "-y", "30")
            until("word8\n")
            do("resize-window", "-x", "100", "-y", "30")
            until("word14\n")
            do("send-keys", "C-c")
            until("interrupted")
        return shown()
    finally:
        do("kill-server")


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
async def test_a_terminal_that_reflows_keeps_no_traces(home: Home, tmp_path: Path) -> None:
    home.server.extend("long+stall@5%")
    screen = await asyncio.to_thread(resized_in_tmux, home, tmp_path / "tmux", tmp_path / "changes")
    assert [screen.split().count(f"word{number}") for number in range(98)] == [1] * 98
    assert screen.count("❯") == 3


async def test_reasoning_is_shown_when_asked_for(home: Home) -> None:
    home.server.extend(*[reply(think("Water runs downhill."), "Down.")] * 2)
    async with home.terminal() as terminal:
        await ready(terminal)
        terminal.enter("Where?")
        await answered(terminal)
        assert "Water runs" not in terminal.text
        terminal.enter("/reasoning")
        await terminal.until("reasoning shown")
        terminal.enter("Where?")
        await terminal.until("Water runs downhill.")


# ── tools and approvals ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("keys", "runs"), [("once\r", True), ("d", False)])
async def test_an_approval_shows_the_whole_command_and_one_key_answers(home: Home, keys: str, runs: bool) -> None:
    victim = home.path / "victim"
    victim.mkdir()
    command = f"rm -rf {victim}"
    home.server.extend(reply("I will.", call("terminal", {"command": command})), reply("So it is."))
    async with home.terminal(columns=120, rows=40) as terminal:
        await ready(terminal)
        terminal.enter("Remove it.")
        await armed(terminal)
        assert command in terminal.text.replace("\n", "").replace("    ", "")
        assert re.search(r"5\d s left, then it is denied", terminal.text)
        assert "exactly this, here, until this session ends" in terminal.text
        terminal.type(keys)
        await terminal.until("So it is.")
        await answered(terminal, 2)
        assert victim.exists() is not runs
        assert ("✓ terminal" in terminal.text) is runs
        assert ("✓ approved once" if runs else "✗ denied") in terminal.text
        assert terminal.lines.count("❯") == 1  # nothing of the answer is left in the line
    assert len(home.server.requests) == 2


async def test_what_was_approved_always_is_listed_and_taken_back_in_the_chat(home: Home) -> None:
    removes = call("terminal", {"command": "rm -rf ./x"})
    home.server.extend(*(turn for text in ("One.", "Two.", "Three.") for turn in (reply(removes), reply(text))))
    async with home.terminal(columns=120, rows=40) as terminal:
        await ready(terminal)
        terminal.enter("/approvals")
        await terminal.until('nothing was approved with "always"')
        terminal.enter("Remove it.")
        await armed(terminal)
        terminal.type("a")
        await terminal.until("One.")
        found = re.search(r"✓ approved always; tailrace approvals --forget ([0-9a-f]{8}) takes it back", terminal.text)
        assert found is not None
        await answered(terminal, 1)
        terminal.enter("Again.")
        await terminal.until("Two.")  # unasked
        await answered(terminal, 2)
        terminal.enter("/approvals")
        await terminal.until("/approvals forget ID asks about one again")
        [listed] = [line for line in terminal.lines if line.strip().startswith(found[1])]
        assert listed.rstrip().endswith("rm -rf ./x")
        terminal.enter("/approvals forget zz")
        await terminal.until("error: there is no approval 'zz'")
        terminal.enter(f"/approvals forget {found[1]}")
        await terminal.until("asked about again: terminal: rm -rf ./x")
        terminal.enter("And again.")
        await armed(terminal)
        terminal.type("d")
        await terminal.until("Three.")


async def armed(terminal: VirtualTerminal) -> None:
    """The menu is there and its keys count: they stand out."""

    def bright() -> bool:
        rows = [row for row in terminal.rows() if "".join(cell.data for cell in row).startswith("   o  once")]
        return bool(rows) and rows[0][3].reverse

    await terminal.until(bright)


async def test_what_was_being_typed_approves_nothing_and_comes_back(home: Home) -> None:
    home.server.extend(
        Scenario(reply=reply(call("terminal", {"command": "rm -rf ./x"})), headers_after_s=0.3), reply("No.")
    )
    async with home.terminal(rows=40) as terminal:
        await ready(terminal)
        terminal.type("Remove it.\rand then also do")  # an "a", an "s", an "o" and a "d"
        await armed(terminal)
        terminal.type("d")
        await terminal.until(lambda: "❯ and then also do" in terminal.lines)
    assert "approved" not in terminal.text


async def test_a_denial_may_say_why_and_the_model_reads_it(home: Home) -> None:
    home.server.extend(reply(call("terminal", {"command": "rm -rf ./x"})), reply("I see."))
    async with home.terminal(rows=40) as terminal:
        await ready(terminal)
        terminal.enter("Remove it.")
        await armed(terminal)
        terminal.type("w")
        await terminal.until("Why not?")
        terminal.enter("keep the old build")
        await terminal.until("✗ denied: keep the old build")
        await terminal.until("I see.")
    told = home.server.requests[1].json()["messages"][-1]["content"]
    assert "denied by the user: keep the old build" in told


async def test_a_half_typed_answer_is_gone_when_the_time_is_up(home: Home) -> None:
    home.config["approvals"] = {"timeout_s": 2}
    home.server.extend(reply(call("terminal", {"command": "rm -rf ./x"})), reply("Well."), reply("Hello."))
    async with home.terminal(rows=40) as terminal:
        await ready(terminal)
        terminal.enter("Remove it.")
        await armed(terminal)
        terminal.type("wbecause")
        await terminal.until("✗ nobody answered within 2 s")
        await answered(terminal)
        terminal.enter("Hi")
        await terminal.until("Hello.")
    assert home.server.requests[2].json()["messages"][-1]["content"] == "Hi"


# ── commands, history, sessions ──────────────────────────────────────────────────────────────────────────────


async def test_commands_complete_and_say_what_they_did(home: Home) -> None:
    async with home.terminal(rows=40) as terminal:
        await ready(terminal)
        terminal.type("/re")
        await terminal.until("/reasoning  /resume  /retry")
        terminal.type("\x15/ve\t\r")
        await terminal.until("verbose on")
        assert "❯ /verbose" in terminal.text  # what was typed stands above what it says
        terminal.enter("/help")
        await terminal.until("as does Ctrl-D")
        for name in ("model", "new", "sessions", "resume", "stop", "yolo", "verbose", "reasoning", "rollback", "quit"):
            assert f"/{name} " in terminal.text
        terminal.enter("/stop")
        await terminal.until("nothing is running")
        terminal.enter("/frobnicate")
        await terminal.until("no command /frobnicate; /help lists them")
        terminal.enter("/modle faulty/blocks")
        await terminal.until("no command /modle; did you mean /model?")
        terminal.enter("/model anthropic")
        await terminal.until("which model of anthropic? /model anthropic/MODEL")
        terminal.enter("/model blocks")
        await terminal.until("model: faulty/blocks")
        terminal.enter("Hello?")
        await terminal.until("First block. Second block.")
        terminal.enter("/quit")
        assert await terminal.exit_code() == 0


async def test_what_was_entered_while_it_started_is_sent(home: Home) -> None:
    home.server.extend(reply("Good morning."))
    wait = "import os, select, sys; select.select([0], [], []); os.execv(sys.executable, sys.argv[1:])"
    async with VirtualTerminal([sys.executable, "-c", wait, *home.command()], home.env) as terminal:
        terminal.enter("Early.")  # the line is there before the program starts
        await terminal.until("● Good morning.")
    assert home.server.requests[0].json()["messages"][-1]["content"] == "Early."


async def test_a_path_and_ctrl_z_are_no_commands(home: Home) -> None:
    home.server.extend(reply("Names of hosts."))
    async with home.terminal() as terminal:
        await ready(terminal)
        terminal.enter("/etc/hosts\x1a is what?")
        await terminal.until("● Names of hosts.")
    assert home.server.requests[0].json()["messages"][-1]["content"] == "/etc/hosts is what?"


async def test_a_session_that_is_not_there_is_said(home: Home) -> None:
    async with home.terminal("--session", "diary") as terminal:
        await terminal.until("there is none of this name yet: your first message begins it")
    async with home.terminal("--session", "diary", "-q", "Hello?") as terminal:
        await terminal.until("there is no session diary yet: this question begins it")
        assert await terminal.exit_code() == 0
    async with home.terminal("--session", "diary", "-q", "Hello?") as terminal:
        assert await terminal.exit_code() == 0
        assert "diary" not in terminal.text


async def test_what_a_conversation_can_do_beside_talking(home: Home) -> None:
    """One session through `@file`, `!command`, a long paste, `/retry`, `/copy`, `/save` and `/compact`."""
    work = home.path / "work"
    work.mkdir()
    (work / "notes.md").write_text("The gate is open.\n")
    home.server.extend(*(reply(text) for text in ("First.", "Second.", "Third.", "Summary: a gate.", "Fourth.")))
    script = f"cd {work}; exec {' '.join(home.command())}"
    async with VirtualTerminal(["/bin/sh", "-c", script], home.env, rows=60) as terminal:
        await ready(terminal)
        terminal.enter("!echo from a command; exit 3")
        await terminal.until("exit code 3 · goes with your next message")
        terminal.type("Read @no\t\x1b[200~" + "\n".join(["pasted"] * 200) + "\x1b[201~")
        await terminal.until("❯ Read @notes.md [200 lines pasted]")
        terminal.type("\r")
        await terminal.until("● First.")
        assert "+ notes.md, 1 line" in terminal.text
        assert terminal.text.count("pasted") == 1
        terminal.enter("And then?")
        await terminal.until("● Second.")
        await answered(terminal, 2)
        terminal.enter("/retry")
        await terminal.until("● Third.")
        await answered(terminal, 3)
        terminal.enter("/copy")
        await terminal.until("copied the answer, 6 characters")
        terminal.enter("/save talk.md")
        await terminal.until("saved ")
        terminal.enter("/compact")
        await terminal.until("● Summary: a gate.")
        await answered(terminal, 4)
        terminal.enter("Go on.")
        await terminal.until("● Fourth.")
    assert "\x1b]52;c;" + base64.b64encode(b"Third.").decode() in terminal.written
    saved = (work / "talk.md").read_text()
    assert saved.startswith("## Read @notes.md [200 lines pasted]")
    assert "\n\nRead @notes.md " + "\n".join(["pasted"] * 200) + "\n\nFirst.\n\n" in saved
    assert "The gate is open." not in saved
    assert saved.endswith("## And then?\n\nThird.\n")
    asked = [[message["content"] for message in request.json()["messages"][1:]] for request in home.server.requests]
    assert asked[0][0].count("pasted") == 200
    assert "The gate is open." in asked[0][0]
    assert "from a command" in asked[0][0]
    assert asked[2] == [asked[0][0], "First.", "And then?"]  # the answer before is not there
    first = "".join(part["text"] for part in asked[4][0])
    assert first == "[Summary of the earlier conversation]\nSummary: a gate.\n\nAnd then?"
    assert asked[4][1:] == ["Third.", "Go on."]


async def test_a_command_of_ones_own_says_how_long_it_has_run(home: Home) -> None:
    gate = home.path / "gate"
    os.mkfifo(gate)
    async with home.terminal() as terminal:
        await ready(terminal)
        terminal.enter("Hello?")
        await answered(terminal)
        terminal.enter(f"!cat {gate}")
        times: set[str] = set()
        marks: set[str] = set()

        def grows() -> bool:
            times.update(re.findall(r"your command runs (\d\.\d s)", terminal.text))
            marks.update(re.findall(r"([⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]) cat", terminal.text))
            return len(times) > 2 and len(marks) > 2

        await terminal.until(grows)
        gate.write_text("through")
        await terminal.until("through")


async def test_the_output_of_a_command_stays_in_its_session(home: Home) -> None:
    gate = home.path / "gate"
    os.mkfifo(gate)
    home.server.extend(reply("Nothing else."))
    async with home.terminal() as terminal:
        await ready(terminal)
        terminal.enter("!echo earlier")
        await terminal.until("goes with your next message")
        terminal.enter(f"!cat {gate}")
        await terminal.until("your command runs")
        terminal.enter("/new")
        await terminal.until("new session ses_")
        gate.write_text("later")
        await terminal.until("stays in the session before")
        terminal.enter("What do you see?")
        await terminal.until("● Nothing else.")
    assert home.server.requests[0].json()["messages"][-1]["content"] == "What do you see?"


async def test_several_lines_and_the_history_of_before(home: Home) -> None:
    home.server.extend(reply("Two lines."), reply("Again."))
    async with home.terminal() as terminal:
        await ready(terminal)
        terminal.type("first\x1b\rsecond\r")  # Alt-Enter
        await answered(terminal)
        terminal.type("\x04")
        await terminal.exit_code()
    assert home.server.requests[0].json()["messages"][-1]["content"] == "first\nsecond"
    async with home.terminal() as terminal:
        await ready(terminal)
        terminal.type("x")
        await terminal.until("❯ x")
        terminal.type("\x15\x1b[A")  # clear the line, the arrow up
        await terminal.until(lambda: "  second" in terminal.lines)
        terminal.type("\r")
        await terminal.until("Again.")
    assert home.server.requests[1].json()["messages"][-1]["content"] == "first\nsecond"


async def test_a_session_goes_on_in_another_terminal(home: Home) -> None:
    home.server.extend(reply("Hello Ada."), reply("You are Ada."))
    async with home.terminal() as terminal:
        await ready(terminal)
        terminal.enter("I am Ada.")
        await answered(terminal)
        terminal.type("\x04")
        await terminal.exit_code()
    async with home.terminal() as terminal:
        await ready(terminal)
        terminal.enter("/sessions")
        await terminal.until("I am Ada.")
        terminal.enter("/resume 1")
        await terminal.until("Hello Ada.")
        terminal.enter("Who am I?")
        await terminal.until("You are Ada.")
    said = [message["content"] for message in home.server.requests[1].json()["messages"][1:]]
    assert said == ["I am Ada.", "Hello Ada.", "Who am I?"]


async def test_a_session_that_is_named_shows_what_is_under_way_in_it(home: Home) -> None:
    home.server.extend("long+stall@10%")
    async with home.terminal("--session", "diary") as first:
        await ready(first)
        first.enter("Go.")
        await first.until("word198")
        async with home.terminal("--session", "diary") as second:
            await second.until("word198")
            await second.until("answering ")


async def test_a_run_whose_terminal_died_is_joined_again(home: Home) -> None:
    home.server.extend("long+stall@10%", reply("finis."))
    async with home.terminal() as terminal:
        await ready(terminal)
        terminal.enter("Go.")
        await terminal.until("word198")
        assert terminal.process is not None
        terminal.process.send_signal(signal.SIGKILL)
        await terminal.exit_code()
    async with home.terminal() as terminal:
        await terminal.until("An answer was cut off when its terminal died")
        assert "“Go.”" in terminal.text
        await ready(terminal)
        terminal.type("\r")  # Enter joins
        await terminal.until("finis.")
        await answered(terminal)
        assert terminal.text.count("● word0 ") == 1
        assert terminal.text.count("word0 ") == 1


async def test_changes_of_a_turn_are_rolled_back(home: Home) -> None:
    work = home.path / "work"
    work.mkdir()
    (work / "kept.txt").write_text("before")
    home.server.extend(reply(call("write_file", {"path": "kept.txt", "content": "after"})), reply("Written."))
    script = f"cd {work}; exec {' '.join(home.command('--checkpoints'))}"
    async with VirtualTerminal(["/bin/sh", "-c", script], home.env) as terminal:
        await ready(terminal)
        terminal.enter("Change it.")
        await terminal.until("Written.")
        assert (work / "kept.txt").read_text() == "after"
        terminal.enter("/rollback")
        await terminal.until("~ kept.txt")
        assert (work / "kept.txt").read_text() == "after"
        terminal.enter("/rollback 1 yes")
        await terminal.until("done; /rollback undoes this too")
        assert (work / "kept.txt").read_text() == "before"
        terminal.enter("/rollback all")
        await terminal.until("error: /rollback [N] shows what it would change")
        terminal.enter("/rollback yes")
        await terminal.until(lambda: terminal.text.count("done; /rollback undoes this too") > 1)
        assert (work / "kept.txt").read_text() == "after"


# ── less of a terminal ───────────────────────────────────────────────────────────────────────────────────────


async def test_no_color_means_none(home: Home) -> None:
    home.server.extend(reply(MARKDOWN))
    home.env["NO_COLOR"] = "1"
    async with home.terminal() as terminal:
        await ready(terminal)
        terminal.enter("?")
        await answered(terminal)
        written = terminal.written
    colors = [part.split("m")[0] for part in written.split("\x1b[")[1:] if "m" in part[:12]]
    numbers = {number for sequence in colors for number in sequence.split(";")}
    assert not numbers & {str(code) for code in (*range(30, 50), *range(90, 110))}


async def test_a_dumb_terminal_gets_lines_and_nothing_else(home: Home) -> None:
    home.server.extend(
        reply("Plain **text**."),
        "long+stall@30%",
        reply(call("terminal", {"command": "rm -rf ./x"})),
        reply("Not done."),
    )
    async with VirtualTerminal(home.command(), home.env, term="dumb") as terminal:
        await terminal.until("Ctrl-D leaves")
        terminal.enter("Hello?")
        await terminal.until("Plain **text**.")
        terminal.enter("/verbose")
        await terminal.until("verbose on")
        terminal.enter("/yolo off")  # it is off: the question below is asked
        await terminal.until("yolo off")
        terminal.enter("Go on.")
        await terminal.until("word50")
        terminal.type("\x03")
        await terminal.until("interrupted")
        terminal.enter("Remove it.")
        await terminal.until("once, session, always or deny?")
        terminal.enter("deny")
        await terminal.until("command: rm -rf ./x")  # tools are shown in full
        await terminal.until("Not done.")
        terminal.type("\x04")
        assert await terminal.exit_code() == 0
    assert "\x1b" not in terminal.written


async def test_a_question_on_a_terminal_asks_there_for_approval(home: Home) -> None:
    """`-q` with somebody to ask: on the terminal, whatever stdout is."""
    home.server.extend(reply(call("terminal", {"command": "rm -rf ./x && touch ran"})), reply("Done."))
    command = home.command("-q", "Do it.")
    script = f"cd {home.path}; {' '.join(command[:-1])} '{command[-1]}' > out; echo CODE $?"
    async with VirtualTerminal(["/bin/sh", "-c", script], home.env) as terminal:
        await terminal.until("once, session, always or deny?")
        assert "rm -rf ./x && touch ran" in terminal.text
        terminal.type("once\n")
        await terminal.until("CODE 0")
    assert (home.path / "ran").exists()
    assert (home.path / "out").read_text() == "Done.\n"
