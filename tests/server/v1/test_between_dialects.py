"""What a client wrote, on its way to a provider: verbatim where it speaks the client's dialect, and elsewhere all that
has a word there, with the rest named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from server.dialect_api import WATER_LEVEL, DialectServer, dialect_server
from tailrace.messages import JsonObject
from tailrace.testing.provider import call, reply

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
QUESTION = [{"role": "user", "content": "Where does the water go?"}]
# What Claude Code sends with every request.
CLAUDE_CODE: JsonObject = {
    "thinking": {"type": "adaptive"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "output_config": {"effort": "high"},
    "metadata": {"user_id": "{" + "x" * 148 + "}"},
}
BETA = "claude-code-20250219,context-management-2025-06-27"


def ask(path: str, model: str, **fields: Any) -> JsonObject:
    match path:
        case "/v1/responses":
            return {"model": model, "input": "Where does the water go?", **fields}
        case "/v1/messages":
            return {"model": model, "messages": QUESTION, "max_tokens": 99, **fields}
        case _:
            return {"model": model, "messages": QUESTION, **fields}


async def answered(
    server: DialectServer, path: str, body: JsonObject, headers: dict[str, str] | None = None
) -> tuple[list[str], Any]:
    """The parameters that were ignored, and the answer."""
    async with server.session.post(server.url + path, json=body, headers=headers) as response:
        assert response.status == 200, await response.text()
        named = response.headers.get("x-tailrace-ignored", "")
        return [name for name in named.split(", ") if name], await response.json()


# ── the same dialect ─────────────────────────────────────────────────────────────────────────────────────────


async def test_K128_beta_and_version_headers_reach_a_provider_of_the_same_dialect(tmp_path: Path) -> None:
    headers = {"anthropic-beta": BETA, "anthropic-version": "2026-10-21", "x-api-key": "the client's own"}
    async with dialect_server(tmp_path) as server:
        path = MESSAGES + "?beta=true"
        ignored, _ = await answered(server, path, ask(MESSAGES, "up-anthropic/ok", **CLAUDE_CODE), headers)
        sent = server.provider.requests[0]
    assert ignored == []
    assert (sent.headers["anthropic-beta"], sent.headers["anthropic-version"]) == (BETA, "2026-10-21")
    assert "the client's own" not in sent.headers.values()
    assert sent.json() == {**ask(MESSAGES, "ok", **CLAUDE_CODE), "stream": True}


async def test_K128_a_stored_response_takes_its_headers_along(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server:
        await answered(server, RESPONSES, ask(RESPONSES, "up-responses/ok"), {"openai-beta": "responses=v9"})
        assert server.provider.requests[0].headers["openai-beta"] == "responses=v9"


async def test_K128_the_users_own_features_and_version_are_joined_by_the_clients(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as up:
        own = {"anthropic-beta": "mine-2025", "anthropic-version": "2024-01-01"}
        endpoint = {"dialect": "anthropic", "base_url": up.provider.url, "headers": own}
        async with dialect_server(tmp_path / "b", sections={"providers": {"up": endpoint}}) as server:
            headers = {"anthropic-beta": BETA, "anthropic-version": "2026-10-21"}
            await answered(server, MESSAGES, ask(MESSAGES, "up/ok"), headers)
        sent = up.provider.requests[0].headers
    assert sent["anthropic-beta"] == f"mine-2025,{BETA}"
    assert sent["anthropic-version"] == "2024-01-01"


@pytest.mark.parametrize("model", ["up-chat/ok", "up-responses/ok"])
async def test_K128_no_such_header_reaches_a_provider_of_another_dialect(tmp_path: Path, model: str) -> None:
    async with dialect_server(tmp_path) as server:
        await answered(server, MESSAGES, ask(MESSAGES, model), {"anthropic-beta": BETA})
        assert "anthropic-beta" not in server.provider.requests[0].headers


@pytest.mark.parametrize("limit", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("model", ["ok", "ok+crlf"])
async def test_K130_one_limit_is_sent_in_the_spelling_of_the_client(tmp_path: Path, limit: str, model: str) -> None:
    async with dialect_server(tmp_path) as server:
        await answered(server, CHAT, ask(CHAT, f"up-chat/{model}", **{limit: 77}))
        sent = server.provider.requests[0].json()
    assert {name: sent[name] for name in sent if "token" in name} == {limit: 77}


@pytest.mark.parametrize(
    ("path", "model", "fields"),
    [
        (MESSAGES, "up-anthropic/ok", {"thinking": {"type": "enabled", "budget_tokens": 2048}, "max_tokens": 4096}),
        (MESSAGES, "up-anthropic/ok", {"max_tokens": 0}),
        (CHAT, "up-chat/ok", {"stop": "END", "reasoning_effort": "low"}),
        (RESPONSES, "up-responses/ok", {"reasoning": {"effort": "low", "summary": "auto"}, "store": False}),
    ],
)
async def test_K136_nothing_is_added_to_what_the_client_wrote(
    tmp_path: Path, path: str, model: str, fields: JsonObject
) -> None:
    async with dialect_server(tmp_path) as server:
        await answered(server, path, ask(path, model, **fields))
        sent = server.provider.requests[0].json()
    streaming = {"stream": True, "stream_options": {"include_usage": True}}
    assert {name: sent[name] for name in sent if name not in streaming} == ask(path, "ok", **fields)


# ── another dialect ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("path", "model", "fields", "ignored"),
    [
        (CHAT, "up-anthropic/ok", {"seed": 1, "temperature": 1.5}, ["seed", "temperature"]),
        (CHAT, "up-anthropic/ok", {"verbosity": "low"}, ["verbosity"]),
        (CHAT, "up-anthropic/ok", {"stop": ["\n", "END"]}, ["stop"]),
        (CHAT, "up-responses/ok", {"min_p": 0.1, "logit_bias": {"5": 1}}, ["min_p", "logit_bias"]),
        (MESSAGES, "up-chat/ok", {"top_k": 5}, ["top_k"]),
        (MESSAGES, "up-chat/ok", CLAUDE_CODE, ["context_management"]),
        (MESSAGES, "up-responses/ok", CLAUDE_CODE | {"diagnostics": {"a": 1}}, ["context_management", "diagnostics"]),
        (MESSAGES, "up-chat/ok", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, None),
        (MESSAGES, "tailrace", CLAUDE_CODE, ["context_management"]),
        (RESPONSES, "up-chat/ok", {"tools": [{"type": "web_search"}]}, ["tools.web_search"]),
        (RESPONSES, "up-anthropic/ok", {"truncation": "auto", "client_metadata": {"a": "b"}}, ["truncation"]),
        (RESPONSES, "up-chat/ok", {"include": ["reasoning.encrypted_content", "web_search_call.results"]}, []),
        (RESPONSES, "tailrace", {"prompt_cache_key": "k", "client_metadata": {"a": "b"}}, []),
        (CHAT, "tailrace", {"logit_bias": {"5": 1}, "some_new_field": 1}, ["logit_bias", "some_new_field"]),
    ],
)
async def test_K129_what_asks_nothing_or_only_tunes_is_left_out_and_named(
    tmp_path: Path, path: str, model: str, fields: JsonObject, ignored: list[str] | None
) -> None:
    async with dialect_server(tmp_path) as server:
        named, _ = await answered(server, path, ask(path, model, **fields))
        _, runs = await server.get("/runs")
        run = await server.app.journal.get(runs["data"][0]["id"])
    assert named == (["tools.web_search_20250305"] if ignored is None else ignored)
    assert list(run.new.input.get("ignored", ())) == named


@pytest.mark.parametrize("stream", [False, True])
async def test_K129_no_name_that_a_client_invents_breaks_the_header(tmp_path: Path, stream: bool) -> None:
    fields: JsonObject = {"a\r\nx-evil: 1": 1, "b,\u00e9": 1, "c" * 20_000: 1, "stream": stream}
    fields |= {f"field_{number}": 1 for number in range(1000)}
    async with dialect_server(tmp_path) as server:
        body = ask(CHAT, "up-anthropic/ok", **fields)
        async with server.session.post(server.url + CHAT, json=body) as response:
            assert response.status == 200, await response.text()
            named = response.headers["x-tailrace-ignored"].split(", ")
            assert "x-evil" not in response.headers
    assert named[:3] == ["a??x-evil: 1", "b??", "c" * 64]
    assert (len(named), named[-1]) == (33, "and 971 more")


async def test_K129_a_strict_server_refuses_it_instead(tmp_path: Path) -> None:
    async with dialect_server(tmp_path, sections={"server": {"drain_s": 0.05, "strict": True}}) as server:
        for model in ("up-anthropic/ok", "tailrace"):
            status, body = await server.post(CHAT, ask(CHAT, model, frequency_penalty=1))
            assert (status, body["error"]["param"]) == (400, "frequency_penalty")
        assert not server.provider.requests


@pytest.mark.parametrize("model", ["up-anthropic/ok", "up-chat/ok", "tailrace"])
async def test_K129_a_thread_is_refused_in_the_words_that_the_sdks_go_on_from(tmp_path: Path, model: str) -> None:
    async with dialect_server(tmp_path) as server:
        status, body = await server.post(MESSAGES, ask(MESSAGES, model, thread={"type": "create"}))
    assert (status, body["error"]["type"]) == (400, "invalid_request_error")
    assert body["error"]["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


@pytest.mark.parametrize(
    ("path", "fields", "model", "expected"),
    [
        (
            CHAT,
            {"response_format": {"type": "json_object"}, "verbosity": "low"},
            "up-responses/ok",
            {"text": {"format": {"type": "json_object"}, "verbosity": "low"}},
        ),
        (
            RESPONSES,
            {"text": {"format": {"type": "json_object"}, "verbosity": "high"}, "store": False},
            "up-chat/ok",
            {"response_format": {"type": "json_object"}, "verbosity": "high"},
        ),
    ],
)
async def test_what_has_a_word_in_the_other_dialect_is_said(
    tmp_path: Path, path: str, fields: JsonObject, model: str, expected: JsonObject
) -> None:
    async with dialect_server(tmp_path) as server:
        ignored, _ = await answered(server, path, ask(path, model, **fields))
        sent = server.provider.requests[0].json()
    assert ignored == []
    assert {name: sent[name] for name in expected} == expected


async def test_json_mode_is_an_instruction_where_there_is_no_word_for_it(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server:
        await answered(server, CHAT, ask(CHAT, "up-anthropic/ok", response_format={"type": "json_object"}))
        assert "JSON object" in server.provider.requests[0].json()["system"]


# ── a provider that wants to be left alone ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "model"), [(CHAT, "up-chat"), (MESSAGES, "up-chat"), (RESPONSES, "up-responses"), (CHAT, "tailrace")]
)
async def test_K139_a_long_wait_is_passed_on_at_once_with_its_header(
    tmp_path: Path, path: str, model: str, stream: bool
) -> None:
    sections = {"model": {"provider": "up-chat", "name": "status-429-after-86400"}}
    name = model if model == "tailrace" else f"{model}/status-429-after-86400"
    async with dialect_server(tmp_path, sections=sections) as server:
        body = ask(path, name, stream=stream)
        async with server.session.post(server.url + path, json=body) as response:
            assert (response.status, response.headers.get("Retry-After")) == (429, "86400")
        assert len(server.provider.requests) == 1


# ── counting ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_K135_the_provider_counts_where_its_api_does(tmp_path: Path) -> None:
    body = {"model": "up-anthropic/ok", "messages": QUESTION, "system": "Be brief."}
    async with dialect_server(tmp_path) as server:
        headers = {"anthropic-beta": BETA, "anthropic-version": "2026-10-21"}
        async with server.session.post(f"{server.url}{MESSAGES}/count_tokens", json=body, headers=headers) as response:
            assert (response.status, await response.json()) == (200, {"input_tokens": 25})
        _, counted = await server.post(f"{RESPONSES}/input_tokens", ask(RESPONSES, "up-responses/ok", store=False))
        asked = server.provider.requests
    assert [request.path for request in asked] == ["/v1/messages/count_tokens", "/v1/responses/input_tokens"]
    assert asked[0].json() == {**body, "model": "ok"}
    assert asked[0].headers["anthropic-beta"] == BETA
    assert counted["object"] == "response.input_tokens"
    assert counted["input_tokens"] == len(asked[1].body) // 4


@pytest.mark.parametrize("model", ["up-chat/ok", "tailrace"])
async def test_K135_an_estimate_is_given_where_nothing_counts(tmp_path: Path, model: str) -> None:
    tools = [{"name": "f", "input_schema": {"type": "object"}, "description": "x" * 400}]
    async with dialect_server(tmp_path) as server:
        status, few = await server.post(f"{MESSAGES}/count_tokens", {"model": model, "messages": QUESTION})
        _, more = await server.post(f"{MESSAGES}/count_tokens", {"model": model, "messages": QUESTION, "tools": tools})
        _, same = await server.post(f"{RESPONSES}/input_tokens", ask(RESPONSES, model))
        assert not server.provider.requests
    assert status == 200
    assert 5 <= few["input_tokens"] <= 20
    assert more["input_tokens"] - few["input_tokens"] >= 100
    assert same["input_tokens"] == few["input_tokens"]


async def test_K135_a_provider_of_another_dialect_is_sent_only_what_it_counts(tmp_path: Path) -> None:
    """Its route for counting refuses what else a request has: the id of the user, a limit."""
    body = ask(RESPONSES, "up-anthropic/ok", user="u1", max_output_tokens=5)
    async with dialect_server(tmp_path) as server:
        status, _ = await server.post(f"{RESPONSES}/input_tokens", body)
        sent = server.provider.requests[0].json()
    assert status == 200
    assert sent.keys() == {"model", "messages"}


async def test_K135_a_count_that_makes_no_sense_names_the_field(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server:
        status, body = await server.post(f"{MESSAGES}/count_tokens", {"model": "up-chat/ok"})
    assert (status, "messages" in body["error"]["message"]) == (400, True)


# ── the agent ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_tool_is_required_where_the_client_offers_one(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
    sections = {"model": {"provider": "up-chat", "name": "tools"}}
    async with dialect_server(tmp_path, sections=sections) as server:
        _, body = await answered(server, CHAT, ask(CHAT, "tailrace", tools=tools, tool_choice="required"))
        sent = server.provider.requests[0].json()
    assert sent["tool_choice"] == "required"
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["get_weather"]
    assert body["choices"][0]["finish_reason"] == "tool_calls"


async def test_a_front_ends_title_is_one_plain_call(tmp_path: Path) -> None:
    system = {"role": "system", "content": "You are a title generator. You output ONLY a thread title."}
    blocks = [
        "x-anthropic-billing-header: cc_version=2;",
        "You are an agent of some SDK.",
        "Generate a concise title (3-7 words) that captures the goal of this session.",
    ]
    coding = {"system": [{"type": "text", "text": block} for block in blocks]}
    async with dialect_server(tmp_path) as server:
        await answered(server, CHAT, {"model": "tailrace", "messages": [system, *QUESTION]})
        await answered(server, MESSAGES, ask(MESSAGES, "tailrace", **coding))
        for role in ("system", "developer"):
            await answered(server, RESPONSES, {"model": "tailrace", "input": [{**system, "role": role}, *QUESTION]})
        assert ["tools" in request.json() for request in server.provider.requests] == [False] * 4


async def test_a_provider_s_request_id_is_kept_in_its_error(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server:
        status, body = await server.post(MESSAGES, ask(MESSAGES, "up-anthropic/bad-request"))
        sent = server.provider.requests[0].json()
        async with server.session.post(f"{server.provider.openai_url}/messages", json=sent) as response:
            direct = await response.json()
    assert (status, body["request_id"]) == (400, direct["request_id"])


@pytest.mark.parametrize("stream", [False, True])
async def test_the_agent_continues_the_answer_that_the_client_began(tmp_path: Path, stream: bool) -> None:
    begun = {"messages": [*QUESTION, {"role": "assistant", "content": "The river is"}]}
    body = {**ask(MESSAGES, "tailrace"), **begun, "stream": stream}
    script = [reply(call("water_level", {"river": "Elbe"})), reply("at 3.2 m.")]
    async with dialect_server(tmp_path, script, tools=[WATER_LEVEL]) as server:
        if stream:
            events = await server.data(MESSAGES, body)
            text = "".join(event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta")
        else:
            _, answer = await server.post(MESSAGES, body)
            text = "".join(block.get("text", "") for block in answer["content"])
        first, second = (request.json()["messages"] for request in server.provider.requests)
    assert text == "at 3.2 m."
    assert [message["content"] for message in first if message["role"] == "assistant"] == ["The river is"]
    assert "The river is" not in [message.get("content") for message in second]  # of the first call alone
