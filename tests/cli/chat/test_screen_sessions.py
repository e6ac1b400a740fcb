"""Commands, history and sessions in a real terminal: what a person types and sees."""

from __future__ import annotations

import base64
import os
import re
import signal

from cli.chat.screen_home import Home, answered, body, ready
from cli.screen.vt import VirtualTerminal
from tailrace.testing.provider import call, reply


async def test_commands_complete_and_say_what_they_did(home: Home) -> None:
    async with home.terminal(rows=40) as terminal:
        await ready(terminal)
        terminal.type("/re")
        await terminal.until("continue an earlier session")  # each command with what it does
        assert [line.split()[0] for line in terminal.lines if line.startswith("  /re")] == [
            "/reasoning",
            "/resume",
            "/retry",
        ]
        terminal.type("\x1b[B\x1b[B")  # the second one is marked
        await terminal.until(lambda: any(line.startswith("❯ /resume") for line in terminal.lines))
        terminal.type("\x15/ve\t\r")
        await terminal.until("verbose on")
        assert "❯ /verbose" in terminal.text  # what was typed stands above what it says
        terminal.enter("/help")
        await terminal.until("as does Ctrl-D")
        assert "Esc         takes the message that waits back; again: interrupts" in terminal.text
        for name in ("model", "new", "resume", "stop", "yolo", "verbose", "reasoning", "undo", "quit"):
            assert f"/{name} " in terminal.text
        terminal.enter("/stop")
        await terminal.until("nothing is running")
        terminal.enter("/frobnicate")
        await terminal.until("no command /frobnicate; /help lists them")
        terminal.enter("/modle faulty/blocks")
        await terminal.until("no command /modle; did you mean /model?")
        terminal.enter("/back")
        await terminal.until("no command /back; /resume goes back to a session")
        terminal.enter("/nwe")
        await terminal.until("no command /nwe; did you mean /new?")
        terminal.enter("/yol")
        await terminal.until("no command /yol; /help lists them")
        terminal.enter("/model anthropic")
        await terminal.until("which model of anthropic? /model anthropic/MODEL")
        terminal.enter("/model blocks")
        await terminal.until("model: faulty/blocks")
        terminal.enter("Hello?")
        await terminal.until("First block. Second block.")
        assert "warning:" not in terminal.text
        terminal.enter("/exit")
        assert await terminal.exit_code() == 0


async def test_leaving_names_a_session_in_which_something_was_asked(home: Home) -> None:
    async with home.terminal("--session", "diary") as terminal:
        await ready(terminal)
        terminal.enter("Hello?")
        await answered(terminal, 0)
        terminal.enter("/new")
        await terminal.until("new conversation; /resume")
        terminal.enter("/quit")
        assert await terminal.exit_code() == 0
        assert "go on with this conversation" not in terminal.text
    async with home.terminal("--session", "diary") as terminal:
        await ready(terminal)
        terminal.enter("/quit")
        assert await terminal.exit_code() == 0
        assert "chat --session diary" in terminal.text


async def test_a_missing_key_has_its_next_step(home: Home) -> None:
    home.config["model"] = {"provider": "openai", "name": "gpt-5"}
    home.env.pop("OPENAI_API_KEY", None)
    async with home.terminal(columns=120) as terminal:
        assert await terminal.exit_code() == 1
        assert "error: providers.openai.key_env: OPENAI_API_KEY is not set in the environment" in terminal.text
        assert "       export it and start again, or choose another model: " in terminal.text
        assert terminal.text.rstrip().endswith("tailrace init")


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
    """One session through `@file`, `!command`, a long paste, `/retry`, `/copy` and `/compact`."""
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
        await answered(terminal, 1)  # before that the next message would steer this turn
        terminal.enter("And then?")
        await terminal.until("● Second.")
        await answered(terminal, 2)
        terminal.enter("/retry")
        await terminal.until("● Third.")
        await answered(terminal, 3)
        terminal.enter("/copy")
        await terminal.until("copied the answer, 6 characters")
        terminal.enter("/compact")
        await terminal.until("● Summary: a gate.")
        await answered(terminal, 4)
        terminal.enter("Go on.")
        await terminal.until("● Fourth.")
    assert "\x1b]52;c;" + base64.b64encode(b"Third.").decode() in terminal.written
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
            times.update(re.findall(r"your command runs (\d\.\d ?s)", terminal.text))
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
        await terminal.until("new conversation; /resume")
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


async def test_what_the_program_says_stands_below_its_question_and_apart_from_answers(home: Home) -> None:
    home.server.extend(reply("One."), reply("Two."))
    async with home.terminal(columns=120) as terminal:
        await ready(terminal)
        terminal.enter("Hello.")
        await answered(terminal)
        terminal.enter("What is in @no/file.txt?")
        await answered(terminal, 2)
        terminal.type("\x04")
        await terminal.exit_code()
        assert body(terminal.text) == [
            "❯ Hello.",
            "",
            "● One.",
            "",
            "❯ What is in @no/file.txt?",
            "  @no/file.txt is no file here: sent as text",
            "",
            "● Two.",
            "",
        ]


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
        terminal.enter("/resume")
        await terminal.until("❯ I am Ada.")
        terminal.type("\r")
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
        await terminal.until("no command /rollback; /undo takes the last changes back")
        terminal.enter("/undo")
        await terminal.until("taken back; /undo again brings it back")
        await terminal.until("restored kept.txt")
        assert (work / "kept.txt").read_text() == "before"
        terminal.enter("/undo")
        await terminal.until("brought back; /undo again takes it back")
        assert (work / "kept.txt").read_text() == "after"


async def test_the_command_that_goes_on_can_be_typed_whatever_the_session_is_called(home: Home) -> None:
    home.server.extend(reply("Once."))
    name = "mill & barn; $HOME"
    async with home.terminal("--session", name, columns=200) as terminal:
        await ready(terminal)
        terminal.enter("Hello?")
        await terminal.until("Once.")
        terminal.type("\x04")
        await terminal.until(f"chat --session '{name}'")
    async with VirtualTerminal(home.command("--session", name), home.env, columns=200, term="dumb") as terminal:
        await terminal.until("Ctrl-D leaves")
        terminal.type("\x04")
        await terminal.until(f"chat --session '{name}'")


async def test_a_line_that_is_typed_before_the_screen_is_there_is_sent(home: Home) -> None:
    home.server.extend(reply("Here I am."))
    async with home.terminal() as terminal:
        terminal.type("Are you there?\r")
        await terminal.until("● Here I am.")
        terminal.type("One\nTwo")
        await terminal.until(lambda: "❯ One" in terminal.lines and "  Two" in terminal.lines)
    assert len(home.server.requests) == 1
