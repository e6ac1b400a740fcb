"""Who is let in, from where, and how far."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType

import pytest

from server.http_server import config_for, raw, running_server
from tailrace.app import open_app
from tailrace.config.load import load
from tailrace.errors import ConfigError
from tailrace.server.app import serving
from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.auth import ALL, MAX_REPORTED, Authoriser, Identity, Origins, check_bind, is_loopback
from tailrace.system.extras import install_command
from tailrace.testing.provider import FaultyProvider

KEY = "sk-tailrace-the-real-one"
ENV = {"TAILRACE_API_KEY": KEY}
BEARER = {"Authorization": f"Bearer {KEY}"}
SEVERAL = """
server:
  keys:
    - {name: reader, key_env: READER_KEY, scopes: [models]}
    - {name: worker, key_env: WORKER_KEY, scopes: [runs]}
    - {name: ops, key_env: OPS_KEY, scopes: [admin]}
"""
SEVERAL_ENV = {"READER_KEY": "reader-secret", "WORKER_KEY": "worker-secret", "OPS_KEY": "ops-secret"}


async def test_J119_every_route_but_the_open_ones_needs_the_key(tmp_path: Path) -> None:
    async with running_server(tmp_path, env=ENV) as server:
        asked = {}
        for route in server.pipeline.routes:
            path = route.path.replace("{id:.+}", "x/y").replace("{id}", "run_x")
            async with server.client.request(route.method, server.url + path) as response:
                asked[route.method, route.path] = (route.access, response.status)
                if response.status == 401:
                    assert response.headers["WWW-Authenticate"] == "Bearer"
        unknown, _ = await server.json("GET", "/nowhere")
    assert unknown == 401
    opened = {path for (_, path), (access, _) in asked.items() if access == "open"}
    assert {path for path in opened if not path.startswith("/web/")} == {"/healthz", "/", "/docs"}
    assert {status for access, status in asked.values() if access == "open"} == {200}
    assert {status for access, status in asked.values() if access != "open"} == {401}


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": f"Bearer {KEY}"},
        {"authorization": f"bearer {KEY}"},
        {"x-api-key": KEY},
        {"X-Api-Key": KEY, "Authorization": "Basic eDp5"},
    ],
)
async def test_the_key_is_taken_from_either_header(tmp_path: Path, headers: dict[str, str]) -> None:
    async with running_server(tmp_path, env=ENV) as server:
        assert (await server.json("GET", "/v1/models", headers=headers))[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": f"Bearer {KEY}x"},
        {"Authorization": f"Bearer {KEY[:-1]}"},
        {"Authorization": KEY},
        {"Authorization": f"Basic {KEY}"},
        {"Authorization": "Bearer "},
        {"x-api-key": ""},
        {"x-api-key": "wröng"},
        {"Authorization": "Bearer wrong", "x-api-key": KEY},
    ],
)
async def test_anything_else_is_401_in_the_words_of_the_api(tmp_path: Path, headers: dict[str, str]) -> None:
    async with running_server(tmp_path, env=ENV) as server:
        status, openai = await server.json("GET", "/v1/models", headers=headers)
        _, anthropic = await server.json("POST", "/v1/messages", headers=headers)
        _, plain = await server.json("GET", "/runs", headers=headers)
    assert status == 401
    assert openai["error"]["code"] == "invalid_api_key"
    assert anthropic["error"]["type"] == "authentication_error"
    assert plain["error"]["kind"] == "invalid_api_key"
    assert KEY[:-1] not in str((openai, anthropic, plain))


async def test_a_client_with_a_wrong_key_is_told_not_to_ask_again(tmp_path: Path) -> None:
    async with (
        running_server(tmp_path, env=ENV) as server,
        server.client.post(server.url + "/v1/messages", headers={"x-api-key": "wrong"}) as response,
    ):
        assert (response.status, response.headers["x-should-retry"]) == (401, "false")


# ── blank keys ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("blank", ["", " ", "   ", "\n", "\t\r\n", "\u00a0"])
@pytest.mark.parametrize("sent", [{}, {"x-api-key": ""}, {"Authorization": "Bearer "}, {"x-api-key": " "}])
async def test_M151_a_key_of_blanks_is_no_key(tmp_path: Path, blank: str, sent: dict[str, str]) -> None:
    config = config_for(FaultyProvider(), tmp_path, env={"TAILRACE_API_KEY": blank})
    authoriser = Authoriser.of(config)
    assert not authoriser.required
    with pytest.raises(ConfigError, match="no key is set"):
        check_bind("0.0.0.0", authoriser, "TAILRACE_API_KEY")
    keyed = config_for(FaultyProvider(), tmp_path, config=SEVERAL, env={**SEVERAL_ENV, "OPS_KEY": blank})
    with pytest.raises(ConfigError, match="OPS_KEY is not set"):
        Authoriser.of(keyed)
    with pytest.raises(ConfigError, match="blank"):
        Authoriser({"a": (blank, ALL)})
    with pytest.raises(ApiError, match="a valid API key is needed"):
        Authoriser({"a": ("hunter2-hunter2", ALL)}).authorise(sent, "any")


async def test_M151_with_a_key_of_blanks_the_host_is_still_checked(tmp_path: Path) -> None:
    async with running_server(tmp_path, env={"TAILRACE_API_KEY": "  "}) as server:
        assert (await server.json("GET", "/runs", headers={"Host": "evil.example"}))[0] == 403


async def test_M151_a_newline_after_the_key_is_not_part_of_it(tmp_path: Path) -> None:
    async with running_server(tmp_path, env={"TAILRACE_API_KEY": f"{KEY}\n"}) as server:
        assert (await server.json("GET", "/runs", headers=BEARER))[0] == 200
        assert (await server.json("GET", "/runs"))[0] == 401


async def test_a_key_reaches_as_far_as_its_scopes(tmp_path: Path) -> None:
    paths = ("/v1/models", "/runs", "/metrics", "/readyz")
    reached: dict[str, list[int]] = {}
    async with running_server(tmp_path, config=SEVERAL, env=SEVERAL_ENV) as server:
        for name, secret in SEVERAL_ENV.items():
            headers = {"x-api-key": secret}
            reached[name] = []
            for path in paths:
                async with server.client.get(server.url + path, headers=headers) as response:
                    reached[name].append(response.status)
    assert reached == {
        "READER_KEY": [200, 403, 403, 200],
        "WORKER_KEY": [403, 200, 403, 200],
        "OPS_KEY": [200, 200, 200, 200],
    }


async def test_without_a_key_whoever_reaches_loopback_is_the_user(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        assert (await server.json("GET", "/runs"))[0] == 200


def test_a_key_whose_variable_is_not_set_is_refused_at_the_start(tmp_path: Path) -> None:
    config = config_for(FaultyProvider(), tmp_path, config=SEVERAL, env={"READER_KEY": "a", "WORKER_KEY": "b"})
    with pytest.raises(ConfigError, match=r"server.keys\[2\].key_env: OPS_KEY is not set"):
        Authoriser.of(config)


def test_names_and_secrets_are_each_ones_own(tmp_path: Path) -> None:
    twice = config_for(FaultyProvider(), tmp_path, config=SEVERAL.replace("worker,", "reader,"), env=SEVERAL_ENV)
    with pytest.raises(ConfigError, match="'reader' is taken"):
        Authoriser.of(twice)
    with pytest.raises(ConfigError, match="the same value"):
        Authoriser({"a": ("same", ALL), "b": ("same", ALL)})


def test_the_authoriser_remembers_no_secret() -> None:
    authoriser = Authoriser({"a": ("hunter2-hunter2", ALL)})
    assert "hunter2" not in repr(vars(authoriser))
    assert authoriser.authorise({"x-api-key": " hunter2-hunter2 "}, "any") == Identity("a", ALL)


# ── where from ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.7", "example.org"])
async def test_J117_a_public_address_without_a_key_is_refused(tmp_path: Path, host: str) -> None:
    async with FaultyProvider() as provider, open_app(config_for(provider, tmp_path), directory=tmp_path) as app:
        with pytest.raises(ConfigError, match="set TAILRACE_API_KEY"):
            async with serving(app, host=host, port=0):
                raise AssertionError("it must not start")


def test_J117_a_key_or_loopback_is_enough() -> None:
    keyed, keyless = Authoriser({"a": ("secret-secret", ALL)}), Authoriser({})
    check_bind("0.0.0.0", keyed, "KEY")
    for host in ("127.0.0.1", "localhost", "::1", "127.8.8.8", "::ffff:127.0.0.1"):
        check_bind(host, keyless, "KEY")
    assert not is_loopback("localhost.evil.example")
    assert not is_loopback("::ffff:8.8.8.8")


async def test_an_address_that_is_taken_is_said_plainly(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        with pytest.raises(
            ConfigError, match=r"cannot listen on 127\.0\.0\.1:\d+: another program uses it; choose another with --port"
        ):
            async with serving(server.app, port=server.port()):
                raise AssertionError("it must not start")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8642", "127.0.0.1.evil.example", "", "[::bad", "@"])
async def test_J118_a_name_that_was_pointed_at_this_machine_is_refused(tmp_path: Path, host: str) -> None:
    async with running_server(tmp_path) as server:
        status, body = await server.json("GET", "/runs", headers={"Host": host})
    assert (status, body["error"]["kind"]) == (403, "host_not_allowed")


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1:evil.com", "127.0.0.1/evil.com", "evil.com@127.0.0.1", "127.0.0.1#evil.com", "127.0.0.1?", "a b"),
        *("[127.0.0.1]x", "::1", "127.0.0.1:99999999", "127.0.0.1:"),
    ],
)
@pytest.mark.parametrize("env", [{}, ENV])
async def test_J118_what_is_no_host_is_refused_with_and_without_a_key(
    tmp_path: Path, host: str, env: dict[str, str]
) -> None:
    async with running_server(tmp_path, env=env, headers=BEARER) as server:
        request = f"GET /runs HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\n\r\n"
        answer = await raw(server.port(), request.encode())
    assert answer[9:12] in (b"403", b"400"), answer


@pytest.mark.parametrize("header", ["Origin", "Host"])
async def test_J118_of_two_headers_neither_counts(tmp_path: Path, header: str) -> None:
    async with running_server(tmp_path, config="server: {cors_origins: ['http://127.0.0.1']}\n") as server:
        own = server.url if header == "Origin" else f"127.0.0.1:{server.port()}"
        other = "https://evil.example" if header == "Origin" else "evil.example"
        for pair in ((own, other), (other, own), (own, own)):
            first = "" if header == "Host" else f"Host: 127.0.0.1:{server.port()}\r\n"
            lines = first + "".join(f"{header}: {value}\r\n" for value in pair)
            answer = await raw(server.port(), f"GET /runs HTTP/1.1\r\n{lines}Connection: close\r\n\r\n".encode())
            assert answer[9:12] in (b"403", b"400"), (pair, answer)
            assert b"Access-Control-Allow-Origin" not in answer


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:8642", "LOCALHOST:80", "tailrace.lan"])
async def test_J118_its_own_names_are_served(tmp_path: Path, host: str) -> None:
    async with running_server(tmp_path, config="server: {hosts: [tailrace.lan]}\n") as server:
        assert (await server.json("GET", "/runs", headers={"Host": host}))[0] == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1", "http://127.0.0.1"])
async def test_J118_a_page_of_another_origin_is_refused(tmp_path: Path, origin: str) -> None:
    async with running_server(tmp_path, env=ENV, headers=BEARER) as server:
        status, body = await server.json("POST", "/runs", {"input": "x"}, headers={"Origin": origin})
        async with server.client.options(server.url + "/runs", headers=_preflight(origin)) as response:
            assert response.status == 403
            assert "Access-Control-Allow-Origin" not in response.headers
    assert (status, body["error"]["kind"]) == (403, "origin_not_allowed")


async def test_J118_the_log_names_a_refused_page_and_host_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    page = {"Origin": "http://127.0.0.1:8000"}
    async with running_server(tmp_path) as server:
        for _ in range(3):
            await server.json("POST", "/runs", {"input": "x"}, headers=page)
            await server.json("GET", "/runs", headers={"Host": "mill.example"})
        ours = server.url.removeprefix("http://")
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        (
            "a page of 'http://127.0.0.1:8000' was refused: it is not in server.cors_origins, "
            f"and not ours at the host {ours!r}"
        ),
        "a request for the host 'mill.example' was refused: it is not in server.hosts",
    ]


def test_the_log_names_so_many_refused_pages_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    origins = Origins(hosts=(), origins=(), any_host=True)
    for number in range(MAX_REPORTED + 9):
        with pytest.raises(ApiError):
            origins.check(["localhost"], [f"https://{number}.example\n" + "x" * 900])
    assert len(caplog.records) == MAX_REPORTED
    assert all("\n" not in line and len(line) < 400 for line in caplog.messages)


def test_a_refused_model_is_named_as_it_was_asked_for() -> None:
    caller = Identity("ci", models=("local/*",))
    for asked, told in (("gpt-5", "'gpt-5', which stands for 'openai/gpt-5'"), ("openai/gpt-5", "'openai/gpt-5'")):
        with pytest.raises(ApiError, match=re.escape(f"this key may not use {told}; it may use: local/*")):
            caller.require_model("openai/gpt-5", asked)


def test_a_budget_in_dollars_needs_the_prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = "server: {keys: [{name: ci, key_env: CI_KEY, usd_per_day: 5}]}\n"
    (tmp_path / "config.yaml").write_text(told, encoding="utf-8")
    config = load({"CI_KEY": "ci-secret"}, tmp_path)
    Authoriser.of(config)
    monkeypatch.setattr("tailrace.app.costs.find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=re.escape(f"server.keys[0].usd_per_day: prices need an extra: {install_command('prices')}")
    ):
        Authoriser.of(config)


async def test_J118_the_page_that_we_serve_is_of_the_same_origin(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        status, _ = await server.json("POST", "/runs", {"input": "x"}, headers={"Origin": server.url})
    assert status == 201


async def test_an_allowed_origin_gets_its_preflight_without_a_key_and_the_answer_with_one(tmp_path: Path) -> None:
    page = "https://app.example"
    async with running_server(tmp_path, env=ENV, config=f"server: {{cors_origins: ['{page}']}}\n") as server:
        async with server.client.options(server.url + "/v1/models", headers=_preflight(page)) as response:
            assert response.status == 204
            assert response.headers["Access-Control-Allow-Origin"] == page
            assert response.headers["Access-Control-Allow-Headers"] == "authorization, x-stainless-os"
            assert response.headers["Access-Control-Allow-Methods"] == "GET, POST, PATCH, DELETE"
        async with server.client.get(server.url + "/v1/models", headers={"Origin": page, **BEARER}) as response:
            assert response.status == 200
            assert response.headers["Access-Control-Allow-Origin"] == page
        async with server.client.get(server.url + "/v1/models", headers={"Origin": page}) as response:
            assert response.status == 401
            assert response.headers["Access-Control-Allow-Origin"] == page  # so that the page can read why


def test_an_origin_that_no_header_of_the_answer_can_repeat_is_refused() -> None:
    origins = Origins(hosts=(), origins=("*",), any_host=True)
    with pytest.raises(ApiError) as caught:
        origins.check(["anything"], [b"https://\xff.example".decode("utf-8", "surrogateescape")])
    assert (caught.value.status, caught.value.code) == (403, "origin_not_allowed")


def test_everybody_may_be_let_in_but_a_page_without_an_origin() -> None:
    origins = Origins(hosts=(), origins=("*",), any_host=True)
    origins.check(["anything"], ["https://a.example"])
    with pytest.raises(ApiError, match="origin"):
        origins.check(["anything"], ["null"])


def _preflight(origin: str) -> dict[str, str]:
    return {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, x-stainless-os",
    }


def test_a_key_is_found_among_thousands_as_fast_as_among_few() -> None:
    def steps(count: int) -> int:
        authoriser = Authoriser({f"key {number}": (f"secret {number}", ALL) for number in range(count)})
        counted = 0

        def count_step(_frame: FrameType, _event: str, _argument: object) -> None:
            nonlocal counted
            counted += 1

        sys.setprofile(count_step)
        try:
            found = authoriser.authorise({"x-api-key": f"secret {count // 2}"}, "any")
        finally:
            sys.setprofile(None)
        assert found.name == f"key {count // 2}"
        return counted

    assert steps(10_000) == steps(2)
