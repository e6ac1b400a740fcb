"""Raw models: what the client wrote reaches the provider, what breaks is never hidden, and who leaves ends the call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
import pytest

from server.dialect_api import DialectServer, dialect_server
from tailrace.calls import call_log
from tailrace.events import GatewayNotice, MessageRecorded
from tailrace.messages import MAX_ANSWER_BYTES, MAX_RAW_ANSWER_BYTES, JsonObject
from tailrace.testing.provider import FaultyProvider, Reply, Scenario, reply, scenario
from tailrace.wire.anthropic import client_request as anthropic
from tailrace.wire.chat import client_request as chat
from tailrace.wire.client_request import ClientRequest
from tailrace.wire.responses import client_request as responses

Parse: TypeAlias = Callable[[JsonObject], ClientRequest]
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
OK = "The mill wheel turns, and the tailrace carries the water on. Nothing is lost on the way."


def ask(path: str, model: str, **fields: Any) -> JsonObject:
    """The same question in the words of each API; responses are not stored."""
    question = "Where does the water go?"
    match path:
        case "/v1/responses":
            return {"model": model, "input": question, "store": False, **fields}
        case "/v1/messages":
            return {"model": model, "messages": [{"role": "user", "content": question}], "max_tokens": 99, **fields}
        case _:
            return {"model": model, "messages": [{"role": "user", "content": question}], **fields}


# ── how much ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_O178_a_raw_answer_may_be_longer_than_the_agent_s_and_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (MAX_ANSWER_BYTES, MAX_RAW_ANSWER_BYTES) == (8 << 20, 64 << 20)
    monkeypatch.setattr(chat, "MAX_RAW_ANSWER_BYTES", 2000)
    async with dialect_server(tmp_path, [reply("word " * 300), reply("word " * 2000)]) as server:
        whole = await server.data(CHAT, ask(CHAT, "up-chat/ok", stream=True))
        cut = await server.data(CHAT, ask(CHAT, "up-chat/ok", stream=True))
    assert whole[-1] == "[DONE]"
    assert "exceeds 2000 bytes" in cut[-1]["error"]["message"]


@pytest.mark.parametrize(
    ("parse", "asked", "max_bytes"),
    [
        (chat.parse_client_request, {"messages": [{"role": "user", "content": "Go."}]}, MAX_RAW_ANSWER_BYTES),
        (
            anthropic.parse_client_request,
            {"messages": [{"role": "user", "content": "Go."}], "max_tokens": 9},
            MAX_RAW_ANSWER_BYTES,
        ),
        (responses.parse_client_request, {"input": "Go."}, MAX_ANSWER_BYTES),
    ],
)
def test_O178_an_answer_that_is_kept_is_a_shorter_one(parse: Parse, asked: JsonObject, max_bytes: int) -> None:
    """A response is sent again with all that follow it."""
    parsed = parse({"model": "up/ok", **asked})
    assert parsed.request.max_answer_bytes == max_bytes


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("model", ["up-chat/ok", "up-anthropic/ok"])
async def test_O178_the_record_of_a_plain_answer_has_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, stream: bool
) -> None:
    """The client has all of it."""
    monkeypatch.setattr(call_log, "MAX_RECORDED_CHARS", 40)
    async with dialect_server(tmp_path) as server:
        if stream:
            sent = await server.data(CHAT, ask(CHAT, model, stream=True))
            text = "".join(each["choices"][0]["delta"].get("content") or "" for each in sent[:-1] if each["choices"])
        else:
            _, answer = await server.post(CHAT, ask(CHAT, model))
            text = answer["choices"][0]["message"]["content"]
        (run,) = await server.app.journal.runs(kind="call")
        facts = [entry.event for entry in await server.app.journal.read(run.id)]
    assert run.finished is not None
    assert (text, run.finished.status, run.finished.output) == (OK, "completed", OK[:40])
    assert [fact.text for fact in facts if isinstance(fact, GatewayNotice)] == [
        "The rest of this long answer is on no record."
    ]
    assert [fact.message.text for fact in facts if isinstance(fact, MessageRecorded)] == [OK[:40]]


# ── what reaches the provider ────────────────────────────────────────────────────────────────────────────────


async def test_a_provider_of_the_same_dialect_is_told_every_field(tmp_path: Path) -> None:
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    ]
    fields: JsonObject = {
        "messages": [{"role": "developer", "content": "Be brief.", "name": "ops"}, {"role": "user", "content": parts}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": {"type": "json_object"},
        "n": 2,
        "logprobs": True,
        "top_logprobs": 3,
        "min_p": 0.05,
        "chat_template_kwargs": {"enable_thinking": False},
    }
    async with dialect_server(tmp_path) as server:
        status, _ = await server.post(CHAT, ask(CHAT, "up-chat/ok", **fields))
        sent = server.provider.requests[0].json()
    assert status == 200
    assert {name: sent[name] for name in fields} == fields
    assert (sent["model"], sent["stream"], sent["stream_options"]) == ("ok", True, {"include_usage": True})


async def test_anthropic_s_own_fields_reach_an_anthropic_provider(tmp_path: Path) -> None:
    fields: JsonObject = {
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "top_k": 5,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "metadata": {"user_id": "anna"},
    }
    async with dialect_server(tmp_path) as server:
        await server.post(MESSAGES, ask(MESSAGES, "up-anthropic/ok", **fields))
        sent = server.provider.requests[0].json()
    assert {name: sent[name] for name in fields} == fields


async def test_every_choice_comes_through(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server:
        chunks = await server.data(CHAT, ask(CHAT, "up-chat/ok", n=2, stream=True))
        _, body = await server.post(CHAT, ask(CHAT, "up-chat/ok", n=2))
    texts = ["", ""]
    for chunk in chunks[:-1]:
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["delta"].get("content") or ""
    assert texts == [OK, OK]
    assert [choice["message"]["content"] for choice in body["choices"]] == [OK, OK]


@pytest.mark.parametrize(
    ("path", "model", "fields", "param"),
    [
        (CHAT, "up-anthropic/ok", {"n": 2}, "n"),
        (CHAT, "up-responses/ok", {"logprobs": True}, "logprobs"),
        (MESSAGES, "up-chat/ok", {"mcp_servers": [{"type": "url", "url": "https://example.com"}]}, "mcp_servers"),
        (MESSAGES, "up-chat/ok", {"speed": "fast"}, "speed"),
        (MESSAGES, "up-chat/ok", {"output_config": {"task_budget": {"tokens": 9}}}, "output_config.task_budget"),
        (MESSAGES, "up-chat/ok", {"context_management": {"edits": [{"type": "forget_me"}]}}, "context_management"),
        (MESSAGES, "up-chat/ok", {"max_tokens": 0}, "max_tokens"),
        (RESPONSES, "up-chat/ok", {"include": ["message.output_text.logprobs"]}, "include"),
        (RESPONSES, "up-chat/ok", {"tool_choice": {"type": "web_search"}}, "tool_choice"),
        (RESPONSES, "up-chat/ok", {"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
    ],
)
async def test_a_field_that_changes_the_meaning_is_refused_where_it_has_no_word(
    tmp_path: Path, path: str, model: str, fields: JsonObject, param: str
) -> None:
    async with dialect_server(tmp_path) as server:
        status, body = await server.post(path, ask(path, model, **fields))
        assert not server.provider.requests
    assert status == 400
    assert param in body["error"]["message"]
    if path != MESSAGES:
        assert body["error"]["param"] == param


# ── what breaks ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("scene", ["cut@60%", "error-overloaded", "error-server", "error-invalid"])
@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
async def test_H94_what_breaks_after_text_is_an_error_frame_and_no_clean_end(
    tmp_path: Path, path: str, scene: str
) -> None:
    async with dialect_server(tmp_path) as server:
        events = await server.events(path, ask(path, f"up-chat/{scene}", stream=True))
        told, body = await server.post(path, ask(path, f"up-chat/{scene}"))
    last = events[-1]
    assert b"The" in b"".join(event.data for event in events)
    match path:
        case "/v1/messages":
            assert last.event == "error"
        case "/v1/responses":
            assert [event.event for event in events[-2:]] == ["error", "response.failed"]
        case _:
            assert last.data.startswith(b'{"error":')
    assert not any(event.data == b"[DONE]" or event.event == "message_stop" for event in events)
    assert told == (400 if scene == "error-invalid" else 502)
    assert "error" in body


async def test_E63_a_second_attempt_goes_on_from_the_text_that_was_seen(tmp_path: Path) -> None:
    """One role, one text, no repetition, whatever the second attempt repeats."""
    script: list[Scenario | Reply] = [
        scenario("ok+cut@60%"),
        reply("carries the water on. Nothing is lost on the way."),
    ]
    async with dialect_server(tmp_path, script) as server:
        chunks = await server.data(CHAT, ask(CHAT, "up-chat/ok", stream=True))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
    assert sum("role" in delta for delta in deltas) == 1
    assert "".join(delta.get("content") or "" for delta in deltas) == OK
    assert chunks[-1] == "[DONE]"


@pytest.mark.parametrize("name", ["tools+cut@80%", "text-and-tools+cut@80%"])
async def test_B34_a_call_that_the_client_saw_begin_is_never_begun_again(tmp_path: Path, name: str) -> None:
    async with dialect_server(tmp_path, [scenario(name), "tools"]) as server:
        chunks = await server.data(CHAT, ask(CHAT, "up-chat/ok", stream=True))
        assert len(server.provider.requests) == 1
    assert "error" in chunks[-1]


async def test_a_call_that_nobody_saw_begin_is_made_anew(tmp_path: Path) -> None:
    async with dialect_server(tmp_path, [scenario("tools+cut@80%"), "tools"]) as server:
        status, body = await server.post(CHAT, ask(CHAT, "up-chat/ok"))
    assert status == 200
    assert [call["function"]["name"] for call in body["choices"][0]["message"]["tool_calls"]] == ["get_weather"]


async def test_a_question_that_cannot_be_put_again_is_not_gone_on_from(tmp_path: Path) -> None:
    audio = [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]
    async with dialect_server(tmp_path, [scenario("ok+cut@60%"), "ok"]) as server:
        request = ask(CHAT, "up-chat/ok", stream=True, messages=[{"role": "user", "content": audio}])
        chunks = await server.data(CHAT, request)
        assert len(server.provider.requests) == 1
    assert "error" in chunks[-1]


async def test_raw_means_raw_thoughts_in_the_text_are_the_text(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server:
        _, body = await server.post(CHAT, ask(CHAT, "up-chat/think-tags"))
        _, agent = await server.post(CHAT, ask(CHAT, "tailrace"))
    assert body["choices"][0]["message"]["content"] == "<think>Hm, water.</think>Downhill."
    assert agent["choices"][0]["message"]["content"] == OK


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
async def test_a_provider_that_cannot_stream_is_streamed_all_the_same(tmp_path: Path, path: str) -> None:
    async with dialect_server(tmp_path) as server:
        events = await server.events(path, ask(path, "up-chat/text-and-tools+no-streaming", stream=True))
    raw = b"".join(event.data for event in events)
    assert b"Let me look that up." in raw
    assert b"get_weather" in raw
    assert b"get_time" in raw


async def test_the_configured_model_s_stand_in_answers(tmp_path: Path) -> None:
    fallback = {"provider": "up-anthropic", "name": "ok"}
    sections = {"model": {"provider": "up-chat", "name": "status-503", "fallbacks": [fallback]}}
    async with dialect_server(tmp_path, sections=sections) as server:
        _, body = await server.post(CHAT, ask(CHAT, "up-chat/status-503"))
        assert body["choices"][0]["message"]["content"] == OK
        status, _ = await server.post(CHAT, ask(CHAT, "up-chat/status-503", n=2))  # which it cannot be told
    assert status == 503


# ── who leaves ───────────────────────────────────────────────────────────────────────────────────────────────


PROMPT_S = 10.0  # on a machine under load; a server that did not notice would wait for the provider's deadline


async def left(server: DialectServer, provider: FaultyProvider, path: str, body: JsonObject, *, reads: int) -> float:
    """How long after the client left the provider noticed."""
    request = server.session.post(server.url + path, json=body)
    if reads:
        async with request as response:
            for _ in range(reads):
                await response.content.readany()
            response.close()
    else:
        asking = asyncio.ensure_future(_read(request))
        await provider.request(len(provider.requests))
        asking.cancel()
        await asyncio.wait({asking})
    at = asyncio.get_running_loop().time()
    seen = provider.requests[-1]
    async with asyncio.timeout(30):
        await seen.over.wait()
    assert seen.disconnected_at is not None
    return seen.disconnected_at - at


async def _read(request: Any) -> None:
    async with request as response:
        await response.read()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
@pytest.mark.parametrize("model", ["up-chat/silence", "tailrace"])
async def test_F68_a_client_that_leaves_before_the_first_token_ends_the_call(
    tmp_path: Path, path: str, model: str, stream: bool
) -> None:
    sections = {"model": {"provider": "up-chat", "name": "silence"}}
    async with dialect_server(tmp_path, sections=sections) as server:
        assert await left(server, server.provider, path, ask(path, model, stream=stream), reads=0) < PROMPT_S
        runs = (await server.get("/runs"))[1]["data"]
        if runs[0]["status"] == "running":
            runs = [await _ended(server, runs[0]["id"])]
    assert runs[0]["status"] == "stopped"


async def _ended(server: DialectServer, run_id: str) -> JsonObject:
    await server.app.agents.finished(run_id)
    return dict((await server.get(f"/runs/{run_id}"))[1])


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
@pytest.mark.parametrize("model", ["up-chat/stall@50%", "tailrace"])
async def test_F68_a_client_that_leaves_while_the_provider_is_silent_ends_the_call(
    tmp_path: Path, path: str, model: str
) -> None:
    sections = {"model": {"provider": "up-chat", "name": "stall@50%"}}
    async with dialect_server(tmp_path, sections=sections) as server:
        assert await left(server, server.provider, path, ask(path, model, stream=True), reads=1) < PROMPT_S


# ── the record ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_plain_request_is_on_record_once_it_has_ended(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server:
        _, body = await server.post(CHAT, ask(CHAT, "up-chat/text-and-tools"))
        run_id = "run_" + body["id"].removeprefix("chatcmpl-")
        _, run = await server.get(f"/runs/{run_id}")
    assert (run["kind"], run["status"], run["output"]) == ("call", "completed", "Let me look that up.")
    assert run["usage"]["output_tokens"] == 18


async def test_a_hundred_streams_at_once_lose_nothing(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            crowd = DialectServer(server.url, server.app, server.provider, session, server.pipeline)
            body = ask(CHAT, "up-chat/ok+pace@0.01", stream=True)
            answers = await asyncio.gather(*(crowd.data(CHAT, body) for _ in range(100)))
    for chunks in answers:
        assert chunks[-1] == "[DONE]"
        assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks[:-1]) == OK


# ── the provider's own key ───────────────────────────────────────────────────────────────────────────────────

ECHOED_KEY = "sk-echoed-1234567890"


@pytest.mark.parametrize(("path", "dialect"), [(CHAT, "chat"), (RESPONSES, "responses"), (MESSAGES, "anthropic")])
@pytest.mark.parametrize("stream", [True, False])
async def test_J114_a_key_that_a_model_repeats_is_neither_shown_nor_stored(
    tmp_path: Path, path: str, dialect: str, stream: bool
) -> None:
    text = f"Your key is {ECHOED_KEY}, keep it."
    provider = {"dialect": dialect, "headers": {"x-api-key": ECHOED_KEY}}
    async with FaultyProvider(script=[reply(text)]) as upstream:
        echo = {**provider, "base_url": upstream.openai_url}
        sections = {"model": {"provider": "echo", "name": "ok"}, "providers": {"echo": echo}}
        async with dialect_server(tmp_path, sections=sections, provider=nullcontext(upstream)) as server:  # type: ignore[arg-type]
            body = ask(path, "echo/ok", stream=stream)
            async with server.session.post(server.url + path, json=body) as response:
                shown = await response.text()
            runs = await server.app.journal.runs(kind="call")
            stored = str([await server.app.journal.read(run.id) for run in runs])
    assert "keep it" in shown.replace('"', "") or stream
    assert "[redacted]" in stored
    for place in (shown, stored):
        assert ECHOED_KEY not in place
