"""What the provider that answered was not told: it refused the field, or stood in for one that would have been told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from server.dialect_api import DialectServer, dialect_server
from server.v1.test_between_dialects import CHAT, MESSAGES, RESPONSES, answered, ask
from tailrace.events import AttemptStarted, GatewayNotice
from tailrace.messages import JsonObject, Usage
from tailrace.testing.provider import Reply, Status, reply
from tailrace.testing.provider.scenario import Scenario

EFFORT: dict[str, tuple[str, JsonObject]] = {
    CHAT: ("reasoning_effort", {"reasoning_effort": "high"}),
    RESPONSES: ("reasoning.effort", {"reasoning": {"effort": "high"}, "store": False}),
    MESSAGES: ("output_config.effort", {"output_config": {"effort": "high"}}),
}


async def facts(server: DialectServer) -> list[Any]:
    _, runs = await server.get("/runs")
    tail = server.app.journal.tail(runs["data"][0]["id"])
    return [entry.event async for batch in tail for entry in batch]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "model"),
    [
        (MESSAGES, "up-chat/ok+refuses@reasoning_effort"),
        (RESPONSES, "up-chat/ok+refuses@reasoning_effort"),
        (CHAT, "up-responses/ok+refuses@reasoning.effort"),
        (CHAT, "up-anthropic/ok+refuses@output_config.effort"),
    ],
)
async def test_K129_an_effort_that_the_provider_refuses_is_named(
    tmp_path: Path, path: str, model: str, stream: bool
) -> None:
    word, fields = EFFORT[path]
    async with dialect_server(tmp_path) as server:
        body = ask(path, model, stream=stream, **fields)
        for _ in range(2):  # found out, then remembered
            async with server.session.post(server.url + path, json=body) as response:
                assert response.status == 200, await response.text()
                await response.read()
                assert response.headers["x-tailrace-ignored"] == word
        assert len(server.provider.requests) == 3
        assert [event.ignored for event in await facts(server) if isinstance(event, AttemptStarted)] == [(word,)]


async def test_K129_so_is_a_wish_for_one_call_at_a_time(tmp_path: Path) -> None:
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    fields: JsonObject = {"tools": [{"name": "look", "input_schema": {"type": "object"}}], "tool_choice": choice}
    async with dialect_server(tmp_path) as server:
        body = ask(MESSAGES, "up-chat/ok+refuses@parallel_tool_calls", **fields)
        ignored, _ = await answered(server, MESSAGES, body)
    assert ignored == ["tool_choice.disable_parallel_tool_use"]


async def test_K129_the_run_names_it_when_it_is_found_out(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server:
        await answered(server, MESSAGES, ask(MESSAGES, "up-chat/ok+refuses@reasoning_effort", **EFFORT[MESSAGES][1]))
        (notice,) = [event for event in await facts(server) if isinstance(event, GatewayNotice)]
    assert (notice.kind, notice.extra) == ("ignored", {"ignored": "output_config.effort"})


async def test_K129_the_agent_names_it_too(tmp_path: Path) -> None:
    sections = {"model": {"provider": "up-chat", "name": "ok+refuses@reasoning_effort"}}
    async with dialect_server(tmp_path, sections=sections) as server:
        await answered(server, CHAT, ask(CHAT, "tailrace", reasoning_effort="high"))
        ignored, _ = await answered(server, CHAT, ask(CHAT, "tailrace", reasoning_effort="high"))
    assert ignored == ["reasoning_effort"]


USAGE = Usage(input_tokens=3, output_tokens=2, cache_read_tokens=900)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("store", [False, True])
async def test_a_stand_in_of_another_dialect_is_told_apart(tmp_path: Path, store: bool, stream: bool) -> None:
    """Its tokens are counted as its dialect counts them, and the log has what it was not told."""
    fallbacks = [{"provider": "up-anthropic", "name": "m"}]
    sections = {"model": {"provider": "up-responses", "name": "m", "fallbacks": fallbacks}}
    script: list[Scenario | Reply] = [Scenario(name="down", status=Status(503)), reply("Hello.", usage=USAGE)]
    async with dialect_server(tmp_path, script, sections=sections) as server:
        body = ask(RESPONSES, "up-responses/m", store=store, text={"verbosity": "low"})
        if stream:
            answer = (await server.data(RESPONSES, {**body, "stream": True}))[-1]["response"]
        else:
            _, answer = await server.post(RESPONSES, body)
        attempts = [event for event in await facts(server) if isinstance(event, AttemptStarted)]
    assert answer["usage"]["input_tokens"] == 903
    assert [(each.dialect, each.ignored) for each in attempts] == [
        ("responses", ()),
        ("anthropic", ("text.verbosity",)),
    ]
