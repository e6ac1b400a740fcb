from __future__ import annotations

import signal
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from provider_thread import provider
from tailrace import Agent, AIAgent
from tailrace.config.load import Config, load
from tailrace.errors import CorruptLog, TailraceError
from tailrace.events import MessageChunk, RunFinished
from tailrace.testing.provider import Break, FaultyProvider, Offset, Reply, Scenario, call, reply


def config_for(url: str, home: Path) -> Config:
    text = f"model: {{provider: faulty, name: ok}}\nproviders: {{faulty: {{dialect: chat, base_url: '{url}'}}}}\n"
    (home / "config.yaml").write_text(text + "agent: {tools: [read_file]}\n", encoding="utf-8")
    return load({}, home)


@asynccontextmanager
async def opened(home: Path, *script: str | Scenario | Reply) -> AsyncGenerator[tuple[Agent, FaultyProvider], None]:
    async with FaultyProvider(script) as server, Agent(config=config_for(server.url, home), directory=home) as agent:
        yield agent, server


STALLED = Scenario(reply=reply("One two three four five"), broken=Break("stall", Offset(60, per_cent=True)))


async def test_a_stream_is_what_was_stored(tmp_path: Path) -> None:
    async with opened(tmp_path, reply("Hello there.")) as (agent, _), agent.stream("Hi.") as run:
        events = [event async for event in run]
        result = await run.result()
    assert "".join(e.text for e in events if isinstance(e, MessageChunk)) == result.text == "Hello there."
    assert result.completed
    assert isinstance(events[-1], RunFinished)


async def test_one_agent_is_one_conversation(tmp_path: Path) -> None:
    async with opened(tmp_path, reply("Hello Ann."), reply("Ann.")) as (agent, _):
        await agent.run("I am Ann.")
        result = await agent.run("Who am I?")
        messages = await agent.messages()
    assert result.text == "Ann."
    assert [m.text for m in messages] == ["I am Ann.", "Hello Ann.", "Who am I?", "Ann."]


async def test_F76_leaving_the_stream_stops_the_turn(tmp_path: Path) -> None:
    async with opened(tmp_path, STALLED) as (agent, server):
        async with agent.stream("Count.") as run:
            async for event in run:
                if isinstance(event, MessageChunk):
                    break
        result = await run.result()
        await server.requests[0].over.wait()
    assert server.requests[0].disconnected_at is not None
    assert result.status == "stopped"


async def test_an_agent_that_is_not_open_says_so() -> None:
    with pytest.raises(TailraceError, match="async with"):
        await Agent().run("Hi.")


# ── the blocking facade ──────────────────────────────────────────────────────────────────────────────────────


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
