"""Whole turns in one `tailrace acp` process: tools, approvals, cancelling, errors, options, what a prompt can hold."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from acp.exceptions import RequestError
from acp.schema import (
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    EnvVariable,
    ImageContentBlock,
    McpServerStdio,
    ResourceContentBlock,
    SseMcpServer,
    TextContentBlock,
    TextResourceContents,
)

from integrations.acp.acp_editor import (
    LONGEST_S,
    AgentProcess,
    model_calls,
    next_model_call,
    tailrace_acp,
    write_config,
)
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import open_app
from tailrace.config.load import load
from tailrace.messages import user
from tailrace.testing.provider import FaultyProvider, call, reply, think

pytestmark = pytest.mark.asyncio(loop_scope="module")
MCP_SERVER = Path(__file__).parents[2] / "tools/mcp/mcp_server.py"
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
DANGER = "rm -rf doomed"
TURNS = {
    "reads": [reply(think("Let me see."), "I look.", call("read_file", {"path": "notes.txt"})), reply("It says rain.")],
    "removes": [reply("Removing.", call("terminal", {"command": DANGER})), reply("That is that.")],
    "removes-more": [reply(call("terminal", {"command": "rm -rf doomed more"})), reply("That is that.")],
    "sleeps": [reply("Waiting.", call("terminal", {"command": "echo begun; sleep 60"})), reply("Awake.")],
    "naps": [
        reply("Waiting.", call("terminal", {"command": "until [ -e enough ]; do sleep 0.05; done"})),
        reply("Awake."),
    ],
    "writes": [reply(call("write_file", {"path": "new/out.txt", "content": "fresh\n"})), reply("Written.")],
    "adds": [reply(call("tests_server__add", {"a": 2, "b": 3})), reply("Five.")],
    "long": [reply(" ".join(f"word{number}" for number in range(200)))],
}


class Room(NamedTuple):
    agent: AgentProcess
    provider: FaultyProvider


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def room(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Room]:
    base = tmp_path_factory.mktemp("acp")
    directory = base / "project"
    directory.mkdir()
    (directory / "notes.txt").write_text("rain\n", encoding="utf-8")
    async with FaultyProvider(turns=TURNS) as provider:
        approvals = {"timeout_s": 5}
        write_config(base / "home", provider.openai_url, agent={"max_turns": 2}, approvals=approvals)
        async with tailrace_acp(base / "home", directory) as agent:
            yield Room(agent, provider)


@pytest.fixture(autouse=True)
def _forget(room: Room) -> None:
    editor = room.agent.editor
    editor.updates.clear()
    editor.permissions.clear()
    editor.decide, editor.silent = (lambda _: "once"), False


def doomed(room: Room) -> Path:
    directory = room.agent.directory / "doomed"
    directory.mkdir(exist_ok=True)
    return directory


async def refused(work: Any) -> tuple[int, str]:
    with pytest.raises(RequestError) as caught:
        async with asyncio.timeout(LONGEST_S):
            await work
    return caught.value.code, str(caught.value)


async def test_it_says_what_it_can_do(room: Room) -> None:
    said = room.agent.initialized
    assert said is not None
    told = said.model_dump(by_alias=True, exclude_none=True)
    assert told["protocolVersion"] == 1
    assert told["agentInfo"]["name"] == "tailrace"
    able = told["agentCapabilities"]
    assert able["loadSession"]
    assert able["promptCapabilities"] == {"image": True, "audio": False, "embeddedContext": True}
    assert able["mcpCapabilities"] == {"http": True, "sse": True, "acp": False}
    assert set(able["sessionCapabilities"]) == {"list", "resume", "close"}
    assert told["authMethods"] == []
    newer = await room.agent.agent.initialize(protocol_version=99)
    assert newer.protocol_version == 1


async def test_several_turns_with_a_tool(room: Room) -> None:
    agent, editor = room.agent, room.agent.editor
    session = await agent.session("reads")
    first = await agent.prompt(session, "What do the notes say?")
    assert (first.stop_reason, first.usage.output_tokens > 0) == ("end_turn", True)
    assert editor.text(session) == "I look.It says rain."
    assert editor.text(session, "agent_thought_chunk") == "Let me see."
    (shown,) = editor.calls(session)
    notes = str(agent.directory / "notes.txt")
    assert (shown["title"], shown["kind"], shown["status"]) == ("Read notes.txt", "read", "completed")
    assert shown["locations"] == [{"path": notes}]
    assert "rain" in shown["content"][0]["content"]["text"]
    assert editor.of("session_info_update", session)[0]["title"] == "What do the notes say?"
    assert editor.of("user_message_chunk") == []  # the editor shows its user's words itself
    await agent.agent.set_config_option(config_id="model", session_id=session, value="test/ok")
    await agent.prompt(session, "And now?")
    said = [message for message in model_calls(room.provider)[-1].json()["messages"] if message["role"] == "user"]
    assert [message["content"] for message in said] == ["What do the notes say?", "And now?"]


@pytest.mark.parametrize(("option", "gone"), [("once", True), ("deny", False), (None, False), ("nonsense", False)])
async def test_an_approval_is_asked_in_the_editor(room: Room, option: str | None, gone: bool) -> None:
    agent, editor = room.agent, room.agent.editor
    target = doomed(room)
    editor.decide = lambda _: option
    session = await agent.session("removes")
    assert (await agent.prompt(session)).stop_reason == "end_turn"
    ((tool_call, options),) = editor.permissions
    assert DANGER in tool_call.content[0].content.text
    assert [one.kind for one in options] == ["allow_once", "allow_always", "allow_always", "reject_once"]
    assert target.exists() is not gone
    (shown,) = editor.calls(session)
    assert shown["toolCallId"] == tool_call.tool_call_id
    assert shown["status"] == ("completed" if gone else "failed")


async def test_always_holds_in_another_session(room: Room) -> None:
    agent, editor = room.agent, room.agent.editor
    editor.decide = lambda _: "always"
    for _ in range(2):
        target = doomed(room)
        session = await agent.session("removes-more")
        await agent.prompt(session)
        assert not target.exists()
    assert len(editor.permissions) == 1


async def test_no_answer_in_time_means_no(room: Room) -> None:
    agent, editor = room.agent, room.agent.editor
    target = doomed(room)
    editor.silent = True
    session = await agent.session("removes")
    assert (await agent.prompt(session)).stop_reason == "end_turn"
    assert target.exists()
    assert editor.calls(session)[0]["status"] == "failed"


async def test_yolo_asks_nothing_and_both_kinds_of_options_agree(room: Room) -> None:
    agent, editor = room.agent, room.agent.editor
    made = await agent.agent.new_session(cwd=str(agent.directory), mcp_servers=[])
    assert [mode.id for mode in made.modes.available_modes] == ["ask", "yolo"]
    options = {option.id: option for option in made.config_options}
    assert (options["mode"].current_value, options["model"].current_value) == ("ask", "test/ok")
    assert "test/reads" in [option.value for option in options["model"].options]
    session = made.session_id
    await agent.agent.set_session_mode(session_id=session, mode_id="yolo")
    await editor.until(lambda _: editor.of("config_option_update", session))
    told = editor.of("config_option_update", session)[0]["configOptions"]
    assert [option["currentValue"] for option in told] == ["yolo", "test/ok"]
    changed = await agent.agent.set_config_option(config_id="model", session_id=session, value="test/removes")
    assert [option.current_value for option in changed.config_options] == ["yolo", "test/removes"]
    target = doomed(room)
    await agent.prompt(session)
    assert (target.exists(), editor.permissions) == (False, [])
    await agent.agent.set_config_option(config_id="mode", session_id=session, value="ask")
    await editor.until(lambda _: editor.of("current_mode_update", session))
    assert editor.of("current_mode_update", session)[0]["currentModeId"] == "ask"


async def test_options_that_are_none_are_refused(room: Room) -> None:
    agent = room.agent.agent
    session = await room.agent.session()
    assert await refused(agent.set_session_mode(session_id=session, mode_id="wild")) == (
        -32602,
        "there is no mode 'wild'; there are ask, yolo",
    )
    code, _ = await refused(agent.set_config_option(config_id="colour", session_id=session, value="red"))
    assert code == -32602
    code, said = await refused(agent.set_config_option(config_id="model", session_id=session, value="nobody/x"))
    assert "no such provider" in said
    assert (await refused(agent.set_session_mode(session_id="ses_none", mode_id="ask")))[0] == -32002


async def test_cancel_in_the_middle_of_a_stream(room: Room) -> None:
    agent, editor = room.agent, room.agent.editor
    session = await agent.session("long+stall@50%")
    already = len(room.provider.requests)
    turn = asyncio.create_task(agent.prompt(session))
    await editor.until(lambda _: "word9" in editor.text(session))
    request = await next_model_call(room.provider, already)
    await agent.agent.cancel(session_id=session)
    assert (await turn).stop_reason == "cancelled"
    await asyncio.wait_for(request.over.wait(), LONGEST_S)
    assert request.disconnected_at is not None  # the provider's connection is closed too
    await agent.agent.set_config_option(config_id="model", session_id=session, value="test/ok")
    assert (await agent.prompt(session)).stop_reason == "end_turn"


async def test_cancel_ends_a_command_and_an_open_question(room: Room) -> None:
    agent, editor = room.agent, room.agent.editor
    session = await agent.session("sleeps", mode="yolo")
    turn = asyncio.create_task(agent.prompt(session))
    await editor.until(lambda _: [one for one in editor.calls(session) if one["status"] == "in_progress"])
    await agent.agent.cancel(session_id=session)
    assert (await turn).stop_reason == "cancelled"
    assert editor.calls(session)[0]["status"] == "failed"
    editor.silent = True
    target = doomed(room)
    session = await agent.session("removes")
    turn = asyncio.create_task(agent.prompt(session))
    await editor.until(lambda _: editor.permissions)
    await agent.agent.cancel(session_id=session)
    assert (await turn).stop_reason == "cancelled"
    assert target.exists()


@pytest.mark.parametrize("answered_in", ["editor", "elsewhere"])
async def test_N168_a_question_of_another_run_is_asked_in_the_editor_and_taken_away(
    room: Room, answered_in: str
) -> None:
    agent, editor = room.agent, room.agent.editor
    editor.decide, editor.silent = (lambda _: "once"), answered_in == "elsewhere"
    session = await agent.session("reads")
    directory = doomed(room)
    async with open_app(load({}, agent.directory.parent / "home"), directory=agent.directory) as app:
        spec = TurnSpec(user("Tidy the mill."), model="test/removes", requester="ann", reachable=True)
        run = await app.agents.submit(spec)
        await editor.until(lambda _: editor.permissions)
        ((tool_call, _),) = editor.permissions
        assert (tool_call.title, DANGER in tool_call.content[0].content.text) == (
            "another run asks: Tidy the mill.",
            True,
        )
        if answered_in == "elsewhere":
            [waiting] = await app.waiting.listed()
            await app.agents.answer(run.id, waiting.asked.approval_id, "deny", by="ann")
        assert (await app.agents.finished(run.id)).status == "completed"
        told = "completed" if answered_in == "editor" else "failed"
        await editor.until(lambda _: [one for one in editor.calls(session) if one["status"] == told])
    assert directory.exists() == (answered_in == "elsewhere")


async def test_N165_a_prompt_during_a_prompt_is_a_message_for_the_turn(room: Room) -> None:
    agent, editor = room.agent, room.agent.editor
    session = await agent.session("naps", mode="yolo")
    turn = asyncio.create_task(agent.prompt(session))
    await editor.until(lambda _: [one for one in editor.calls(session) if one["status"] == "in_progress"])
    steer = asyncio.create_task(agent.prompt(session, "Also count."))
    home = agent.directory.parent / "home"
    async with open_app(load({}, home)) as app:
        [run] = await app.journal.runs(session=session)
        async for _ in app.journal.tail(run.id):
            if await app.steering.list(run.id):
                break
    (room.agent.directory / "enough").touch()
    assert [(await one).stop_reason for one in (turn, steer)] == ["end_turn", "end_turn"]
    asked = model_calls(room.provider)[-1].json()["messages"]
    assert [message["content"] for message in asked if message["role"] == "user"] == ["Go on.", "Also count."]


async def test_a_cancel_right_behind_its_prompt(room: Room) -> None:
    agent = room.agent
    session = await agent.session("long+pace@0.05")
    turn = asyncio.create_task(agent.prompt(session))
    await asyncio.sleep(0)  # the prompt is on its way
    await agent.agent.cancel(session_id=session)
    assert (await turn).stop_reason == "cancelled"


async def test_a_cancel_while_a_server_of_the_editor_does_not_answer(room: Room) -> None:
    agent = room.agent
    deaf = McpServerStdio(name="deaf", command="/bin/sleep", args=["300"], env=[])
    session = await agent.session("ok", mcp_servers=[deaf])
    turn = asyncio.create_task(agent.prompt(session))
    await agent.editor.until(lambda _: agent.editor.of("session_info_update", session))
    asked = len(model_calls(room.provider))
    await agent.agent.cancel(session_id=session)
    assert (await turn).stop_reason == "cancelled"
    assert len(model_calls(room.provider)) == asked
    await agent.agent.close_session(session_id=session)


async def test_a_providers_error_is_an_error_and_the_agent_lives_on(room: Room) -> None:
    agent = room.agent
    session = await agent.session("status-401")
    code, said = await refused(agent.prompt(session))
    assert (code, "401" in said or "key" in said.lower()) == (-32603, True), said
    await agent.agent.set_config_option(config_id="model", session_id=session, value="test/ok")
    assert (await agent.prompt(session)).stop_reason == "end_turn"


async def test_stop_reasons_of_turns_that_end_early(room: Room) -> None:
    agent, editor = room.agent, room.agent.editor
    session = await agent.session("reads")
    room.provider.extend(*[reply(call("read_file", {"path": "notes.txt"}))] * 2)
    assert (await agent.prompt(session)).stop_reason == "max_turn_requests"
    assert "agent.max_turns" in editor.text(session)
    room.provider.extend(reply("Half a", stop="length"))
    assert (await agent.prompt(session)).stop_reason == "max_tokens"
    room.provider.extend(reply("Half a", stop="filter"))
    assert (await agent.prompt(session)).stop_reason == "refusal"


async def test_a_prompt_with_an_image_a_file_and_links(room: Room) -> None:
    agent = room.agent
    session = await agent.session("ok")
    uri = f"file://{agent.directory}/notes.txt"
    await agent.agent.prompt(
        session_id=session,
        prompt=[
            TextContentBlock(type="text", text="Look:"),
            ImageContentBlock(type="image", data=PNG, mime_type="image/png"),
            EmbeddedResourceContentBlock(type="resource", resource=TextResourceContents(uri=uri, text="unsaved rain")),
            EmbeddedResourceContentBlock(
                type="resource", resource=BlobResourceContents(uri="file:///a.bin", blob=PNG, mime_type="x/y")
            ),
            ResourceContentBlock(type="resource_link", name="notes.txt", uri=uri),
            ResourceContentBlock(type="resource_link", name="The page", uri="https://example.org/a"),
        ],
    )
    (content,) = [m["content"] for m in model_calls(room.provider)[-1].json()["messages"] if m["role"] == "user"]
    assert [part for part in content if part["type"] != "text"] == [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    ]
    text = "".join(part.get("text", "") for part in content)
    assert f'<file path="{agent.directory}/notes.txt">\nunsaved rain\n</file>' in text
    assert f"[{agent.directory}/notes.txt]" in text
    assert "[The page: https://example.org/a]" in text
    assert "[/a.bin: x/y, not readable here]" in text
    agent.editor.updates.clear()
    await agent.agent.load_session(session_id=session, cwd=str(agent.directory), mcp_servers=[])
    blocks = [update["content"] for update in agent.editor.of("user_message_chunk", session)]
    assert {"type": "image", "data": PNG, "mimeType": "image/png"} in blocks


async def test_prompts_that_cannot_be_read_are_refused(room: Room) -> None:
    agent = room.agent
    session = await agent.session("ok")
    for block in (
        ImageContentBlock(type="image", data=PNG, mime_type="image/tiff"),
        ImageContentBlock(type="image", data="%%%", mime_type="image/png"),
        TextContentBlock(type="text", text="  "),
    ):
        assert (await refused(agent.agent.prompt(session_id=session, prompt=[block])))[0] == -32602
    assert (await refused(agent.prompt("ses_none")))[0] == -32002
    assert (await refused(agent.agent.new_session(cwd="relative", mcp_servers=[])))[0] == -32602
    assert (await refused(agent.agent.load_session(session_id="x", cwd="/", mcp_servers=[])))[0] == -32002


async def test_mcp_servers_of_the_editor(room: Room) -> None:
    agent, editor = room.agent, room.agent.editor
    servers = [
        McpServerStdio(
            name="tests server",
            command=sys.executable,
            args=[str(MCP_SERVER), "stdio"],
            env=[EnvVariable(name="GIVEN", value="by the editor")],
        ),
        SseMcpServer(type="sse", name="old", url="http://127.0.0.1:9", headers=[]),
    ]
    session = await agent.session("adds", mcp_servers=servers)
    await agent.prompt(session)
    (shown,) = editor.calls(session)
    assert (shown["status"], shown["content"][0]["content"]["text"]) == ("completed", "5")
    assert "the MCP server old cannot be reached" in editor.text(session, "agent_thought_chunk")
    other = await agent.session("adds")
    await agent.prompt(other)
    assert editor.calls(other)[0]["status"] == "failed"  # they belong to the session


async def test_a_written_file_is_a_diff(room: Room) -> None:
    agent, editor = room.agent, room.agent.editor
    session = await agent.session("writes")
    await agent.prompt(session)
    path = agent.directory / "new/out.txt"
    assert path.read_text(encoding="utf-8") == "fresh\n"
    (shown,) = editor.calls(session)
    assert (shown["kind"], shown["locations"]) == ("edit", [{"path": str(path)}])
    assert shown["content"] == [{"type": "diff", "path": str(path), "newText": "fresh"}]
    path.write_text("stale\n", encoding="utf-8")
    session = await agent.session("writes")
    await agent.prompt(session)
    assert editor.calls(session)[0]["content"][0]["oldText"] == "stale\n"


async def test_sessions_are_listed_loaded_resumed_and_closed(room: Room) -> None:
    agent, editor = room.agent, room.agent.editor
    session = await agent.session("reads")
    await agent.prompt(session, "A question to find again")
    listed = await agent.agent.list_sessions(cwd=str(agent.directory))
    newest = listed.sessions[0]
    assert (newest.session_id, newest.title) == (session, "A question to find again")
    assert (await agent.agent.list_sessions(cwd="/elsewhere")).sessions == []
    await agent.agent.close_session(session_id=session)
    assert (await refused(agent.prompt(session)))[0] == -32002
    editor.updates.clear()
    loaded = await agent.agent.load_session(session_id=session, cwd=str(agent.directory), mcp_servers=[])
    assert loaded.config_options[1].current_value == "test/reads"
    assert editor.text(session, "user_message_chunk") == "A question to find again"
    assert editor.text(session) == "I look.It says rain."
    assert [call["status"] for call in editor.calls(session)] == ["completed"]
    editor.updates.clear()
    await agent.agent.resume_session(session_id=session, cwd=str(agent.directory), mcp_servers=[])
    assert editor.updates == []
    assert (await agent.prompt(session)).stop_reason == "end_turn"


async def test_a_session_of_the_terminal_goes_on_in_the_editor(room: Room) -> None:
    agent, editor = room.agent, room.agent.editor
    async with open_app(load({"TAILRACE_HOME": str(agent.directory.parent / "home")})) as app:
        run = await app.agents.submit(TurnSpec(user("From the terminal."), requester="cli"), session="ses_chat")
        await app.agents.finished(run.id)
    await agent.agent.load_session(session_id="ses_chat", cwd=str(agent.directory), mcp_servers=[])
    assert editor.text("ses_chat", "user_message_chunk") == "From the terminal."
    assert editor.text("ses_chat")
    await agent.prompt("ses_chat", "From the editor.")
    said = [message for message in model_calls(room.provider)[-1].json()["messages"] if message["role"] == "user"]
    assert [message["content"] for message in said] == ["From the terminal.", "From the editor."]


async def test_unknown_methods_and_wrong_params(room: Room) -> None:
    connection = room.agent.agent._conn
    assert (await refused(connection.send_request("session/fly", {})))[0] == -32601
    code, said = await refused(connection.send_request("session/new", {"cwd": 5, "mcpServers": "none"}))
    assert (code, "cwd" in said) == (-32602, True)
    assert (await refused(connection.send_request("session/prompt", [1])))[0] == -32602
    await connection.send_notification("session/unheard", {"a": 1})
    await connection.send_notification("session/cancel", {"sessionId": "ses_none"})
    assert json.dumps((await room.agent.agent.list_sessions()).model_dump(mode="json"))
