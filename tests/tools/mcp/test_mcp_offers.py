"""What MCP servers offer beside tools, how their lists change, and servers that ask, log and lie."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra is not installed")

from mcp_types import ElicitRequestParams, ElicitResult
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import open_app
from tailrace.app.programs.mcp_servers import connected_mcp_servers
from tailrace.config.load import load
from tailrace.config.sections import McpServer
from tailrace.events import ApprovalAsked, GatewayNotice
from tailrace.messages import user
from tailrace.ports import ToolOutcome
from tailrace.testing.clock import driven
from tailrace.testing.provider import FaultyProvider, reply
from tailrace.testing.provider import call as tool_call
from tailrace.tools.mcp.connection import McpConnection
from tailrace.tools.mcp.elicitation import DECLINED
from tailrace.tools.mcp.servers import McpServers
from tools.mcp.test_mcp import ENVIRONMENT, SERVER, http_server
from tools.tool_context import PATH, Workplace

OLD = str(Path(__file__).with_name("old_server.py"))


def servers(**settings: McpServer) -> McpServers:
    return McpServers(settings, environment=ENVIRONMENT)


def sdk() -> McpServer:
    return McpServer(command=(sys.executable, SERVER, "stdio"), timeout_s=30)


def old(lie: str = "", **settings: Any) -> McpServer:
    return McpServer(command=(sys.executable, OLD, lie), timeout_s=30, **settings)


@pytest.fixture(scope="module")
def web() -> Iterator[McpServer]:
    """One server of the SDK for all tests that leave it as it was."""
    with http_server() as (_, port):
        yield McpServer(url=f"http://127.0.0.1:{port}/mcp", timeout_s=30)


async def declined(_params: ElicitRequestParams) -> ElicitResult:
    return DECLINED


class Told(logging.Handler):
    """Waits for a line of the log."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: asyncio.Queue[str] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.put_nowait(record.getMessage())

    async def __call__(self, line: str) -> None:
        async with asyncio.timeout(30):
            while await self.lines.get() != line:
                pass


@pytest.fixture
async def told(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Told]:
    handler, log = Told(), logging.getLogger("tailrace.tools.mcp")
    monkeypatch.setattr(log, "level", logging.INFO)
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


class _Announcer:
    """A server that announces changes without end. `tools` is what it lists."""

    name = "liar"

    def __init__(self) -> None:
        self.listed = 0

    async def tools(self) -> tuple[list[Any], str]:
        self.listed += 1
        return [], ""

    async def close(self) -> None:
        pass


@driven
async def test_changes_that_are_none_are_asked_about_less_and_less(caplog: pytest.LogCaptureFixture) -> None:
    offered = McpServers({"liar": McpServer(command=("nothing",))}, environment={})
    liar = _Announcer()
    offered._links["liar"] = liar  # type: ignore[assignment]
    caplog.set_level(logging.INFO, "tailrace.tools.mcp")
    async with offered:
        await offered.tools()
        for _ in range(6000):
            offered._stale["liar"].set()
            await asyncio.sleep(0.1)
    assert liar.listed < 20  # in ten minutes
    assert caplog.records == []


# ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("settings", "by", "new", "count"), [(sdk(), "grow", "grown", 14), (old(), "change", "changed", 7)]
)
async def test_a_list_that_changes_is_listed_anew(
    here: Workplace, told: Told, settings: McpServer, by: str, new: str, count: int
) -> None:
    """One way before protocol version 2026-07-28, another since."""
    async with servers(s=settings) as offered:
        tools = await offered.tools()
        assert f"s__{new}" not in tools
        await tools[f"s__{by}"].run({}, here)
        await told(f"the MCP server s offers {count} tools now")
        assert f"s__{new}" in offered.offered


async def test_a_tool_that_was_added_is_there_in_the_next_turn(tmp_path: Path, told: Told) -> None:
    script = [reply(tool_call("s__change", {})), reply("Done."), reply("Again.")]
    async with FaultyProvider(script=script) as provider:
        settings = {
            "model": {"provider": "p", "name": "ok"},
            "providers": {"p": {"dialect": "chat", "base_url": provider.openai_url}},
            "mcp": {"servers": {"s": {"command": [sys.executable, OLD], "trust": True}}},
        }
        (tmp_path / "config.yaml").write_text(json.dumps(settings), encoding="utf-8")
        async with open_app(load({"PATH": PATH}, tmp_path), directory=tmp_path) as app:
            for question in ("Change.", "And now?"):
                run = await app.agents.submit(TurnSpec(user(question)))
                finished = await app.agents.finished(run.id)
                assert finished.status == "completed"
                if question == "Change.":
                    await told("the MCP server s offers 7 tools now")
    offered = [{tool["function"]["name"] for tool in request.json()["tools"]} for request in provider.requests]
    assert ["s__changed" in names for names in offered] == [False, False, True]


async def test_a_server_that_comes_later_is_found(told: Told, tmp_path: Path) -> None:
    program = tmp_path / "late.py"
    async with servers(late=McpServer(command=(sys.executable, str(program)), timeout_s=30)) as offered:
        assert await offered.tools() == {}
        assert "late" in offered.problems
        program.symlink_to(OLD)
        offered._tried_at.clear()  # long ago
        offered.retry()
        await told("the MCP server late offers 6 tools now")
        assert (offered.problems, "late__change" in offered.offered) == ({}, True)


async def test_what_only_reads_is_asked_again_of_a_server_that_died_meanwhile(here: Workplace) -> None:
    async with servers(s=old()) as offered:
        tools = await offered.tools()
        assert not (await tools["s__die"].run({}, here)).ok
        live = offered._links["s"]._live
        assert live is not None
        live.lost = False  # nobody has noticed yet
        assert await tools["s__shout"].run({}, here) == ToolOutcome('{"ok":true}')


# ── what a server may ask, say and get wrong ─────────────────────────────────────────────────────────────────


async def test_what_the_agent_cannot_do_is_neither_offered_nor_done(here: Workplace) -> None:
    async with servers(plain=old()) as offered:
        tools = await offered.tools()

        async def asked(tool: str) -> Any:
            return json.loads((await tools[tool].run({}, here)).output)

        elicited = await asked("plain__elicit")
        assert (list(elicited["can"]), elicited["got"]) == (["elicitation"], {"action": "decline"})
        assert (await asked("plain__sample"))["got"]["message"] == "Sampling not supported"
        assert (await asked("plain__roots"))["got"]["message"] == "List roots not supported"


@pytest.mark.parametrize("says_yes", [True, False])
async def test_what_a_server_asks_in_a_call_is_asked_of_the_person(here: Workplace, says_yes: bool) -> None:
    here.says_yes = says_yes
    async with servers(sdk=sdk()) as offered:
        tools = await offered.tools()
        booked = await tools["sdk__book"].run({}, here)
        written = await tools["sdk__name"].run({}, here)
    assert here.questions == ["The MCP server sdk asks: Book two seats?\nsure: True\nseats: 2"], (
        "a name must be written"
    )
    assert booked.output == ("accept sure=True seats=2" if says_yes else "decline")
    assert written.output == "decline"


async def test_no_deadline_runs_while_a_person_thinks(here: Workplace) -> None:
    """Longer than the server may take to answer."""

    class Slow(Workplace):
        async def ask(self, question: str) -> bool:
            await asyncio.sleep(1.5)
            return await super().ask(question)

    slow = Slow(here.directory)
    slow.says_yes = True
    async with servers(sdk=sdk()) as offered:
        tools = await offered.tools()
        offered._links["sdk"]._settings = McpServer(command=(sys.executable, SERVER, "stdio"), timeout_s=1)
        assert (await tools["sdk__book"].run({}, slow)).output == "accept sure=True seats=2"


async def test_the_question_of_a_server_is_an_approval_of_the_run(tmp_path: Path) -> None:
    command = json.dumps([sys.executable, SERVER, "stdio"])
    async with FaultyProvider(script=[reply(tool_call("sdk__book", {})), reply("Booked.")]) as provider:
        (tmp_path / "config.yaml").write_text(
            f"model: {{provider: faulty, name: ok}}\n"
            f"providers: {{faulty: {{dialect: chat, base_url: '{provider.openai_url}'}}}}\n"
            f"mcp: {{servers: {{sdk: {{command: {command}, trust: true}}}}}}\nstore: {{url: 'memory://'}}\n",
            encoding="utf-8",
        )
        async with open_app(load(dict(ENVIRONMENT), tmp_path), directory=tmp_path) as app:
            run = await app.agents.submit(TurnSpec(user("Book."), requester="web", reachable=True))
            async for batch in app.journal.tail(run.id):
                for entry in batch:
                    if isinstance(asked := entry.event, ApprovalAsked):
                        await app.agents.answer(run.id, asked.approval_id, "once", by="web")
                        assert asked.command.startswith("The MCP server sdk asks: Book two seats?")
            finished = await app.agents.finished(run.id)
        told = json.loads(provider.requests[-1].body)["messages"][-1]["content"]
    assert (finished.output, told) == ("Booked.", "accept sure=True seats=2")


async def test_N161_a_turn_says_once_which_tools_are_missing(tmp_path: Path) -> None:
    async with FaultyProvider(script=[reply("One."), reply("Two.")]) as provider:
        (tmp_path / "config.yaml").write_text(
            f"model: {{provider: faulty, name: ok}}\n"
            f"providers: {{faulty: {{dialect: chat, base_url: '{provider.openai_url}'}}}}\n"
            f"mcp: {{servers: {{notes: {{command: [no-such-program]}}}}}}\nstore: {{url: 'memory://'}}\n",
            encoding="utf-8",
        )
        async with open_app(load(dict(ENVIRONMENT), tmp_path), directory=tmp_path) as app:
            told = []
            for text in ("One?", "Two?"):
                run = await app.agents.submit(TurnSpec(user(text), requester="web"), session="s")
                await app.agents.finished(run.id)
                entries = await app.journal.read(run.id)
                told.append([entry.event.text for entry in entries if isinstance(entry.event, GatewayNotice)])
    [[notice], later] = told
    assert notice.startswith("⚠️ The tools of the MCP server notes are missing: the MCP server notes cannot be reached")
    assert later == []


async def test_a_server_that_lies_is_said_and_does_not_affect_the_others(here: Workplace) -> None:
    async with servers(tools=old("tools"), result=old("result"), junk=old("junk")) as offered:
        tools = await offered.tools()
        assert list(offered.problems) == ["tools"]
        assert offered.problems["tools"].startswith("the MCP server tools broke the protocol: ")
        lied = await tools["result__change"].run({}, here)
        assert (lied.ok, lied.output.startswith("the MCP server result broke the protocol: ")) == (False, True)
        assert await tools["junk__change"].run({}, here) == ToolOutcome('{"ok":true}')


async def test_a_cancelled_call_is_cancelled_at_the_server(here: Workplace, web: McpServer) -> None:
    async with servers(s=web) as offered:
        tools = await offered.tools()
        waiting = asyncio.ensure_future(tools["s__waits"].run({}, here))
        await here.until(bool)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await tools["s__cancelled"].run({}, here) == ToolOutcome("yes")


def with_headers(url: str) -> McpServer:
    return McpServer(url=url, headers={"x-team": "mill"}, headers_env={"x-key": "MCP_KEY"}, timeout_s=30)


async def check_headers(settings: McpServer, here: Workplace) -> None:
    async with servers(web=settings) as offered:
        tools = await offered.tools()
        assert offered.problems == {}
        assert (await tools["web__header"].run({"name": "x-team"}, here)).output == "mill"
        assert (await tools["web__header"].run({"name": "x-key"}, here)).output == "k-123"


async def test_headers_over_http(here: Workplace, web: McpServer) -> None:
    assert web.url is not None
    await check_headers(with_headers(web.url), here)


async def test_an_sse_server(here: Workplace) -> None:
    with http_server(kind="sse") as (_, port):
        await check_headers(with_headers(f"http://127.0.0.1:{port}/sse"), here)


async def test_an_sse_server_is_greeted_with_the_handshake() -> None:
    with http_server(kind="sse") as (_, port):
        settings = McpServer(url=f"http://127.0.0.1:{port}/sse", timeout_s=30)
        connection = await McpConnection("home", settings, ENVIRONMENT, on_elicit=declined).opened()
        assert connection.client.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS
        await connection.close()


async def test_a_server_that_ends_at_a_request_it_does_not_know(here: Workplace) -> None:
    async with servers(s=old("strict")) as offered:
        tools = await offered.tools()
        assert offered.problems == {}
        assert await tools["s__change"].run({}, here) == ToolOutcome('{"ok":true}')


async def test_a_key_that_was_kept_in_the_file_is_sent(tmp_path: Path, here: Workplace) -> None:
    with http_server(kind="sse") as (_, port):
        kept = tmp_path / "env"
        kept.write_text("HASS_TOKEN=t-123\n")
        kept.chmod(0o600)
        home = {"url": f"http://127.0.0.1:{port}/sse", "key_env": "HASS_TOKEN"}
        (tmp_path / "config.yaml").write_text(json.dumps({"mcp": {"servers": {"home": home}}}))
        async with connected_mcp_servers(load({"PATH": PATH}, tmp_path)) as offered:
            assert offered is not None
            assert (await (await offered.tools())["home__token"].run({}, here)).output == "Bearer t-123"
