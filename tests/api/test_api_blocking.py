"""`AIAgent`, the blocking facade: its callbacks, its interrupts, and what is left when nobody closes it."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parked_turns import REASON, park_turn
from provider_thread import provider
from scripted_agent import STALLED, config_for, runs_of
from tailrace import AIAgent, tool
from tailrace.config.load import Config
from tailrace.errors import CorruptLog, RunParked, TailraceError
from tailrace.events import ApprovalAsked
from tailrace.testing.provider import Scenario, call, reply


def test_the_callback_gets_each_piece_and_none_at_the_end_of_each_response(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("text", encoding="utf-8")
    heard: list[str | None] = []
    script = [reply("Let me see.", call("read_file", {"path": "x.txt"})), reply("It says text.")]
    with provider(*script) as server:
        config = config_for(server.url, tmp_path)
        with AIAgent(config=config, directory=tmp_path, stream_callback=heard.append) as agent:
            answer = agent.run_conversation("What is in x.txt?")
    assert answer["final_response"] == "It says text."
    assert answer["completed"] is True
    assert answer["usage"]["output_tokens"] > 0
    assert [m["role"] for m in answer["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert heard.count(None) == 2
    assert "".join(piece or "|" for piece in heard) == "Let me see.|It says text.|"


def test_every_response_ends_with_none_also_one_that_only_calls_tools(tmp_path: Path) -> None:
    heard: list[str | None] = []
    looking = reply(call("read_file", {"path": "x.txt"}))
    with provider(looking, looking, reply("Nothing there. \n\n")) as server:
        config = config_for(server.url, tmp_path)
        with AIAgent(config=config, directory=tmp_path) as agent:
            agent.stream_callback = heard.append
            answer = agent.run_conversation("What is in x.txt?")
    assert answer["final_response"] == "Nothing there."
    assert "".join(piece or "|" for piece in heard) == "||Nothing there. \n\n|"


def test_a_text_that_came_whole_reaches_the_callback_too(tmp_path: Path) -> None:
    heard: list[str | None] = []
    looking = Scenario(reply=reply("Let me see.", call("read_file", {"path": "x"})), instead="no-streaming")
    with provider(looking, looking, reply("Gone.")) as server:
        config = config_for(server.url, tmp_path)
        with AIAgent(config=config, directory=tmp_path, stream_callback=heard.append) as agent:
            agent.run_conversation("Look.")
    assert "".join(piece or "|" for piece in heard) == "Let me see.|Gone.|"


def test_a_misspelt_option_is_refused(tmp_path: Path) -> None:
    agent = AIAgent()
    with pytest.raises(AttributeError):
        agent.callback = print  # type: ignore[attr-defined]
    agent.close()
    with pytest.raises(TailraceError, match="closed"):
        agent.run_conversation("Hi.")


def test_an_agent_that_nobody_closed_lets_go_when_it_is_collected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It used to stay open, and to end in tracebacks of tasks that were destroyed."""
    with provider(reply("Hello.")) as server:
        before = set(threading.enumerate())
        answer = AIAgent(config=config_for(server.url, tmp_path), directory=tmp_path).run_conversation("Hi.")
        (thread,) = [t for t in threading.enumerate() if t not in before and t.name == "tailrace-agent"]
        for _ in range(600):  # a thread that is about to let go of it may keep it from the first collection
            gc.collect()
            thread.join(0.1)
            if not thread.is_alive():
                break
    assert answer["final_response"] == "Hello."
    assert not thread.is_alive()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


class Owner:
    """An object with an agent, whose callbacks are its own methods."""

    def __init__(self, config: Config, directory: Path) -> None:
        callbacks: dict[str, Any] = {"stream_callback": self.on_piece, "on_approval": self.on_approval}
        self.agent = AIAgent(config=config, directory=directory, **callbacks)
        self.pieces: list[str | None] = []

    def on_piece(self, piece: str | None) -> None:
        self.pieces.append(piece)

    def on_approval(self, _asked: ApprovalAsked) -> bool:
        return False


def test_an_owner_whose_methods_are_the_callbacks_of_its_agent_is_collected(tmp_path: Path) -> None:
    with provider(reply("Hello.")) as server:
        before = set(threading.enumerate())
        owner = Owner(config_for(server.url, tmp_path), tmp_path)
        assert owner.agent.run_conversation("Hi.")["final_response"] == "Hello."
        (thread,) = [t for t in threading.enumerate() if t not in before and t.name == "tailrace-agent"]
        known = weakref.ref(owner)
        del owner
        for _ in range(600):  # a thread that is about to let go of it may keep it from the first collection
            gc.collect()
            thread.join(0.1)
            if not thread.is_alive():
                break
    assert known() is None
    assert not thread.is_alive()


def test_the_blocking_facade_refuses_a_turn_that_asks_nothing(tmp_path: Path) -> None:
    with provider() as server:
        agent = AIAgent(config=config_for(server.url, tmp_path), directory=tmp_path)
        with agent, pytest.raises(TailraceError, match="nothing was asked"):
            agent.run_conversation("")
    assert server.requests == []


def leave_by_exit() -> None:
    sys.exit(4)


def leave_by_interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("leave", "raised"), [(leave_by_exit, SystemExit), (leave_by_interrupt, KeyboardInterrupt)])
def test_leaving_the_program_in_a_callback_ends_the_turn(
    tmp_path: Path, leave: Callable[[], None], raised: type[BaseException]
) -> None:
    def on_piece(piece: str | None) -> None:
        if piece and not left:
            left.append(piece)
            leave()

    left: list[str] = []
    with provider(STALLED, reply("Again.")) as server:
        config = config_for(server.url, tmp_path)
        with AIAgent(config=config, directory=tmp_path, stream_callback=on_piece, session="s") as agent:
            with pytest.raises(raised):
                agent.run_conversation("Count.")
            assert agent.run_conversation("And?")["messages"][1]["content"].startswith("One")
    assert [run.state for run in runs_of(config)] == ["completed", "stopped"]


def test_a_tool_that_leaves_the_program_is_a_tool_that_failed(tmp_path: Path) -> None:
    @tool
    async def leave() -> None:
        """Leaves."""
        sys.exit(3)

    with provider(reply(call("leave", {})), reply("It failed.")) as server:
        config = config_for(server.url, tmp_path)
        with AIAgent(config=config, directory=tmp_path, tools=[leave]) as agent:
            answer = agent.run_conversation("Leave.")
    assert (answer["final_response"], answer["messages"][2]["content"]) == ("It failed.", "Error: SystemExit: 3")


@pytest.mark.parametrize("model", ["anthropic/claude-sonnet-4-5", "nowhere/model"])
def test_a_turn_that_fails_says_why(tmp_path: Path, model: str) -> None:
    """No key, no such provider: the answer is empty and the reason is not."""
    with provider() as server:
        config = config_for(server.url, tmp_path)
        with AIAgent(config=config, directory=tmp_path, model=model) as agent:
            answer = agent.run_conversation("Hi.")
    assert (answer["final_response"], answer["completed"], answer["status"]) == ("", False, "failed")
    assert model.partition("/")[0].upper() in answer["error"].upper()


def test_I102_a_conversation_that_is_set_aside_raises(tmp_path: Path) -> None:
    with provider(STALLED) as server:
        agent = AIAgent(config=config_for(server.url, tmp_path), directory=tmp_path)
        agent.stream_callback = lambda piece: agent._wait(park_turn(agent._agent._opened())) if piece else None
        with agent, pytest.raises(RunParked, match=REASON):
            agent.run_conversation("Count.")


def test_a_callback_may_interrupt_the_turn_itself(tmp_path: Path) -> None:
    with provider(STALLED) as server:
        agent = AIAgent(config=config_for(server.url, tmp_path), directory=tmp_path)
        agent.stream_callback = lambda piece: agent.interrupt() if piece else None
        with agent:
            answer = agent.run_conversation("Count.")
    assert answer["status"] == "stopped"


def test_a_callback_that_raises_changes_nothing(tmp_path: Path) -> None:
    def broken(_piece: str | None) -> None:
        raise RuntimeError("no")

    with provider(reply("Hello."), reply("Again.")) as server:
        config = config_for(server.url, tmp_path)
        with AIAgent(config=config, directory=tmp_path, stream_callback=broken) as agent:
            assert agent.run_conversation("Hi.")["final_response"] == "Hello."
        with AIAgent(config=config, directory=tmp_path) as silent:
            assert silent.run_conversation("Hi.")["final_response"] == "Again."


def test_an_interrupt_from_another_thread_returns_what_there_is(tmp_path: Path) -> None:
    with provider(STALLED) as server:
        agent: AIAgent

        def on_piece(piece: str | None) -> None:
            if piece is not None:
                threading.Thread(target=agent.interrupt).start()

        with AIAgent(config=config_for(server.url, tmp_path), directory=tmp_path, stream_callback=on_piece) as agent:
            answer = agent.run_conversation("Count.")
    assert answer["completed"] is False
    assert answer["status"] == "stopped"
    assert "One two three four five".startswith(answer["final_response"])


def test_F68_ctrl_c_stops_the_turn_and_the_conversation_goes_on(tmp_path: Path) -> None:
    def on_piece(piece: str | None) -> None:
        if piece is not None and not interrupted:
            interrupted.append(piece)
            signal.pthread_kill(main, signal.SIGINT)

    interrupted: list[str] = []
    main = threading.get_ident()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with (
            provider(STALLED, reply("Again.")) as server,
            AIAgent(config=config_for(server.url, tmp_path), directory=tmp_path, stream_callback=on_piece) as agent,
        ):
            with pytest.raises(KeyboardInterrupt):
                agent.run_conversation("Count.")
            answer = agent.run_conversation("And?")
    finally:
        signal.signal(signal.SIGINT, before)
    assert answer["final_response"] == "Again."
    assert answer["messages"][1]["content"].startswith("One")


def test_an_agent_that_cannot_open_says_why_each_time(tmp_path: Path) -> None:
    (tmp_path / "tailrace.db").write_bytes(b"no database")
    with provider() as server, AIAgent(config=config_for(server.url, tmp_path), directory=tmp_path) as agent:
        for _ in range(2):
            with pytest.raises(CorruptLog, match="is not a database"):
                agent.run_conversation("Hi.")
