"""Typing while the agent works: the message waits below the answer, is read with the next call, or comes back."""

from __future__ import annotations

from cli.chat.screen_home import Home, answered, ready
from tailrace.testing.provider import Break, Offset, Scenario, reply

WORDS = " ".join(f"word{number}" for number in range(40))
SLOW = Scenario(reply=reply(WORDS), pace_s=0.05)
STALLED = Scenario(reply=reply(WORDS), broken=Break("stall", Offset(60, per_cent=True)))


async def test_N165_what_is_typed_during_an_answer_is_read_after_it(home: Home) -> None:
    home.server.extend(SLOW, reply("Second."))
    async with home.terminal() as terminal:
        await ready(terminal)
        terminal.enter("Count.")
        await terminal.until("word2")
        terminal.enter("And backwards?")
        await terminal.until("next: And backwards? · Esc takes it back")
        await terminal.until("Second.")
        await answered(terminal, 2)
        assert "next:" not in "\n".join(terminal.lines)
        question = next(at for at, line in enumerate(terminal.lines) if line.startswith("❯ And backwards?"))
        assert any("word39" in line for line in terminal.lines[:question])
    said = [message["content"] for message in home.server.requests[-1].json()["messages"][1:]]
    assert said == ["Count.", WORDS, "And backwards?"]
    assert "interrupted" not in terminal.text


async def test_escape_takes_it_back_and_again_stops_the_answer(home: Home) -> None:
    home.server.extend(STALLED)
    async with home.terminal() as terminal:
        await ready(terminal)
        terminal.enter("Count.")
        await terminal.until("word2")
        terminal.enter("Backwards?")
        await terminal.until("next: Backwards?")
        terminal.type("\x1b")
        await terminal.until(lambda: "❯ Backwards?" in terminal.lines)
        assert "next:" not in "\n".join(terminal.lines)
        assert "interrupted" not in terminal.text
        terminal.type("\x1b")
        await terminal.until("interrupted")
        await terminal.until(lambda: "❯ Backwards?" in terminal.lines)
    assert len(home.server.requests) == 1


async def test_N165_what_a_stop_returns_stands_in_the_input(home: Home) -> None:
    home.server.extend(STALLED)
    async with home.terminal() as terminal:
        await ready(terminal)
        terminal.enter("Count.")
        await terminal.until("word2")
        terminal.enter("Backwards?")
        await terminal.until("next: Backwards?")
        terminal.type("\x03")
        await terminal.until("interrupted")
        await terminal.until(lambda: "❯ Backwards?" in terminal.lines)


async def test_N165_what_the_end_returns_is_the_next_turn(home: Home) -> None:
    home.server.extend(SLOW, reply("Second."))
    home.config["agent"] = {"max_turns": 1}
    async with home.terminal() as terminal:
        await ready(terminal)
        terminal.enter("Count.")
        await terminal.until("word2")
        terminal.enter("And backwards?")
        await terminal.until("next: And backwards?")
        await terminal.until("Second.")
    said = [message["content"] for message in home.server.requests[-1].json()["messages"][1:]]
    assert said == ["Count.", WORDS, "And backwards?"]


async def test_what_is_typed_during_a_summary_is_kept_and_asked_after_it(home: Home) -> None:
    summary = Scenario(reply=reply(WORDS), pace_s=0.1)
    home.server.extend(reply("First."), reply("Second."), summary, reply("Third."))
    async with home.terminal() as terminal:
        await ready(terminal)
        for number, word in enumerate(("First.", "Second."), 1):
            terminal.enter("Go on.")
            await terminal.until(word)
            await answered(terminal, number)
        terminal.enter("/compact")
        await terminal.until("word2")
        terminal.enter("Too early?")
        await terminal.until("next: Too early?")
        terminal.type("\x1b")
        await terminal.until(lambda: "❯ Too early?" in terminal.lines)
        terminal.type("\r")
        await terminal.until("next: Too early?")
        terminal.enter("/cost")  # what is typed meanwhile is carried out
        await terminal.until("faulty/ok")
        assert "word39" not in terminal.text
        await terminal.until("Third.")
    assert home.server.requests[-1].json()["messages"][-1]["content"] == "Too early?"
    assert len(home.server.requests) == 4


async def test_a_summary_is_stopped_though_a_question_waits_for_its_end(home: Home) -> None:
    home.server.extend(reply("First."), reply("Second."), STALLED)
    async with home.terminal() as terminal:
        await ready(terminal)
        for number, word in enumerate(("First.", "Second."), 1):
            terminal.enter("Go on.")
            await terminal.until(word)
            await answered(terminal, number)
        terminal.enter("/compact")
        await terminal.until("word2")
        terminal.enter("Too early?")
        await terminal.until("next: Too early?")
        terminal.type("\x03")
        await terminal.until("interrupted")
        await terminal.until(lambda: "❯ Too early?" in terminal.lines)
    assert len(home.server.requests) == 3


async def test_quit_typed_ahead_leaves_after_the_answer(home: Home) -> None:
    home.server.extend(SLOW)
    async with home.terminal() as terminal:
        await ready(terminal)
        terminal.enter("Count.")
        await terminal.until("word2")
        terminal.enter("/quit")
        await terminal.until("next: /quit")
        terminal.enter("ls -la")  # meant for the shell
        await terminal.until(lambda: "❯ ls -la" in terminal.lines)
        assert await terminal.exit_code() == 0
    assert "word39" in terminal.text
    assert "interrupted" not in terminal.text
    assert len(home.server.requests) == 1


async def test_quit_waits_for_no_answer_when_it_is_typed_twice(home: Home) -> None:
    home.server.extend(STALLED)
    async with home.terminal() as terminal:
        await ready(terminal)
        terminal.enter("Count.")
        await terminal.until("word2")
        terminal.enter("/quit")
        await terminal.until("next: /quit")
        terminal.type("\x1b")  # Esc takes it back
        await terminal.until(lambda: "❯ /quit" in terminal.lines)
        terminal.type("\r")
        await terminal.until("next: /quit")
        terminal.enter("/quit")
        assert await terminal.exit_code() == 0
    assert "interrupted" in terminal.text
