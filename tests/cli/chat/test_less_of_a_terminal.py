"""A terminal without colours, a dumb one, and a single question on one."""

from __future__ import annotations

from cli.chat.screen_home import MARKDOWN, Home, answered, ready
from cli.screen.vt import VirtualTerminal
from tailrace.testing.provider import call, reply


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
        terminal.enter("/yolo")
        await terminal.until("there are no commands on this terminal")
        terminal.enter("Go on.")
        await terminal.until("word50")
        terminal.type("\x03")
        await terminal.until("interrupted")
        terminal.enter("Remove it.")
        await terminal.until("once, session, always or deny?")
        terminal.enter("deny")
        await terminal.until("Not done.")
        terminal.type("\x04")
        assert await terminal.exit_code() == 0
        assert "go on with this conversation: " in terminal.text
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
