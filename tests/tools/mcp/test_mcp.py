"""MCP servers as tools, against real servers of the official SDK: over pipes and over HTTP on loopback."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra is not installed")

import httpx2
from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from tailrace.config.sections import McpServer
from tailrace.errors import ConfigError
from tailrace.messages import ToolFile
from tailrace.ports import Effect, Tool, ToolOutcome
from tailrace.tools.mcp.connection import _sdk_lines_logged, _Tail
from tailrace.tools.mcp.link import MAX_TOOLS
from tailrace.tools.mcp.servers import McpServers
from tailrace.tools.mcp.tools import MAX_NAME_CHARS, files_of, offered_name, text_of
from tools.tool_context import PATH, Workplace, is_alive

SERVER = str(Path(__file__).with_name("mcp_server.py"))
ODD = "odd.name/with everything that no provider takes in the name of a tool, and long"
ENVIRONMENT = {"PATH": PATH, "GIVEN": "yes", "KEPT": "s3cret", "MCP_KEY": "k-123"}


def over_pipes(*env_allow: str) -> McpServers:
    server = McpServer(command=(sys.executable, SERVER, "stdio"), env_allow=env_allow, timeout_s=30)
    return McpServers({"local": server}, environment=ENVIRONMENT)


@contextmanager
def http_server(
    port: int = 0, kind: str = "http", key_file: Path | None = None
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    env = {**os.environ, **({"KEY_FILE": str(key_file)} if key_file else {})}
    process = subprocess.Popen([sys.executable, SERVER, kind, str(port)], stdout=subprocess.PIPE, text=True, env=env)
    try:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def over_http(port: int, timeout_s: float = 30, *, trust: bool = False) -> McpServers:
    server = McpServer(url=f"http://127.0.0.1:{port}/mcp", key_env="MCP_KEY", timeout_s=timeout_s, trust=trust)
    return McpServers({"web": server}, environment=ENVIRONMENT)


def children() -> list[int]:
    """The processes that this one has started and that still run."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    return [int(pid) for pid in listed.read_text().split() if is_alive(int(pid))] if listed.exists() else []


async def check_the_tools(tools: dict[str, Tool], server: str, here: Workplace, *, trust: bool) -> None:
    """What is the same over either transport."""
    add, variable = tools[f"{server}__add"], tools[f"{server}__variable"]
    assert add.spec.description == "Adds two numbers."
    assert add.spec.parameters["required"] == ["a", "b"]
    assert (add.repeatable, add.parallel) == (True, True)
    assert add.effect({"a": 1}) == (Effect() if trust else Effect("external", f'{server}__add {{"a":1}}'))
    assert (variable.repeatable, variable.parallel) == (True, False)
    assert variable.effect({"name": "X"}) == Effect("external", f'{server}__variable {{"name":"X"}}')
    assert tools[f"{server}__die"].repeatable is False
    lacking = await add.run({"a": 1}, here)
    assert (lacking.ok, "required" in lacking.output.lower()) == (False, True)
    assert await add.run({"a": 2, "b": 3}, here) == ToolOutcome("5")
    both = await asyncio.gather(*(add.run({"a": n, "b": n}, here) for n in range(5)))
    assert [outcome.output for outcome in both] == ["0", "2", "4", "6", "8"]
    odd = tools[offered_name(server, ODD)]
    assert await odd.run({}, here) == ToolOutcome(
        "words\n[image/png]",
        files=(ToolFile(f"{re.sub('[^A-Za-z0-9_-]', '_', ODD)[:64]}-1.png", "image/png", b"\0\0\0"),),
    )
    refused = await tools[f"{server}__refuse"].run({}, here)
    assert (refused.ok, "not today" in refused.output) == (False, True)


async def test_the_logger_of_the_sdk_is_the_hosts_own_again_after_the_last_connection() -> None:
    logger = logging.getLogger("mcp")
    before = list(logger.handlers)
    async with over_pipes() as one, over_pipes() as other:
        assert await one.tools()
        assert await other.tools()
        assert len(logger.handlers) == len(before) + 1
    assert logger.handlers == before


async def test_a_server_over_pipes(here: Workplace) -> None:
    before = children()
    async with over_pipes("GIVEN") as servers:
        tools = await servers.tools()
        assert servers.problems == {}
        await check_the_tools(tools, "local", here, trust=False)
        variable = tools["local__variable"]
        assert (await variable.run({"name": "GIVEN"}, here)).output == "yes"
        assert (await variable.run({"name": "KEPT"}, here)).output == "(not set)"
    assert children() == before


async def test_a_server_over_http(here: Workplace) -> None:
    with http_server() as (_, port):
        async with over_http(port, trust=True) as servers:
            tools = await servers.tools()
            assert servers.problems == {}
            await check_the_tools(tools, "web", here, trust=True)
            assert (await tools["web__token"].run({}, here)).output == "Bearer k-123"


async def test_a_crash_is_one_failed_call_and_the_next_one_connects_anew(here: Workplace) -> None:
    async with over_pipes() as servers:
        tools = await servers.tools()
        crashed = await tools["local__die"].run({}, here)
        assert crashed == ToolOutcome(
            "the MCP server local was lost (out of memory, of all things); the next call connects anew", ok=False
        )
        assert await tools["local__add"].run({"a": 1, "b": 1}, here) == ToolOutcome("2")


async def test_an_http_server_that_went_away_and_came_back(here: Workplace) -> None:
    with http_server() as (process, port):
        async with over_http(port) as servers:
            add = (await servers.tools())["web__add"]
            process.kill()
            process.wait()
            gone = await add.run({"a": 1, "b": 1}, here)
            assert not gone.ok
            assert "the MCP server web" in gone.output
            with http_server(port):
                assert await add.run({"a": 1, "b": 1}, here) == ToolOutcome("2")


def test_what_the_sdk_logs_is_one_line_without_addresses(caplog: pytest.LogCaptureFixture) -> None:
    request = httpx2.Request("POST", "http://127.0.0.1/messages?key=s3cret")
    refused = httpx2.HTTPStatusError("for url ?key=s3cret", request=request, response=httpx2.Response(401))
    with _sdk_lines_logged():
        for failure in (refused, ExceptionGroup("several", [OSError("peer closed\nconnection")])):
            logging.getLogger("mcp.client.sse").error("Error in post_writer", exc_info=failure)
    ours = [(record.levelname, record.getMessage()) for record in caplog.records if record.name.startswith("tailrace")]
    assert ours == [
        ("WARNING", "MCP: Error in post_writer: HTTP 401 Unauthorized"),
        ("WARNING", "MCP: Error in post_writer: peer closed connection"),
    ]


async def test_a_call_that_takes_too_long_is_given_up(here: Workplace) -> None:
    async with over_pipes() as servers:
        tools = await servers.tools()
        assert tools
        servers._links["local"]._settings = McpServer(command=("unused",), timeout_s=0.3)
        outcome = await tools["local__never"].run({}, here)
        assert outcome == ToolOutcome("the MCP server local did not answer within 0.3 s", ok=False)
        servers._links["local"]._settings = McpServer(command=("unused",), timeout_s=30)
        assert (await tools["local__add"].run({"a": 1, "b": 1}, here)).ok  # the connection is still good
    assert here.reports == ["about to wait"]


async def test_cancelling_a_call_leaves_the_connection_good(here: Workplace) -> None:
    async with over_pipes() as servers:
        tools = await servers.tools()
        running = asyncio.ensure_future(tools["local__never"].run({}, here))
        await here.until(bool)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (await tools["local__add"].run({"a": 1, "b": 1}, here)).ok


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("/none/such-program",), "there is no program /none/such-program"),
        ((sys.executable, "-c", "import sys; sys.exit('no licence')"), "no licence"),
    ],
)
async def test_a_server_that_does_not_start_is_a_problem_and_not_the_end(command: tuple[str, ...], why: str) -> None:
    settings = {
        "broken": McpServer(command=command, timeout_s=20),
        "local": McpServer(command=(sys.executable, SERVER, "stdio")),
    }
    async with McpServers(settings, environment=ENVIRONMENT) as servers:
        tools = await servers.tools()
        assert "local__add" in tools
        assert list(servers.problems) == ["broken"]
        assert why in servers.problems["broken"]


async def test_a_server_that_never_greets_is_ended() -> None:
    before = children()
    silent = McpServer(command=(sys.executable, "-c", "import sys; sys.stdin.read()"), timeout_s=0.5)
    async with McpServers({"silent": silent}, environment=ENVIRONMENT) as servers:
        assert await servers.tools() == {}
        assert servers.problems == {"silent": "the MCP server silent did not answer within 0.5 s"}
        assert children() == before


async def test_leaving_while_connecting_leaves_nothing() -> None:
    before = children()
    async with over_pipes() as servers:
        asking = asyncio.ensure_future(servers.tools())
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    assert children() == before
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_without_servers_nothing_is_needed() -> None:
    async with McpServers({}, environment={}) as servers:
        assert await servers.tools() == {}


def test_naming_the_module_imports_no_sdk() -> None:
    code = "import sys, tailrace.tools.mcp.servers; print('mcp' in sys.modules, 'jsonschema' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["False", "False"]


@pytest.mark.parametrize(
    ("name", "settings", "why"),
    [
        ("a b", McpServer(command=("x",)), "mcp.servers.a b: a server's name is made of"),
        ("a", McpServer(), "mcp.servers.a: give either command or url"),
        ("a", McpServer(command=("x",), url="http://x/"), "mcp.servers.a: give either command or url"),
        ("a", McpServer(command=("x",), key_env="MCP_KEY"), "mcp.servers.a: key_env goes with url"),
        ("a", McpServer(url="http://x/", key_env="UNSET"), "mcp.servers.a.key_env: UNSET is not set"),
        ("a", McpServer(url="http://x/", headers_env={"X": "UNSET"}), "mcp.servers.a.headers_env.X: UNSET is not set"),
        ("a", McpServer(command=("x",), headers={"X": "1"}), "mcp.servers.a: headers, headers_env and transport go"),
    ],
)
def test_mistakes_in_the_config(name: str, settings: McpServer, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        McpServers({name: settings}, environment=ENVIRONMENT)
    assert str(caught.value).startswith(why)


def test_names_that_every_provider_takes() -> None:
    assert offered_name("github", "create_issue") == "github__create_issue"
    odd = offered_name("s", ODD)
    assert len(odd) == 64
    assert odd.startswith("s__odd_name_with_everything")
    assert offered_name("s", "a.b") != offered_name("s", "a/b") != offered_name("s", "a_b")
    assert offered_name("s" * 30, "t" * 100) != offered_name("s" * 30, "t" * 101)


def test_results_of_every_kind() -> None:
    blocks: list[ContentBlock] = [
        TextContent(text="a"),
        ResourceLink(name="n", uri="file:///x"),
        EmbeddedResource(resource=TextResourceContents(uri="file:///y", text="inside")),
    ]
    assert text_of(CallToolResult(content=blocks)) == "a\n[n: file:///x]\ninside"
    assert text_of(CallToolResult(content=[], structured_content={"a": 1})) == '{"a":1}'
    assert text_of(CallToolResult(content=[])) == "(done)"
    drawn = ImageContent(data="AAAA", mime_type="image/png")
    assert text_of(CallToolResult(content=[drawn], structured_content={"a": 1})) == '[image/png]\n{"a":1}'


# ── bounds ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("count", "page"), [(50_000, 50_000), (50_000, 100), (10**9, 1)])
async def test_L140_a_server_with_too_many_tools_is_cut_short_in_one_line(count: int, page: int) -> None:
    script = str(Path(__file__).with_name("many_tools_server.py"))
    settings = McpServer(command=(sys.executable, script, str(count), str(page)), timeout_s=60)
    async with McpServers({"many": settings}, environment=ENVIRONMENT) as servers:
        tools = await servers.tools()
    used = min(MAX_TOOLS, 100 * page)
    assert len(tools) == used
    told = f"the MCP server many lists more tools than can be offered; the first {used} are used"
    assert servers.problems == {"many": told}


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("file:///a/plot.png", "plot.png"),
        ("file:///a/", "a"),
        ("data:image/png;base64,AAAA/BBBB", "file"),
        ("x://a/" + "n" * 5000 + ".png", ("n" * 60 + ".png")[-MAX_NAME_CHARS:]),
    ],
)
def test_a_file_has_a_name_that_a_chat_can_show(uri: str, name: str) -> None:
    blob = BlobResourceContents(uri=uri, mime_type="image/png", blob="AAAA")
    result = CallToolResult(content=[EmbeddedResource(type="resource", resource=blob)])
    assert files_of(result.content, "t") == (ToolFile(name, "image/png", b"\0\0\0"),)


async def test_what_was_read_for_an_error_is_not_read_again_when_the_loop_says_that_it_is_there() -> None:
    failures: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: failures.append(context))
    tail = _Tail()
    tail.file.write("it broke\n")
    tail.file.flush()
    loop.call_soon(tail._read)  # as the loop has it in its queue when it has seen that the pipe can be read
    assert tail.text() == "it broke"
    await asyncio.sleep(0)
    tail.close()
    assert failures == []
