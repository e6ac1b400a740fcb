"""`/ui/chat` judged by the AI SDK: tools that the page runs, and approvals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.node_driver import NodeDriver, node_driver
from clients.ui_chat_parts import APPROVING, RETURNED, parts_of
from integrations.ai_sdk.strict_chunks import check_chunks
from integrations.launch_tool import Launch
from server.http_server import running_server
from tailrace.events import ApprovalAnswered
from tailrace.testing.provider import Break, Offset, Scenario, call, reply

LAUNCH = (reply("I will.", call("launch", {"what": "rocket"})), reply("It flies."))


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeDriver]:
    with node_driver(tmp_path_factory.mktemp("driver"), "ui_chat.mjs") as running:
        yield running


async def test_a_tool_of_the_page_runs_there_and_its_result_goes_on_in_the_same_message(
    driver: NodeDriver, tmp_path: Path
) -> None:
    script = (
        reply("I look.", call("where_am_i", {"exact": True})),
        reply("And the time.", call("clock", {})),
        reply("Bergen, noon."),
        reply("You're welcome."),
    )
    async with running_server(tmp_path, *script) as server:
        shown = await driver.run(
            server.url,
            """
              const tools = {
                where_am_i: {description: "Where the user is.", inputSchema: {type: "object"}},
                clock: {description: "The time.", parameters: {jsonSchema: {type: "object"}}},
              };
              const asked = [];
              const chat = newChat({
                id: "own",
                transport: {body: () => ({tools})},
                sendAutomaticallyWhen: ai.lastAssistantMessageIsCompleteWithToolCalls,
                onToolCall: ({toolCall}) => {
                  asked.push(toolCall.input);
                  const {toolName: tool, toolCallId} = toolCall;
                  const broken = {state: "output-error", errorText: "no clock"}, found = {output: {city: "Bergen"}};
                  void chat.addToolOutput({tool, toolCallId, ...(tool === "clock" ? broken : found)});
                },
              });
              await chat.sendMessage({text: "Where am I?"});
              await until(chat, () => chat.status === "ready" && textOf(chat.lastMessage).includes("noon"));
              await chat.sendMessage({text: "Thanks."});
              return {asked, messages: chat.messages, chunks: chat.chunks, errors: chat.errors};
            """,
        )
        results = [
            message
            for request in server.provider.requests[1:3]
            for message in request.json()["messages"]
            if message["role"] == "tool"
        ]
        offered = [tool["function"]["name"] for tool in server.provider.requests[0].json()["tools"]]
    check_chunks(shown["chunks"])
    assert shown["errors"] == []
    assert shown["asked"] == [{"exact": True}, {}]
    assert {"where_am_i", "clock"} <= set(offered)
    assert len(shown["messages"]) == 4, "three runs are one message of the assistant's"
    assert parts_of(shown["messages"][1]) == [
        "step-start",
        ("text", "I look."),
        ("tool-where_am_i", "output-available", {"city": "Bergen"}),
        "step-start",
        ("text", "And the time."),
        ("tool-clock", "output-error", None),
        "step-start",
        ("text", "Bergen, noon."),
    ]
    assert [result["content"] for result in results] == ['{"city":"Bergen"}', '{"city":"Bergen"}', "Error: no clock"]


@pytest.mark.parametrize(("approved", "state"), [(True, "output-available"), (False, "output-denied")])
async def test_an_approval_is_asked_and_answered_by_the_tools_own_part(
    driver: NodeDriver, tmp_path: Path, approved: bool, state: str
) -> None:
    async with running_server(tmp_path, *LAUNCH, tools=(Launch(),)) as server:
        shown = await driver.run(
            server.url,
            f"""
              const chat = newChat({{id: "launch", {APPROVING}}});
              await chat.sendMessage({{text: "Launch!"}});
              const asked = structuredClone(chat.lastMessage);
              const tool = chat.lastMessage.parts.find((part) => part.type === "dynamic-tool");
              const between = chat.status;
              await chat.addToolApprovalResponse({{id: tool.approval.id, approved: given.approved}});
              await until(chat, () => chat.status === "ready" && textOf(chat.lastMessage).endsWith("flies."));
              return {{asked, between, messages: chat.messages, chunks: chat.chunks, errors: chat.errors}};
            """,
            approved=approved,
        )
        _, runs = await server.json("GET", "/runs")
    check_chunks(shown["chunks"], approvals=True)
    assert (shown["between"], shown["errors"]) == ("ready", [])
    assert shown["asked"]["metadata"]["status"] == "waiting"
    assert [part["state"] for part in shown["asked"]["parts"] if part["type"] == "dynamic-tool"] == [
        "approval-requested"
    ]
    data = next(part["data"] for part in shown["asked"]["parts"] if part["type"] == "data-approval")
    assert (data["command"], data["toolName"]) == ("launch it", "launch")
    [_, answer] = shown["messages"]
    kept = "launched rocket" if approved else None
    assert parts_of(answer) == [
        "step-start",
        ("text", "I will."),
        ("launch", state, kept),
        "data-approval",
        "step-start",
        ("text", "It flies."),
    ]
    assert next(part for part in answer["parts"] if part["type"] == "dynamic-tool")["approval"]["approved"] is approved
    assert answer["metadata"]["status"] == "completed"
    assert len(runs["data"]) == 1, "the run that asked goes on"


async def test_a_call_that_breaks_off_is_made_anew_in_its_part(driver: NodeDriver, tmp_path: Path) -> None:
    """Arguments come in pieces; the page makes the call once, when it is whole, and answers it by itself."""
    broken = Scenario(
        reply=reply("I ask.", call("where", {"of": "x" * 200})), broken=Break("cut", Offset(70, per_cent=True))
    )
    script = (broken, reply("I ask.", call("where", {"of": "me"})), reply("Oslo."))
    async with running_server(tmp_path, *script) as server:
        shown = await driver.run(
            server.url,
            """
              const made = [];
              const chat = newChat({
                id: "c",
                transport: {body: {tools: {where: {description: "A place.", inputSchema: {type: "object"}}}}},
                sendAutomaticallyWhen: ai.lastAssistantMessageIsCompleteWithToolCalls,
                onToolCall: ({toolCall}) => {
                  made.push(toolCall.input);
                  void chat.addToolOutput({tool: "where", toolCallId: toolCall.toolCallId, output: "Oslo"});
                },
              });
              await chat.sendMessage({text: "Where am I?"});
              await until(chat, () => chat.status === "ready" && /Oslo/.test(textOf(chat.lastMessage)));
              return {messages: chat.messages, chunks: chat.chunks, errors: chat.errors, made};
            """,
        )
    check_chunks(shown["chunks"])
    assert shown["made"] == [{"of": "me"}]
    assert "xxx" in "".join(chunk.get("inputTextDelta", "") for chunk in shown["chunks"])
    assert shown["errors"] == []
    assert parts_of(shown["messages"][-1]) == [
        "step-start",
        ("text", "I ask."),
        ("tool-where", "output-available", "Oslo"),
        "step-start",
        ("text", "Oslo."),
    ]


async def test_an_approval_that_is_answered_elsewhere_is_seen_by_resuming(driver: NodeDriver, tmp_path: Path) -> None:
    """And a page that is loaded while the question is open has it."""
    async with running_server(tmp_path, *LAUNCH, tools=(Launch(),)) as server:
        asked = await driver.run(
            server.url,
            """
              await newChat({id: "launch"}).sendMessage({text: "Launch!"});
              const other = newChat({name: "other", id: "launch"});
              await other.resumeStream();
              return other.lastMessage;
            """,
        )
        data = next(part["data"] for part in asked["parts"] if part["type"] == "data-approval")
        server.provider.flowing.clear()  # what has ended cannot be resumed
        status, _ = await server.json(
            "POST", f"/runs/{data['runId']}/approval", {"approval_id": data["approvalId"], "decision": "session"}
        )
        assert status == 200
        async for batch in server.app.journal.tail(data["runId"]):
            if any(isinstance(entry.event, ApprovalAnswered) for entry in batch):
                break
        await driver.run(
            server.url,
            """
              const chat = chats.get("other");
              chat.resumeStream();
              await until(chat, () => chat.lastMessage.parts.some((part) => part.data?.decision));
            """,
        )
        server.provider.flowing.set()
        shown = await driver.run(
            server.url,
            """
              const chat = chats.get("other");
              await until(chat, () => chat.status === "ready");
            """
            + RETURNED,
        )
    assert parts_of(shown["messages"][0]) == [
        "step-start",
        ("text", "I will."),
        ("launch", "output-available", "launched rocket"),
        "data-approval",
        "step-start",
        ("text", "It flies."),
    ]
    assert shown["messages"][0]["parts"][3]["data"]["decision"] == "session"
    assert (len(shown["messages"]), shown["errors"]) == (1, [])
