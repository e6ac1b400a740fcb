"""Tools and their approval in a real terminal: one key answers, and nothing else does."""

from __future__ import annotations

import re

import pytest

from cli.chat.screen_home import Home, answered, ready
from cli.screen.vt import VirtualTerminal
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import App, open_app
from tailrace.config.load import load
from tailrace.events import ApprovalAnswered
from tailrace.messages import user
from tailrace.testing.provider import Scenario, call, reply


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
    home.server.extend(reply(call("terminal", {"command": "rm -rf ./x"})), reply("Well."))
    async with home.terminal(rows=40) as terminal:
        await ready(terminal)
        terminal.enter("Remove it.")
        await armed(terminal)
        terminal.type("wbecause")
        await terminal.until("✗ no answer came within 2 s")
        await answered(terminal)
        assert "because" not in terminal.text


async def asking_run(app: App) -> str:
    """A run of another requester that waits for an approval."""
    run = await app.agents.submit(TurnSpec(user("Tidy the mill."), requester="ann", reachable=True))
    async for _ in app.journal.tail(run.id):
        if any(waiting.run.id == run.id for waiting in await app.waiting.listed()):
            break
    return run.id


@pytest.mark.parametrize(("key", "told"), [("o", "approved once"), ("d", "denied")])
async def test_N168_a_question_of_another_run_is_answered_in_the_terminal(home: Home, key: str, told: str) -> None:
    home.server.extend(reply(call("terminal", {"command": "rm -rf ./x"})), reply("So it is."))
    async with home.terminal(rows=40) as terminal, open_app(load({}, home.path), directory=home.path) as app:
        await ready(terminal)
        run_id = await asking_run(app)
        await armed(terminal)
        assert "another run asks: Tidy the mill." in terminal.text
        assert "rm -rf ./x" in terminal.text
        terminal.type(key)
        assert (await app.agents.finished(run_id)).output == "So it is."
        await terminal.until(told)
        await terminal.until(lambda: "then it is denied" not in "\n".join(terminal.lines))
        answers = [entry.event for entry in await app.journal.facts(run_id)]
    assert [event.by for event in answers if isinstance(event, ApprovalAnswered)] == ["cli"]


async def test_N168_it_is_taken_away_when_another_surface_has_answered(home: Home) -> None:
    """Also below an answer that streams, which it does not cut."""
    words = " ".join(f"word{number}" for number in range(40))
    home.server.extend(Scenario(reply=reply(words), pace_s=0.1))
    async with home.terminal(rows=40) as terminal, open_app(load({}, home.path), directory=home.path) as app:
        await ready(terminal)
        terminal.enter("Count.")
        await terminal.until("word2")
        home.server.extend(reply(call("terminal", {"command": "rm -rf ./x"})), reply("I see."))
        run_id = await asking_run(app)
        await terminal.until("another run asks: Tidy the mill.")
        [waiting] = await app.waiting.listed()
        await app.agents.answer(run_id, waiting.asked.approval_id, "deny", by="ann", reason="not today")
        await terminal.until("denied: not today")
        await terminal.until(lambda: "then it is denied" not in "\n".join(terminal.lines))
        assert (await app.agents.finished(run_id)).output == "I see."
        await answered(terminal)
        assert terminal.text.count("╭") == 1  # one box: the answer was not cut
