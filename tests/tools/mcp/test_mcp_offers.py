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

from mcp_types import Prompt, PromptArgument, Resource
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from tailrace.agent.service import TurnSpec
from tailrace.app import open_app
from tailrace.app.app import _mcp_servers
from tailrace.config.load import load
from tailrace.config.sections import McpServer
from tailrace.errors import TailraceError
from tailrace.messages import user
from tailrace.ports import Effect, ToolOutcome
from tailrace.testing.clock import driven
from tailrace.testing.provider import FaultyProvider, reply
from tailrace.testing.provider import call as tool_call
from tailrace.tools.mcp.connection import Listing, McpConnection
from tailrace.tools.mcp.prompts import arguments_of, usage_of
from tailrace.tools.mcp.resources import _resource_line
from tailrace.tools.mcp.servers import McpServers
from tools.mcp.mcp_server import PNG
from tools.mcp.test_mcp import ENVIRONMENT, SERVER, http_server
from tools.tool_context import PATH, Workplace

OLD = str(Path(__file__).with_name("old_server.py"))


def servers(roots: tuple[Path, ...] = (), **settings: McpServer) -> McpServers:
    return McpServers(settings, environment=ENVIRONMENT, roots=roots)


def sdk() -> McpServer:
    return McpServer(command=(sys.executable, SERVER, "stdio"), timeout_s=30)


def old(lie: str = "", **settings: Any) -> McpServer:
    return McpServer(command=(sys.executable, OLD, lie), timeout_s=30, **settings)


@pytest.fixture(scope="module")
def web() -> Iterator[McpServer]:
    """One server of the SDK for all tests that leave it as it was."""
    with http_server() as (_, port):
        yield McpServer(url=f"http://127.0.0.1:{port}/mcp", timeout_s=30)


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


async def test_resources_are_listed_and_read(here: Workplace, web: McpServer) -> None:
    async with servers(notes=web, old=old()) as offered:
        tools = await offered.tools()
        lists, reads = tools["mcp_list_resources"], tools["mcp_read_resource"]
        assert lists.spec.description.endswith("Servers: notes, old.")
        assert (reads.repeatable, reads.parallel, reads.effect({})) == (True, True, Effect())
        listed = (await lists.run({}, here)).output
        assert "- notes://today  today (text/plain): What happened today." in listed
        assert "- notes://days/{day}  on_day (text/plain, template): What happened on a day." in listed
        assert "old: 1 resources\n- old://x  x" in listed  # it has no method for templates

        async def read(uri: str, server: str = "notes") -> ToolOutcome:
            return await reads.run({"server": server, "uri": uri}, here)

        mark, _, text = (await read("notes://today")).output.partition("\n\n")
        assert (text, "The server wrote it, not the user" in mark) == ("The wheel turned 7 times.", True)
        assert (await read("notes://days/monday")).output.endswith("\n\nOn monday it rained.")
        every = (await read("notes://days/every")).output
        assert (len(every) < 51_000, "characters left out" in every) == (True, True)
        image = await read("notes://wheel.png")
        assert (
            image.output.partition("\n\n")[2],
            [(file.name, file.media_type, file.data) for file in image.files],
        ) == (
            "[notes://wheel.png: image/png]",
            [("wheel.png", "image/png", PNG)],
        )
        packed = await read("old://x", "old")
        assert (packed.output.partition("\n\n")[2], packed.files[0].data) == (
            "[old://x: given to the user, not readable here]",
            b"\0\0\0",
        )
        missing = await read("notes://nowhere")
        assert (missing.ok, missing.output.startswith("the MCP server notes says:")) == (False, True)
        assert await read("x", "nobody") == ToolOutcome(
            "There is no MCP server named 'nobody' here. There are: notes, old.", ok=False
        )


async def test_prompts_are_for_people_and_for_the_agent(here: Workplace, web: McpServer) -> None:
    async with servers(notes=web) as offered:
        tools = await offered.tools()
        listed = await tools["mcp_list_prompts"].run({}, here)
        assert listed.output == "notes: 1 prompts\n- notes:review code [tone]: Asks for a review."
        got = await tools["mcp_get_prompt"].run(
            {"server": "notes", "name": "review", "arguments": {"code": "x = 1"}}, here
        )
        marked, _, text = got.output.partition("\n\n")
        assert "The server wrote it, not the user" in marked
        assert text == "Review this in a kind tone: x = 1"
        assert await offered.prompt_usages() == {"notes:review code [tone]": "Asks for a review."}
        typed = await offered.prompt("notes:review", '"x = 1" very harsh')
        assert typed == "[prompt review of the MCP server notes]\n\nReview this in a very harsh tone: x = 1"
        for name, arguments, why in [
            ("notes:review", "", "missing code: /notes:review code [tone]"),
            ("notes:none", "", "notes has no prompt none; there are: review"),
            ("nobody:x", "", "no MCP server nobody with prompts; there are: notes"),
            ("notes:review", '"x', "the arguments cannot be read: no closing quotation"),
        ]:
            with pytest.raises(TailraceError, match=why.replace("[", r"\[")):
                await offered.prompt(name, arguments)


def test_a_servers_names_begin_no_lines_of_their_own() -> None:
    """Or a server could write a list of another one's into its own."""
    shown = _resource_line(Resource(uri="a://x\n- b://y", name="n\n- c", mime_type="t\n- d"))
    assert shown == "- a://x - b://y  n - c (t - d)"
    prompt = Prompt(name="p\n- other:q", arguments=[PromptArgument(name="a\nb")])
    assert usage_of("notes", prompt) == "notes:p - other:q [a b]"
    assert len(usage_of("notes", Prompt(name="x" * 1_000_000))) == 2000


class _Announcer:
    """A server that announces changes without end. `tools` is what it lists."""

    name = "liar"
    offers: frozenset[Listing] = frozenset({"tools"})

    def __init__(self) -> None:
        self.listed = 0

    async def tools(self) -> tuple[list[Any], str]:
        self.listed += 1
        return [], ""

    async def look(self) -> None:
        pass

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


def test_arguments_of_a_prompt_as_they_are_typed() -> None:
    names = [PromptArgument(name="a", required=True), PromptArgument(name="b")]
    prompt = Prompt(name="p", arguments=names)
    assert arguments_of(prompt, "1 2 3") == {"a": "1", "b": "2 3"}
    assert arguments_of(prompt, "b=2 1") == {"a": "1", "b": "2"}
    assert arguments_of(prompt, "x=2") == {"a": "x=2"}
    assert arguments_of(prompt, "") == {}
    with pytest.raises(TailraceError, match="p takes no argument '3'"):
        arguments_of(prompt, "a=1 b=2 3")


async def test_without_resources_or_prompts_there_are_no_tools_for_them() -> None:
    script = str(Path(__file__).with_name("many_tools_server.py"))
    async with servers(few=McpServer(command=(sys.executable, script, "1", "1"))) as offered:
        assert list(await offered.tools()) == ["few__tool0"]


# ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("settings", "by", "new", "count"), [(sdk(), "grow", "grown", 12), (old(), "change", "changed", 7)]
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
    """And a turn reads a resource as it calls any tool: nobody is asked."""
    read = tool_call("mcp_read_resource", {"server": "s", "uri": "old://x"})
    script = [reply(read, tool_call("s__change", {})), reply("Done."), reply("Again.")]
    async with FaultyProvider(script=script) as provider:
        settings = {
            "model": {"provider": "p", "name": "ok"},
            "providers": {"p": {"dialect": "chat", "base_url": provider.openai_url}},
            "mcp": {"servers": {"s": {"command": [sys.executable, OLD]}}},
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
    assert "not readable here" in provider.requests[1].body.decode()


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


async def test_what_the_agent_cannot_do_is_neither_offered_nor_done(here: Workplace, tmp_path: Path) -> None:
    async with servers((tmp_path,), plain=old(), told=old(roots=True)) as offered:
        tools = await offered.tools()

        async def asked(tool: str) -> Any:
            return json.loads((await tools[tool].run({}, here)).output)

        assert await asked("plain__elicit") == {
            "can": {},
            "got": {"code": -32600, "message": "Elicitation not supported"},
        }
        assert (await asked("plain__sample"))["got"]["message"] == "Sampling not supported"
        assert (await asked("plain__roots"))["got"]["message"] == "List roots not supported"
        told = await asked("told__roots")
        assert told["got"]["roots"] == [{"uri": tmp_path.as_uri(), "name": tmp_path.name}]
        assert list(told["can"]) == ["roots"]


async def test_its_log_is_in_ours(here: Workplace, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tailrace.tools.mcp"):
        async with servers(s=old()) as offered:
            assert (await (await offered.tools())["s__shout"].run({}, here)).output == '{"ok":true}'
    assert caplog.messages == ["the MCP server s: the mill is on fire"]


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
        assert "mcp_read_resource" in tools


async def test_headers_over_http(here: Workplace, web: McpServer) -> None:
    assert web.url is not None
    await check_headers(with_headers(web.url), here)


async def test_an_sse_server(here: Workplace) -> None:
    with http_server(kind="sse") as (_, port):
        await check_headers(with_headers(f"http://127.0.0.1:{port}/sse"), here)


async def test_an_sse_server_is_greeted_with_the_handshake() -> None:
    with http_server(kind="sse") as (_, port):
        settings = McpServer(url=f"http://127.0.0.1:{port}/sse", timeout_s=30)
        connection = await McpConnection("home", settings, ENVIRONMENT).opened()
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
        async with _mcp_servers(load({"PATH": PATH}, tmp_path), tmp_path) as offered:
            assert offered is not None
            assert (await (await offered.tools())["home__token"].run({}, here)).output == "Bearer t-123"
