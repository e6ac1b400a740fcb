"""Steps that are somebody else's work: tools, HTTP requests, turns of the agent; and whose key goes where."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from flows.stages import FAST_RETRY, ask, sequence, service, step
from parked_turns import REASON, park_turn
from tailrace.app import App, open_app
from tailrace.app.flow_handlers import ConfiguredRoutes
from tailrace.app.models import Models
from tailrace.config.load import Config, load
from tailrace.errors import ConfigError
from tailrace.flows.definition.definition import DefinitionError
from tailrace.flows.definition.public_ids import run_id_of
from tailrace.flows.engine.service import Instance
from tailrace.flows.steps.http import HttpStep, host_problem
from tailrace.flows.steps.llm_params import ProviderParam
from tailrace.messages import JsonObject, Usage
from tailrace.ports import Effect, ToolContext, ToolOutcome
from tailrace.providers.prices import cost_usd
from tailrace.providers.transport.http1_transport import open_transport
from tailrace.testing.provider import FaultyProvider, Reply, call, reply
from tailrace.tools.typed import Arguments, TypedTool

# ── HTTP ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Site:
    """Answers with what it is told, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str], str]] = []
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append((request.method, request.path_qs, dict(request.headers), await request.read()))
        status, headers, body = self.answers.pop(0) if self.answers else (200, {}, '{"ok": true}')
        return web.Response(status=status, headers=headers, text=body)


async def request(tmp_path: Path, site: Site, params: JsonObject, **fields: Any) -> Instance:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", site.answer)
    async with TestServer(application) as server, service(tmp_path, http=HttpStep()) as flows:
        url = str(server.make_url("/")) + "things"
        run = await flows.start(sequence(step("get", {"url": url, **params}, "http", **fields)))
        await flows.finished(run.id)
        return await flows.instance(run.id)


async def test_a_request_gives_status_headers_text_and_json(tmp_path: Path) -> None:
    site = Site()
    params = {"method": "POST", "json": {"a": 1}, "query": {"q": "x y", "n": 3}, "headers": {"X-A": "b"}}
    instance = await request(tmp_path, site, params)
    output = instance.outputs["get"]
    assert (output["status"], output["json"], output["body"]) == (200, {"ok": True}, '{"ok": true}')
    ((method, path, headers, body),) = site.asked
    assert (method, path, body) == ("POST", "/things?q=x+y&n=3", b'{"a":1}')
    assert headers["X-A"] == "b"
    assert headers["idempotency-key"] == f"{run_id_of(instance.id)}/get/1"


async def test_a_failure_that_may_pass_is_tried_again_and_one_that_may_not_is_not(tmp_path: Path) -> None:
    site = Site()
    site.answers = [(503, {"Retry-After": "0"}, "later"), (200, {}, "now")]
    instance = await request(tmp_path, site, {}, retry=FAST_RETRY)
    assert instance.outputs["get"]["body"] == "now"
    site.answers = [(404, {}, "nothing here")]
    instance = await request(tmp_path, site, {}, retry=FAST_RETRY)
    assert instance.error is not None
    assert (instance.error.kind, instance.error.code) == ("permanent", "404")
    site.answers = [(404, {}, "fine")]
    instance = await request(tmp_path, site, {"fail_on_status": False})
    assert instance.outputs["get"]["status"] == 404


async def test_a_redirect_is_an_answer_and_not_an_order(tmp_path: Path) -> None:
    site = Site()
    site.answers = [(302, {"Location": "http://169.254.169.254/"}, "")]
    instance = await request(tmp_path, site, {})
    assert instance.outputs["get"]["status"] == 302
    assert len(site.asked) == 1


@pytest.mark.parametrize(
    ("url", "fine"),
    [
        ("https://example.com/{{input.x}}", True),
        ("https://{{env.HOST}}/x", True),
        ("{{env.BASE}}/x", True),
        ("{{env.BASE}}", True),
        ("https://{{input.host}}/x", False),
        ("https://a.{{input.host}}", False),
        ("{{input.url}}", False),
        ("{{env.BASE}}{{input.x}}", False),
        ("file:///etc/passwd", False),
    ],
)
def test_J116_no_data_has_a_say_in_which_host_is_asked(url: str, fine: bool) -> None:
    assert (host_problem(url) == "") == fine


# ── tools and agents ─────────────────────────────────────────────────────────────────────────────────────────


class EchoArgs(Arguments):
    text: str


class Echo(TypedTool[EchoArgs]):
    name = "echo"
    description = "Says it again."
    Args = EchoArgs

    def effect(self, args: JsonObject) -> Effect:
        return Effect("external", args["text"]) if args["text"] == "abroad" else Effect()

    async def execute(self, args: EchoArgs, context: ToolContext) -> ToolOutcome:
        return ToolOutcome(f"{args.text} in {context.directory.name}", ok=args.text != "bad")


def config(home: Path, server: FaultyProvider, more: str = "", **env: str) -> Config:
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(
        "model: {provider: faulty, name: ok}\n"
        f"providers: {{faulty: {{base_url: '{server.openai_url}', backoff_s: 0.001}}}}\n"
        "store: {url: 'memory://'}\n" + more,
        encoding="utf-8",
    )
    return load({"HOME": "/home/me", **env}, home)


async def ran(app: App, *blocks: JsonObject) -> Instance:
    run = await app.flows.start(sequence(*blocks))
    await app.flows.finished(run.id)
    return await app.flows.instance(run.id)


async def test_a_tool_is_called_and_its_failure_is_the_steps(tmp_path: Path) -> None:
    async with (
        FaultyProvider() as server,
        open_app(config(tmp_path / "home", server), directory=tmp_path, tools=[Echo()]) as app,
    ):
        good = await ran(app, step("t", {"name": "echo", "args": {"text": "hi"}}, "tool"))
        assert good.outputs["t"] == {"output": f"hi in {tmp_path.name}"}
        bad = await ran(app, step("t", {"name": "echo", "args": {"text": "bad"}}, "tool"))
        assert bad.error is not None
        assert (bad.error.kind, bad.error.code) == ("retryable", "tool_failed")
        wrong = await ran(app, step("t", {"name": "echo", "args": {"texts": "x"}}, "tool"))
        assert wrong.error is not None
        assert wrong.error.code == "params"
        with pytest.raises(DefinitionError, match="no tool 'nobody'"):
            app.flows.check(sequence(step("t", {"name": "nobody"}, "tool")))


async def test_J108_what_somebody_would_have_to_approve_is_refused(tmp_path: Path) -> None:
    abroad = step("t", {"name": "echo", "args": {"text": "abroad"}}, "tool")
    home = step("t", {"name": "terminal", "args": {"command": "rm -rf /"}}, "tool")
    async with FaultyProvider() as server:
        async with open_app(config(tmp_path / "a", server), directory=tmp_path, tools=[Echo()]) as app:
            for block in (abroad, home):
                refused = await ran(app, block)
                assert refused.error is not None
                assert refused.error.code == "refused"
        yolo = config(tmp_path / "b", server, "approvals: {mode: yolo}\n")
        async with open_app(yolo, directory=tmp_path, tools=[Echo()]) as app:
            assert (await ran(app, abroad)).state == "completed"
            assert (await ran(app, home)).state == "failed"


async def test_a_turn_of_the_agent_is_a_run_of_its_own(tmp_path: Path) -> None:
    script: list[str | Reply] = [reply(call("echo", {"text": "hi"})), "ok"]
    async with (
        FaultyProvider(script=script) as server,
        open_app(config(tmp_path / "home", server), directory=tmp_path, tools=[Echo()]) as app,
    ):
        instance = await ran(app, step("a", {"prompt": "Say hi.", "tools": ["echo"]}, "agent"))
        assert instance.state == "completed", instance.error
        output = instance.outputs["a"]
        run = await app.journal.get(output["run_id"])
        assert run.finished is not None
        assert run.finished.output == output["message"]["content"]
        assert instance.usage == run.finished.usage


@pytest.mark.parametrize(
    ("params", "handler", "mistake"),
    [
        (
            {"prompt": "Go.", "tools": ["echo", "ehco"]},
            "agent",
            "params.tools[1]: there is no tool 'ehco'; did you mean",
        ),
        ({"prompt": "Go.", "max_turns": 0}, "agent", "params.max_turns: must be at least 1"),
        ({"signal": "pause"}, "wait_signal", "params.signal: 'pause' acts on the instance itself and reaches no step"),
        ({"signal": ["go", "pause"]}, "wait_signal", "params.signal: must be text, not a list"),
    ],
)
async def test_what_could_never_be_done_is_a_mistake_of_the_sequence(
    tmp_path: Path, params: JsonObject, handler: str, mistake: str
) -> None:
    async with (
        FaultyProvider() as server,
        open_app(config(tmp_path / "home", server), directory=tmp_path, tools=[Echo()]) as app,
    ):
        with pytest.raises(DefinitionError, match=re.escape(mistake)):
            app.flows.check(sequence(step("a", params, handler)))
        app.flows.check(sequence(step("a", {"prompt": "Go.", "tools": ["echo", "{{input.tool}}"]}, "agent")))


async def test_cancelling_an_instance_stops_its_agent(tmp_path: Path) -> None:
    async with (
        FaultyProvider(script=["silence"]) as server,
        open_app(config(tmp_path / "home", server), directory=tmp_path) as app,
    ):
        run = await app.flows.start(sequence(step("a", {"prompt": "Go."}, "agent")))
        await server.request(0)
        await app.flows.signal(run.id, "cancel")
        assert (await app.flows.finished(run.id)).status == "stopped"
        (turn,) = await app.journal.runs(kind="agent")
        assert (await app.agents.finished(turn.id)).status == "stopped"


async def test_I102_a_step_fails_when_its_agent_is_set_aside(tmp_path: Path) -> None:
    async with (
        FaultyProvider(script=["silence"]) as server,
        open_app(config(tmp_path / "home", server), directory=tmp_path) as app,
    ):
        run = await app.flows.start(sequence(step("a", {"prompt": "Go."}, "agent")))
        await server.request(0)
        await park_turn(app)
        finished = await app.flows.finished(run.id)
    assert (finished.status, finished.error is not None and finished.error.code) == ("failed", "parked")
    assert REASON in str(finished.error)


# ── whose key goes where ─────────────────────────────────────────────────────────────────────────────────────

KEYS = """
providers:
  faulty: {dialect: anthropic, base_url: 'https://models.example.com/v1', key_env: OUR_KEY, headers: {x-team: secret}}
flows: {env_allow: [THEIR_KEY]}
"""


@asynccontextmanager
async def routes(tmp_path: Path) -> AsyncGenerator[ConfiguredRoutes, None]:
    (tmp_path / "config.yaml").write_text(KEYS)
    settings = load({"OUR_KEY": "our-secret-key", "THEIR_KEY": "their-secret-key"}, tmp_path)
    async with open_transport() as transport:
        yield ConfiguredRoutes(Models(settings, transport))


async def endpoint_headers(tmp_path: Path, **ref: Any) -> tuple[str, dict[str, str]]:
    async with routes(tmp_path) as found:
        endpoint = found.endpoint(ProviderParam(model="m", **ref))
    return endpoint.dialect, endpoint.request_headers()


async def test_J115_a_key_goes_to_its_own_host_and_to_no_other(tmp_path: Path) -> None:
    at_home = await endpoint_headers(tmp_path, provider="faulty", base_url="https://models.example.com:443/other")
    assert at_home[0] == "anthropic"
    assert at_home[1]["x-api-key"] == "our-secret-key"
    assert at_home[1]["x-team"] == "secret"
    for url in ("https://evil.example.com/v1", "http://models.example.com/v1", "https://models.example.com.evil.org"):
        _, headers = await endpoint_headers(tmp_path, provider="faulty", base_url=url)
        assert not {"our-secret-key", "secret"} & set(headers.values())
    _, allowed = await endpoint_headers(
        tmp_path, provider="faulty", base_url="https://evil.example.com", api_key_env="THEIR_KEY"
    )
    assert allowed["x-api-key"] == "their-secret-key"
    with pytest.raises(ConfigError, match="OUR_KEY is not listed"):
        await endpoint_headers(tmp_path, provider="faulty", api_key_env="OUR_KEY")


async def test_a_model_is_found_by_provider_by_name_and_by_address(tmp_path: Path) -> None:
    async with routes(tmp_path) as found:
        for ref, provider, model in (
            (ProviderParam("faulty", "m"), "faulty", "m"),
            (ProviderParam("", "faulty/deep/m"), "faulty", "deep/m"),
            (ProviderParam("", ""), "local", "smollm2-135m"),
            (ProviderParam("openai", "gpt", "http://127.0.0.1:1/v1"), "openai", "gpt"),
            (ProviderParam("", "m", "http://models.internal/v1"), "models.internal", "m"),
        ):
            route = found.route(ref)
            assert (route.provider.name, route.model) == (provider, model)
        assert found.route(ProviderParam("openai", "gpt", "http://127.0.0.1:1/v1")).provider.dialect == "chat"
        with pytest.raises(ConfigError, match="which model of faulty"):
            found.route(ProviderParam("faulty"))
        with pytest.raises(ConfigError, match="no such provider"):
            found.route(ProviderParam("nobody", "m"))


async def test_a_base_url_is_asked_without_a_key(tmp_path: Path) -> None:
    async with FaultyProvider() as server, open_app(config(tmp_path / "home", server), directory=tmp_path) as app:
        for provider in ("custom", "anthropic"):
            instance = await ran(app, ask(provider=provider, model="ok", base_url=server.openai_url))
            assert instance.state == "completed", instance.error
            assert instance.outputs["say"]["provider"] == provider
        assert [request.path for request in server.requests] == ["/v1/chat/completions", "/v1/messages"]
        assert not any({"authorization", "x-api-key"} & request.headers.keys() for request in server.requests)


def test_an_estimate_counts_cached_tokens_as_each_dialect_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_args: object) -> None:
        raise AssertionError("prices were fetched")

    monkeypatch.setattr("socket.socket.connect", connect)
    usage = Usage(1000, 100, cache_read_tokens=600)
    assert cost_usd("gpt-4o", usage, "chat") == pytest.approx((400 * 2.5 + 600 * 1.25 + 100 * 10) / 1e6)
    assert cost_usd("claude-sonnet-4-5", usage, "anthropic") == pytest.approx((1000 * 3 + 600 * 0.3 + 100 * 15) / 1e6)
    assert cost_usd("openai/gpt-4o", usage, "chat") == cost_usd("gpt-4o", usage, "chat")
    assert cost_usd("nobody-knows", usage, "chat") is None
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    assert cost_usd("gpt-4o", usage, "chat") is None


async def test_a_thousand_instances_at_once_all_end(tmp_path: Path) -> None:
    async with service(tmp_path) as flows:
        version = await flows.create_sequence(sequence(*(step(f"s{n}", {"n": "{{input.n}}"}) for n in range(3))))
        runs = await asyncio.gather(*(flows.start(version, {"n": n}) for n in range(1000)))
        ended = await asyncio.gather(*(flows.finished(run.id) for run in runs))
        assert [finished.output for finished in ended] == [
            f'{{"s0":{{"n":{n}}},"s1":{{"n":{n}}},"s2":{{"n":{n}}}}}' for n in range(1000)
        ]
