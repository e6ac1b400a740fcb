"""Codex does its work through `/v1/responses`: on providers of every dialect, and on the agent."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from proof.strict_provider import StrictProvider

from clients.coding_agents import LONGEST_S, CodingAgent, codex, thoughts_in
from server.dialect_api import dialect_server
from tailrace.messages import JsonObject
from tailrace.testing.provider import Reply, call, reply, think

MODELS = ["up-responses/turn", "up-chat/turn", "up-anthropic/turn", "tailrace"]
ANSWER = "The wheel turns."
PATCH = "*** Begin Patch\n*** Update File: wheel.txt\n@@\n-it turned 7 times\n+it turned 8 times\n*** End Patch\n"
THOUGHTS = ["First I must turn it.", "And once more."]
TURN = (
    reply(
        think(THOUGHTS[0]), "Let me turn it.", call("exec_command", {"cmd": "echo it turned 7 times | tee wheel.txt"})
    ),
    reply(think(THOUGHTS[1]), call("apply_patch", {"input": PATCH})),
    reply(ANSWER),
)
AGENT_MODEL = {"provider": "up-chat", "name": "turn"}
EXEC = ("exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")


def turn_provider(*turn: Reply) -> StrictProvider:
    """Refuses what the vendors' APIs refuse."""
    return StrictProvider(turns={"turn": turn or TURN}, returns_reasoning=True)


async def items_of(agent: CodingAgent, *arguments: str) -> list[JsonObject]:
    """What Codex did and said, in order."""
    ended = await agent.run(*EXEC, *arguments)
    events: list[Any] = [json.loads(line) for line in ended.out.splitlines()]
    assert ended.status == 0, f"{ended.out}\n{ended.err}"
    return [event["item"] for event in events if event["type"] == "item.completed"]


@pytest.mark.parametrize("target", MODELS)
async def test_a_whole_turn(tmp_path: Path, target: str) -> None:
    """It thinks, runs a command, patches the file that came of it, answers, and goes on in a second process."""
    provider = turn_provider()
    sections = {"server": {"drain_s": 0.05, "aliases": {"gpt-*": target}}, "model": AGENT_MODEL}
    async with dialect_server(tmp_path / "served", provider=provider, sections=sections) as server:
        agent = codex(tmp_path, server.url, model="gpt-5.5")
        items = await items_of(agent, "Turn the wheel.")
        went_on = await items_of(agent, "resume", "--last", "Does it still turn?")
    assert provider.refusals == []
    done = [item for item in items if item["type"] != "reasoning"]
    kinds = ["agent_message", "command_execution", "file_change", "agent_message"]
    assert [item["type"] for item in done] == kinds
    assert len(items) - len(done) == (0 if target == "tailrace" else 2)  # this model's summaries are not asked for
    assert (done[1]["aggregated_output"], done[1]["exit_code"]) == ("it turned 7 times\n", 0)
    assert (agent.directory / "wheel.txt").read_text(encoding="utf-8") == "it turned 8 times\n"
    assert [items[-1]["text"], went_on[-1]["text"]] == [ANSWER, ANSWER]
    returned = [thoughts_in(request.json()) for request in provider.requests]
    assert returned == [[], THOUGHTS[:1], THOUGHTS, THOUGHTS]


@pytest.mark.parametrize("target", MODELS)
async def test_a_whole_turn_over_the_web_socket(tmp_path: Path, target: str) -> None:
    """It sends each step as what is new since the one before; no response is asked for over HTTP."""
    provider = turn_provider()
    sections = {"server": {"drain_s": 0.05, "aliases": {"gpt-*": target}}, "model": AGENT_MODEL}
    async with dialect_server(tmp_path / "served", provider=provider, sections=sections) as server:
        agent = codex(tmp_path, server.url, model="gpt-5.5", web_sockets=True)
        items = await items_of(agent, "Turn the wheel.")
        statuses = {status for path, status in server.pipeline.metrics.requests.values if path == "/v1/responses"}
    assert provider.refusals == []
    done = [item for item in items if item["type"] != "reasoning"]
    kinds = ["agent_message", "command_execution", "file_change", "agent_message"]
    assert [item["type"] for item in done] == kinds
    assert (agent.directory / "wheel.txt").read_text(encoding="utf-8") == "it turned 8 times\n"
    assert items[-1]["text"] == ANSWER
    assert [thoughts_in(request.json()) for request in provider.requests] == [[], THOUGHTS[:1], THOUGHTS]
    assert statuses <= {"101", "499"}


@pytest.mark.parametrize("model", MODELS)
async def test_a_model_that_it_does_not_know(tmp_path: Path, model: str) -> None:
    """It is offered tools in a namespace then: a call of one comes back to the tool that it was."""
    spawned = call("multi_agent_v1__close_agent", {"target": "nobody"})
    provider = turn_provider(reply(think("Is anybody there?"), spawned), reply(ANSWER))
    async with dialect_server(tmp_path / "served", provider=provider, sections={"model": AGENT_MODEL}) as server:
        items = await items_of(codex(tmp_path, server.url, model=model), "Close the mill.")
    assert provider.refusals == []
    assert b"invalid agent id nobody" in provider.requests[-1].body
    assert items[-1]["text"] == ANSWER


@pytest.mark.parametrize("model", ["up-responses/turn", "up-anthropic/turn"])
async def test_F68_ended_it_leaves_no_call_at_the_provider(tmp_path: Path, model: str) -> None:
    async with dialect_server(tmp_path / "served", ["long+stall@50%"]) as server:
        agent = codex(tmp_path, server.url, model=model)
        async with asyncio.timeout(LONGEST_S), agent.started(*EXEC, "Turn the wheel.") as process:
            asked = await server.provider.request()
            process.terminate()
            await asked.over.wait()
            await process.communicate()
    assert asked.disconnected_at is not None
    assert len(server.provider.requests) == 1


@pytest.mark.parametrize("model", ["up-responses/turn", "up-chat/turn", "up-anthropic/turn", "tailrace"])
async def test_it_knows_a_conversation_that_is_too_long(tmp_path: Path, model: str) -> None:
    async with dialect_server(tmp_path / "served", ["too-long"] * 9) as server:
        ended = await codex(tmp_path, server.url, model=model, retries=0).run(*EXEC, "Turn the wheel.")
    failed = json.loads(ended.out.splitlines()[-1])
    assert failed["error"]["message"].startswith("Codex ran out of room in the model's context window.")


@pytest.mark.parametrize(("model", "status"), [("up-responses/turn", 429), ("up-chat/turn", 401), ("tailrace", 529)])
async def test_it_shows_the_provider_s_error(tmp_path: Path, model: str, status: int) -> None:
    async with dialect_server(tmp_path / "served", [f"status-{status}"] * 9) as server:
        ended = await codex(tmp_path, server.url, model=model, retries=0).run(*EXEC, "Turn the wheel.")
    failed = json.loads(ended.out.splitlines()[-1])
    assert (ended.status, failed["type"]) == (1, "turn.failed")
    assert f"status{':' if status == 429 else ''} {status}" in failed["error"]["message"]
