"""Claude Code does its work through `/v1/messages`: on providers of every dialect, and on the agent."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest
from proof.strict_provider import StrictProvider

from clients.coding_agents import LONGEST_S, QUIET, Ended, claude_code, thoughts_in
from server.dialect_api import dialect_server
from tailrace.messages import JsonObject
from tailrace.server.http.sse_stream import StreamTiming
from tailrace.testing.provider import Reply, Scenario, call, reply, think

MODELS = ["up-anthropic/turn", "up-chat/turn", "up-responses/turn", "tailrace"]
ANSWER = "The wheel turns."
TURN = [
    reply(
        think("First I must turn it."),
        "Let me turn it.",
        call("Bash", {"command": "echo it turned 7 times | tee wheel.txt", "description": "Turns the wheel"}),
    ),
    reply(call("Read", {"file_path": "wheel.txt"})),
    reply(ANSWER),
]
AGENT_MODEL = {"provider": "up-chat", "name": "turn"}
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PDF = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"
)
SILENT_S = 14
JSON = ("--output-format", "json", "--allowedTools", "Bash,Read")


def turn_provider(*turn: Reply) -> StrictProvider:
    """Refuses what the vendors' APIs refuse. A request without tools is no step of the turn: it gets a short text."""
    return StrictProvider(turns={"turn": turn or TURN}, returns_reasoning=True)


def result_of(ended: Ended) -> Any:
    assert ended.status == 0, f"{ended.out}\n{ended.err}"
    return json.loads(ended.out)


def steps_of(provider: StrictProvider) -> list[JsonObject]:
    """The requests of the turn itself: those that offer tools."""
    bodies = [request.json() for request in provider.requests if request.body]
    return [body for body in bodies if body.get("tools")]


@pytest.mark.parametrize("model", MODELS)
async def test_a_whole_turn(tmp_path: Path, model: str) -> None:
    """It thinks, runs a command, reads the file that came of it, answers, and goes on in a second process."""
    provider = turn_provider()
    async with dialect_server(tmp_path / "served", provider=provider, sections={"model": AGENT_MODEL}) as server:
        claude = claude_code(tmp_path, server.url, model=model)
        turned = result_of(await claude.run("-p", "Turn the wheel.", *JSON))
        went_on = result_of(await claude.run("-p", "--continue", "Does it still turn?", *JSON))
    assert provider.refusals == []
    assert (turned["result"], turned["num_turns"]) == (ANSWER, 3)
    assert (claude.directory / "wheel.txt").read_text(encoding="utf-8") == "it turned 7 times\n"
    asked = [json.dumps(body) for body in steps_of(provider)]
    assert ["1\\tit turned 7 times" in body for body in asked] == [False, False, True, True]
    assert all(thoughts_in(body) == ["First I must turn it."] for body in steps_of(provider)[1:])
    assert (went_on["result"], went_on["session_id"]) == (ANSWER, turned["session_id"])


@pytest.mark.parametrize("target", ["up-anthropic/turn", "tailrace"])
async def test_the_server_s_address_is_enough(tmp_path: Path, target: str) -> None:
    """Its own names for models are aliases; the title that it asks for beside the turn is one call without tools."""
    provider = turn_provider()
    sections = {"server": {"drain_s": 0.05, "aliases": {"claude-*": target}}, "model": AGENT_MODEL}
    async with dialect_server(tmp_path / "served", provider=provider, sections=sections) as server:
        claude = claude_code(tmp_path, server.url, variables={})
        turned = result_of(await claude.run("-p", "Turn the wheel.", *JSON))
    assert provider.refusals == []
    assert turned["result"] == ANSWER
    assert len(steps_of(provider)) == 3
    titles = [request for request in provider.requests if b"title" in request.body and not request.json().get("tools")]
    assert len(titles) == 1


@pytest.mark.parametrize("model", ["up-chat/turn", "up-responses/turn"])
async def test_an_image_and_a_document_reach_another_dialect_s_model(tmp_path: Path, model: str) -> None:
    """Read one after the other: of two that it reads at once, Claude Code may drop the document when it continues."""
    read = [reply(call("Read", {"file_path": name})) for name in ("wheel.png", "mill.pdf")]
    provider = turn_provider(*read, reply(ANSWER))
    async with dialect_server(tmp_path / "served", provider=provider) as server:
        claude = claude_code(tmp_path, server.url, model=model)
        (claude.directory / "wheel.png").write_bytes(PNG)
        (claude.directory / "mill.pdf").write_bytes(PDF)
        seen = result_of(await claude.run("-p", "What is in these files?", *JSON))
        went_on = result_of(await claude.run("-p", "--continue", "And now?", *JSON))
    assert provider.refusals == []
    assert (seen["result"], went_on["result"]) == (ANSWER, ANSWER)
    assert len(steps_of(provider)) == 4
    for body in steps_of(provider)[2:]:
        said = json.dumps(body)
        assert "data:image/png;base64," in said
        assert "data:application/pdf;base64," in said


@pytest.mark.parametrize(("model", "counts"), [("up-anthropic/turn", True), ("up-chat/turn", False)])
async def test_K135_its_context_is_counted_without_a_model_call(tmp_path: Path, model: str, counts: bool) -> None:
    async with dialect_server(tmp_path / "served", provider=turn_provider()) as server:
        shown = await claude_code(tmp_path, server.url, model=model).run("-p", "/context")
        paths = {request.path for request in server.provider.requests}
    assert "| System tools |" in shown.out
    assert paths == ({"/v1/messages/count_tokens"} if counts else set())


@pytest.mark.parametrize("model", ["up-anthropic/turn", "up-chat/turn"])
async def test_F68_ended_it_leaves_no_call_at_the_provider(tmp_path: Path, model: str) -> None:
    async with dialect_server(tmp_path / "served", ["long+stall@50%"]) as server:
        claude = claude_code(tmp_path, server.url, model=model)
        async with asyncio.timeout(LONGEST_S), claude.started("-p", "Turn the wheel.") as process:
            asked = await server.provider.request()
            process.terminate()
            await asked.over.wait()
            await process.communicate()
    assert asked.disconnected_at is not None
    assert len(server.provider.requests) == 1


@pytest.mark.parametrize("model", ["up-anthropic/turn", "up-chat/turn"])
async def test_K139_it_waits_as_long_as_the_provider_asks_for(tmp_path: Path, model: str) -> None:
    async with dialect_server(tmp_path / "served", ["status-429-after-1", reply(ANSWER)]) as server:
        claude = claude_code(tmp_path, server.url, model=model)
        turned = result_of(await claude.run("-p", "Turn the wheel.", *JSON))
        first, second = server.provider.requests
    assert turned["result"] == ANSWER
    assert second.received_at - first.received_at >= 1


@pytest.mark.parametrize("model", MODELS)
async def test_it_shortens_a_conversation_that_is_too_long(tmp_path: Path, model: str) -> None:
    provider = turn_provider(reply(ANSWER))
    async with dialect_server(tmp_path / "served", provider=provider, sections={"model": AGENT_MODEL}) as server:
        claude = claude_code(tmp_path, server.url, model=model)
        for question in ("Turn the wheel.", "Turn it again.", "And again."):
            result_of(await claude.run("-p", "--continue", question, *JSON))
        provider.extend("too-long")
        turned = result_of(await claude.run("-p", "--continue", "Once more.", *JSON))
    assert turned["result"] == ANSWER
    assert provider.requests[-1].scenario != "too-long"


@pytest.mark.parametrize(
    ("model", "status"), [("up-anthropic/turn", 529), ("up-responses/turn", 429), ("tailrace", 401)]
)
async def test_it_shows_the_provider_s_error(tmp_path: Path, model: str, status: int) -> None:
    async with dialect_server(tmp_path / "served", [f"status-{status}"] * 9) as server:
        claude = claude_code(tmp_path, server.url, model=model, variables={**QUIET, "CLAUDE_CODE_MAX_RETRIES": "0"})
        ended = await claude.run("-p", "Turn the wheel.", *JSON)
    shown = json.loads(ended.out)
    assert (ended.status, shown["is_error"], shown["api_error_status"]) == (1, True, status)


@pytest.mark.parametrize("model", ["up-anthropic/turn", "up-chat/turn", "tailrace"])
async def test_N163_it_waits_through_a_silence_that_is_longer_than_its_watchdog(tmp_path: Path, model: str) -> None:
    """Its watchdog's shortest time is 10 s; the provider says nothing for longer."""
    silent = Scenario(reply=reply(ANSWER), headers_after_s=SILENT_S)
    watchdog = {"CLAUDE_ENABLE_BYTE_WATCHDOG": "1", "CLAUDE_BYTE_STREAM_IDLE_TIMEOUT_MS": "10000"}
    sections = {"model": AGENT_MODEL, "call": {"first_token_timeout_s": 600, "idle_timeout_s": 600}}
    timing = StreamTiming(ping_s=2)
    async with dialect_server(tmp_path / "served", [silent], sections=sections, timing=timing) as server:
        agent = claude_code(tmp_path, server.url, model=model, variables={**QUIET, **watchdog})
        result = result_of(await agent.run("-p", "Turn the wheel.", *JSON))
        asked = len(server.provider.requests)
    assert (result["result"], asked) == (ANSWER, 1)
