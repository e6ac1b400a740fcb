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
from tailrace.errors import ConfigError, CorruptLog, RunParked, TailraceError
from tailrace.events import ApprovalAsked
from tailrace.testing.provider import Break, Offset, Scenario, call, reply


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


def test_a_text_that_no_attempt_could_go_on_with_reaches_the_callback_once(tmp_path: Path) -> None:
    """The later attempts bring nothing new and are withdrawn; what the first one said stands."""
    heard: list[str | None] = []
    cut = Scenario(reply=reply("One two three four five six."), broken=Break("cut", Offset(50, per_cent=True)))
    with provider(*[cut] * 3) as server:
        config = config_for(server.url, tmp_path)
        with AIAgent(config=config, directory=tmp_path, stream_callback=heard.append) as agent:
            answer = agent.run_conversation("Count.")
    assert answer["status"] == "incomplete"
    assert answer["final_response"].startswith("One")
    assert "".join(piece or "|" for piece in heard).rstrip("| ") == answer["final_response"]


@pytest.mark.parametrize(("edits", "name"), [((), "read_file"), (("arguments-first",), "")])
def test_B38_a_lost_call_is_told_to_programs_and_in_the_answer(
    tmp_path: Path, edits: tuple[str, ...], name: str
) -> None:
    """The name comes last in the second stream, which breaks off before it."""
    looking = reply("Let me see.", call("read_file", {"path": "a-long-name.txt"}))
    lost = Scenario(reply=looking, edits=edits, broken=Break("cut", Offset(75, per_cent=True)))
    with provider(*[lost] * 3) as server, AIAgent(config=config_for(server.url, tmp_path), directory=tmp_path) as agent:
        answer = agent.run_conversation("What is there?")
    assert (answer["status"], answer["completed"]) == ("incomplete", False)
    assert [(action["tool_name"], action["kind"]) for action in answer["not_executed"]] == [(name, "lost")]
    told = name or "its name had not arrived"
    assert f"mid tool-call ({told}); the action was not executed" in answer["final_response"]


def test_hermes_callbacks_are_called_with_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("text", encoding="utf-8")
    told: list[Any] = []

    def on_tool(*args: Any, **fields: Any) -> None:
        told.append((*args, fields.get("is_error")))
        raise RuntimeError("must not break the turn")

    script = [reply("Let me see.", call("read_file", {"path": "x.txt"})), reply("It says text.")]
    with (
        provider(*script) as server,
        AIAgent(
            config=config_for(server.url, tmp_path),
            directory=tmp_path,
            tool_progress_callback=on_tool,
            interim_assistant_callback=lambda text, *, already_streamed: told.append((text, already_streamed)),
            stream_delta_callback=lambda text: None,
            quiet_mode=True,
            max_iterations=3,
        ) as agent,
    ):
        assert agent.run_conversation("What is in x.txt?")["final_response"] == "It says text."
    assert told == [
        ("Let me see.", True),
        ("tool.started", "read_file", "x.txt", {"path": "x.txt"}, None),
        ("tool.completed", "read_file", None, None, False),
    ]


def test_hermes_provider_arguments_choose_the_endpoint_and_its_preferences(tmp_path: Path) -> None:
    with provider(reply("Hello.")) as server:
        other = config_for("http://127.0.0.1:9", tmp_path)
        with AIAgent(
            config=other,
            provider="openrouter",
            model="minimax/minimax-m2.7",
            base_url=server.openai_url,
            api_key="a-key-of-its-own",
            providers_allowed=["fireworks"],
            provider_sort="throughput",
        ) as agent:
            assert agent.run_conversation("Hi.")["final_response"] == "Hello."
        (request,) = server.requests
    assert request.headers["authorization"] == "Bearer a-key-of-its-own"
    assert request.json()["model"] == "minimax/minimax-m2.7"
    assert request.json()["provider"] == {"only": ["fireworks"], "sort": "throughput"}


def test_a_key_of_its_own_goes_to_the_configured_provider(tmp_path: Path) -> None:
    with provider(reply("Hello.")) as server:
        with AIAgent(config=config_for(server.url, tmp_path), api_key="a-key-of-its-own") as agent:
            agent.run_conversation("Hi.")
        (request,) = server.requests
    assert (request.headers["authorization"], request.json()["model"]) == ("Bearer a-key-of-its-own", "ok")


def test_an_argument_without_a_counterpart_is_a_type_error_that_names_it() -> None:
    with pytest.raises(TypeError, match=r"'api_mode'.*stream_callback"):
        AIAgent(api_mode="codex_responses")
    with pytest.raises(TypeError, match="max_iterations"):
        AIAgent(max_iterations=3, max_turns=3)


@pytest.mark.parametrize("option", ["max_turns", "max_iterations"])
def test_no_model_call_at_all_is_refused(option: str) -> None:
    options: dict[str, Any] = {option: 0}
    with pytest.raises(ConfigError, match="max_turns=0"):
        AIAgent(**options)


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


def test_a_turn_that_fails_says_why(tmp_path: Path) -> None:
    """No key: the answer is empty and the reason is not."""
    with provider() as server:
        config = config_for(server.url, tmp_path)
        with AIAgent(config=config, directory=tmp_path, model="anthropic/claude-sonnet-4-5") as agent:
            answer = agent.run_conversation("Hi.")
    assert (answer["final_response"], answer["completed"], answer["status"]) == ("", False, "failed")
    assert "ANTHROPIC" in answer["error"]


def test_I102_a_conversation_that_is_set_aside_raises(tmp_path: Path) -> None:
    with provider(STALLED) as server:
        agent = AIAgent(config=config_for(server.url, tmp_path), directory=tmp_path)

        def park(piece: str | None) -> None:
            if piece and agent._agent._open is not None:
                agent._wait(park_turn(agent._agent._open.app))

        agent.stream_callback = park
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
