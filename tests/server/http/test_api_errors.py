"""Failures as the client's API words them: the shape, the status, and whether to ask again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from aiohttp import web

from server.http_server import running_server
from tailrace.errors import ConfigError, JournalError, Rejected, RunSealed, StreamCut, TimedOut, Unavailable
from tailrace.server.http.api_errors import ApiError, as_api_error, error_frame, error_object
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.route import Route
from tailrace.wire.dialects import ANTHROPIC

DIALECTS = ("/v1/chat/broken", "/v1/messages/broken", "/runs-broken")


def broken_routes(_: RequestPipeline) -> Sequence[Route]:
    async def broken(_: web.Request) -> web.Response:
        raise RuntimeError("sk-very-secret at /home/somebody")

    return [Route("GET", path, broken, "any", "Fails.") for path in DIALECTS]


@pytest.mark.parametrize("path", DIALECTS)
async def test_what_nobody_foresaw_is_an_internal_error_and_says_no_more(
    tmp_path: Path, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_server(tmp_path, extra=(broken_routes,)) as server:
        status, body = await server.json("GET", path)
    assert status == 500
    assert "internal error" in json.dumps(body)
    assert "secret" not in json.dumps(body)
    assert "Traceback" not in json.dumps(body)
    assert [record for record in caplog.records if record.exc_info], "the log has the traceback"


async def test_the_error_has_the_shape_of_the_api_that_was_spoken_to(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        _, openai = await server.json("GET", "/v1/models/nowhere/at-all")
        _, anthropic = await server.json("GET", "/v1/messages/none")
        status, plain = await server.json("GET", "/runs/run_none")
    assert openai["error"] == {
        "message": "no such model: 'nowhere/at-all'",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }
    assert (anthropic["type"], anthropic["error"]["type"]) == ("error", "not_found_error")
    assert anthropic["request_id"].startswith("req_")
    assert (status, plain["error"]["kind"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("exc", "status", "code"),
    [
        (Rejected("too long", status=413, code="request_too_large"), 413, "request_too_large"),
        (Rejected("no", code="refused"), 502, "refused"),
        (
            Unavailable("slow down", status=429, code="rate_limit_exceeded", retry_after_s=3.2),
            429,
            "rate_limit_exceeded",
        ),
        (Unavailable("overloaded", status=529), 529, "overloaded"),
        (Unavailable("broken", status=500, code="api_error"), 502, "api_error"),
        (Unavailable("refused connection"), 502, "bad_gateway"),
        (TimedOut("silent", deadline="idle"), 504, "timeout"),
        (StreamCut("cut"), 502, "bad_gateway"),
        (RunSealed("ended"), 409, "conflict"),
        (ConfigError("no such provider", key="providers.x"), 404, "model_not_found"),
        (ConfigError("no such provider", key="providers.qwen2.5"), 404, "model_not_found"),
        (ConfigError("KEY is not set", key="providers.x.key_env"), 400, "not_configured"),
        (ConfigError("KEY is not set", key="providers.qwen2.5.key_env"), 400, "not_configured"),
        (ConfigError("is not a directory", key="agent.roots"), 503, "not_configured"),
        (JournalError("disk /var/x full"), 503, "journal_unavailable"),
        (TimeoutError(), 504, "gateway_timeout"),
        (KeyError("x"), 500, "internal_error"),
    ],
)
def test_each_failure_has_its_status(exc: Exception, status: int, code: str) -> None:
    error = as_api_error(exc)
    assert (error.status, error.code) == (status, code)
    assert "/var" not in str(error)


def test_a_model_without_a_key_is_refused_with_a_status_that_no_client_tries_again() -> None:
    error = as_api_error(ConfigError("KEY is not set in the environment", key="providers.x.key_env"))
    assert str(error) == (
        "this server is not set up for that model: providers.x.key_env: KEY is not set in the environment"
    )
    assert as_api_error(ConfigError("no", key="agent.roots")).headers == {"x-should-retry": "false"}


def test_what_a_provider_has_refused_is_not_asked_again() -> None:
    refused = Rejected("Incorrect API key provided", status=401, code="invalid_api_key", provider="openai")
    refused.tried = ("anthropic", "openai")
    error = as_api_error(refused)
    assert str(error) == "openai refused this server's key: Incorrect API key provided", "the client's own key is fine"
    assert error.headers == {"x-should-retry": "false"}
    assert as_api_error(Rejected("too long", status=400)).headers == {"x-should-retry": "false"}
    assert as_api_error(Unavailable("overloaded", status=529)).headers == {}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/chat/completions", "no such route: the base URL of this client must end in /v1"),
        ("/responses/resp_1", "no such route: the base URL of this client must end in /v1"),
        ("/v1/v1/messages", "no such route: the base URL of this client must not end in /v1"),
        ("/v1/images/generations", "no such route; /docs and /openapi.json list those that there are"),
        ("/nowhere", "no such route; /docs and /openapi.json list those that there are"),
    ],
)
async def test_a_wrong_base_url_is_told_the_right_one(tmp_path: Path, path: str, message: str) -> None:
    async with running_server(tmp_path) as server:
        status, body = await server.json("POST", path, {"model": "x"})
    assert (status, body["error"]["message"]) == (404, message)


@pytest.mark.parametrize("base", ["", "/v1/v1"])
async def test_a_wrong_base_url_is_told_in_the_words_of_the_client_s_api(tmp_path: Path, base: str) -> None:
    async with running_server(tmp_path) as server:
        _, to_anthropic = await server.json("POST", base + "/messages", {"model": "x"})
        _, to_openai = await server.json("POST", base + "/chat/completions", {"model": "x"})
    assert (to_anthropic["type"], to_anthropic["error"]["type"]) == ("error", "not_found_error")
    assert to_openai["error"].keys() == {"message", "type", "param", "code"}


def test_retry_after_is_passed_on_in_whole_seconds() -> None:
    assert as_api_error(Unavailable("wait", status=429, retry_after_s=0.2)).headers == {"Retry-After": "1"}


def test_H94_the_error_event_of_each_dialect() -> None:
    error = ApiError(504, "silent", code="timeout")
    assert error_frame(error, "/v1/chat/completions").startswith(b'data: {"error":')
    assert error_frame(error, "/v1/messages").startswith(b'event: error\ndata: {"type":"error"')
    assert error_frame(error, "/runs", "req_1").startswith(b'event: error\ndata: {"error":{"kind":"timeout"')
    assert error_object(error, ANTHROPIC)["error"]["type"] == "timeout_error"
