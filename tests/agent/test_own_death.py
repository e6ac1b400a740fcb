"""A turn whose own command ends its process after each restart, and messages that wait too long for their turn."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from agent.test_left_questions import Long
from tailrace.agent import service
from tailrace.agent.turn import ENDED_WITH_PROCESS, Turn
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import open_app
from tailrace.config.load import load
from tailrace.events import GatewayNotice, MessageRecorded, ToolCallChunk, ToolOutputRecorded
from tailrace.journal.open_journal import open_journal
from tailrace.messages import Message, ToolCall, user
from tailrace.testing.provider import FaultyProvider, call, reply

CONFIG = """
model: {{provider: faulty, name: ok}}
providers: {{faulty: {{dialect: chat, base_url: '{url}', backoff_s: 0.001}}}}
approvals: {{mode: yolo}}
store: {{url: 'sqlite:///runs.db', lease_s: 1}}
"""


async def process(home: Path) -> tuple[int | None, str]:
    program = Path(__file__).with_name("dying_process.py")
    pipe = asyncio.subprocess.PIPE
    started = await asyncio.create_subprocess_exec(sys.executable, str(program), str(home), stdout=pipe)
    said, _ = await asyncio.wait_for(started.communicate(), 60)
    return started.returncode, said.decode().strip()


async def test_N159_the_third_restart_that_a_run_causes_sets_it_aside_whatever_its_progress(tmp_path: Path) -> None:
    deadly = [reply(call("terminal", {"command": "kill -9 $PPID"}, id=f"c{number}")) for number in range(9)]
    async with FaultyProvider(script=deadly) as provider:
        (tmp_path / "config.yaml").write_text(CONFIG.format(url=provider.openai_url), encoding="utf-8")
        ends = [await process(tmp_path) for _ in range(4)]
        asked = len(provider.requests)
    assert ends == [(-9, ""), (-9, ""), (-9, ""), (0, "parked")]
    assert asked == 3, "each restart was followed by progress: another answer"
    async with open_journal("sqlite:///runs.db", tmp_path / "runs.db") as journal:
        (run,) = await journal.runs(kind="agent")
        notices = [entry.event for entry in await journal.read(run.id) if isinstance(entry.event, GatewayNotice)]
    assert (run.state, run.parked is not None) == ("parked", True)
    assert " 3 times " in notices[-1].text


def test_N159_a_person_who_lets_the_run_go_on_starts_the_count_over() -> None:
    turn = Turn([user("Go.")])
    for number in range(3):
        turn.apply(MessageRecorded(Message("assistant", (ToolCall(f"c{number}", "terminal", "{}"),)), "tools"))
        turn.apply(ToolCallChunk("terminal", index=number))
        assert turn.ended_with_process == number + 1
        if number < 2:
            turn.apply(ToolOutputRecorded(f"c{number}", "terminal", ENDED_WITH_PROCESS, ok=False))
            assert turn.ended_with_process == 0
    turn.apply(GatewayNotice("parked", "set aside"))
    assert turn.ended_with_process == 1


async def test_N160_a_chats_message_that_waited_too_long_is_told_and_not_answered(tmp_path: Path) -> None:
    long = Long()
    script = [reply(call("long", {"text": "slowly"})), reply("Done.")]
    async with FaultyProvider(script=script) as provider:
        config = CONFIG.format(url=provider.openai_url).replace("sqlite:///runs.db", "memory://")
        (tmp_path / "config.yaml").write_text(config, encoding="utf-8")
        async with open_app(load({}, tmp_path), directory=tmp_path, tools=(long,)) as app:
            specs = [
                TurnSpec(user(text), requester=who, busy="queue")
                for text, who in (("First.", "telegram:1"), ("Second.", "telegram:1"))
            ]
            first = await app.agents.submit(specs[0], session="telegram:1")
            await long.running.wait()
            second = await app.agents.submit(specs[1], session="telegram:1")
            app.agents._clock = lambda: second.created_at + service.MAX_WAIT_S + 1
            long.may_end.set()
            assert (await app.agents.finished(first.id)).output == "Done."
            told = await app.agents.finished(second.id)
            asked = len(provider.requests)
    assert (told.status, asked) == ("failed", 2)
    assert told.error is not None
    assert told.error.message == (
        "This message waited 60 min for its turn and was not answered. Send it again if it still matters."
    )
