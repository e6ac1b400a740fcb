"""`/ui/chat` judged by the AI SDK: its transport, its chunk schema and the `Chat` that `useChat` is made of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clients.node_driver import NodeDriver, node_driver
from server.frontends.launch_tool import Launch
from server.frontends.strict_chunks import check_chunks
from server.http_server import running_server
from tailrace.events import ApprovalAnswered
from tailrace.testing.provider import Break, Offset, Scenario, call, reply, say, think

TEXT = "One two three four five six seven eight nine ten"
STALLED = Scenario(reply=reply(TEXT), broken=Break("stall", Offset(60, per_cent=True)))
WAIT = "call: {idle_timeout_s: 600}\n"
RETURNED = (
    "return {messages: chat.messages, chunks: chat.chunks, errors: chat.errors, data: chat.data, status: chat.status};"
)
LAUNCH = (reply("I will.", call("launch", {"what": "rocket"})), reply("It flies."))
APPROVING = "sendAutomaticallyWhen: ai.lastAssistantMessageIsCompleteWithApprovalResponses"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeDriver]:
    with node_driver(tmp_path_factory.mktemp("driver"), "ui_chat.mjs") as running:
        yield running


def parts_of(message: dict[str, Any]) -> list[Any]:
    """What a message shows, in short."""
    shown: list[Any] = []
    for part in message["parts"]:
        match part["type"]:
            case "text" | "reasoning":
                assert part["state"] == "done"
                shown.append((part["type"], part["text"]))
            case "dynamic-tool":
                shown.append((part["toolName"], part["state"], part.get("output", part.get("errorText"))))
            case kind if kind.startswith("tool-"):
                shown.append((kind, part["state"], part.get("output")))
            case kind:
                shown.append(kind)
    return shown


async def test_several_turns_with_tools_reasoning_and_sources(driver: NodeDriver, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("rain", encoding="utf-8")
    script = (
        reply(think("Hm."), "Let me see.", call("read_file", {"path": "notes.txt"})),
        reply("Rain."),
        reply(call("read_file", {"path": "none.txt"})),
        reply("There is no such file."),
    )
    async with running_server(tmp_path, *script) as server:
        chat = """
          const chat = newChat({id: "chat/ä 1"});
          await chat.sendMessage({text: "Weather?"});
          await chat.sendMessage({text: "And tomorrow?"});
        """
        shown = await driver.run(server.url, chat + RETURNED)
        asked = [message["role"] for message in server.provider.requests[2].json()["messages"]]
        _, runs = await server.json("GET", "/runs", params={"session": "chat/ä 1"})
    check_chunks(shown["chunks"])
    question, answer, second, last = shown["messages"]
    assert (shown["status"], shown["errors"]) == ("ready", [])
    assert parts_of(answer) == [
        "step-start",
        ("reasoning", "Hm."),
        ("text", "Let me see."),
        ("read_file", "output-available", "     1\train"),
        "step-start",
        ("text", "Rain."),
    ]
    assert [part[:2] for part in parts_of(last)[1:2]] == [("read_file", "output-error")]
    assert parts_of(last)[-1] == ("text", "There is no such file.")
    assert [message["role"] for message in (question, second)] == ["user", "user"]
    assert asked[1:] == ["user", "assistant", "tool", "assistant", "user"], "the history is not told twice"
    newest, oldest = runs["data"]
    assert answer["id"] == f"msg_{oldest['id'].removeprefix('run_')}"
    assert answer["metadata"]["runId"] == oldest["id"]
    assert last["metadata"]["status"] == newest["status"] == "completed"
    usage = answer["metadata"]["usage"]
    assert usage["inputTokens"] == oldest["usage"]["input_tokens"]
    assert usage["totalTokens"] == oldest["usage"]["input_tokens"] + oldest["usage"]["output_tokens"]
    assert answer["metadata"]["model"] == "faulty/ok"


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


async def test_a_stop_of_the_page_and_of_the_chat(driver: NodeDriver, tmp_path: Path) -> None:
    async with running_server(tmp_path, STALLED, reply("Eleven."), config=WAIT) as server:
        shown = await driver.run(
            server.url,
            """
              const chat = newChat({id: "stopped"});
              const sent = chat.sendMessage({text: "Count."});
              await until(chat, () => chat.messages.length > 1 && textOf(chat.lastMessage).includes("three"));
              await chat.stop();
              await sent;
              const other = newChat({name: "other", id: "stopped"});
              const resumed = other.resumeStream();
              await until(other, () => other.lastMessage && textOf(other.lastMessage).includes("three"));
              const stop = await fetch(`${url}/ui/chat/stopped/stop`, {method: "POST"});
              await resumed;
              const again = await fetch(`${url}/ui/chat/stopped/stop`, {method: "POST"});
              const nothing = await fetch(`${url}/ui/chat/stopped/stream`);
              await chat.sendMessage({text: "Go on."});
              return {
                said: [await stop.json(), await again.json(), nothing.status],
                messages: chat.messages, other: other.lastMessage, chunks: other.chunks, status: other.status,
              };
            """,
        )
        _, runs = await server.json("GET", "/runs")
        asked = server.provider.requests[1].json()["messages"]
    check_chunks(shown["chunks"])
    newest, oldest = runs["data"]
    assert oldest["status"] == "stopped"
    assert shown["said"] == [{"id": "stopped", "run": oldest["id"]}, {"id": "stopped", "run": None}, 204]
    assert shown["chunks"][-1] == {"type": "abort"}
    assert (shown["status"], shown["other"]["metadata"]["status"]) == ("ready", "stopped")
    assert parts_of(shown["other"]) == ["step-start", ("text", oldest["output"])]
    assert asked[2]["content"] == oldest["output"], "what was seen is what the model is told it said"
    assert parts_of(shown["messages"][-1]) == ["step-start", ("text", "Eleven.")]
    assert newest["status"] == "completed"


async def test_what_the_user_reads_of_an_error(driver: NodeDriver, tmp_path: Path) -> None:
    async with running_server(tmp_path, "status-400", "status-400", reply("Better.")) as server:
        shown = await driver.run(
            server.url,
            """
              const chat = newChat({id: "errors"});
              await chat.sendMessage({text: "Hi."});
              const failed = [chat.status, chat.error.message, chat.lastMessage.metadata];
              await chat.regenerate();
              const better = structuredClone(chat.messages);
              await chat.sendMessage({text: "Hi."}, {body: {model: "nobody/knows"}});
              const unknown = [chat.status, chat.error.message];
              return {failed, better, unknown};
            """,
        )
        _, runs = await server.json("GET", "/runs")
    status, message, metadata = shown["failed"]
    assert status == "error"
    assert message == runs["data"][1]["error"]["message"]
    assert (metadata["status"], metadata["finishReason"]) == ("failed", "error")
    assert [message["role"] for message in shown["better"]] == ["user", "assistant"]
    assert parts_of(shown["better"][1]) == ["step-start", ("text", "Better.")]
    assert shown["unknown"][0] == "error"
    assert "no such provider" in shown["unknown"][1]
    assert not shown["unknown"][1].startswith("{"), "the user reads it as it is"


async def test_regenerating_and_editing_leave_out_what_they_replace(driver: NodeDriver, tmp_path: Path) -> None:
    script = [reply(f"Answer {number}.") for number in range(1, 6)]
    async with running_server(tmp_path, *script) as server:
        shown = await driver.run(
            server.url,
            """
              const chat = newChat({id: "edits"});
              await chat.sendMessage({text: "One?"});
              await chat.sendMessage({text: "Two?"});
              await chat.regenerate();
              await chat.sendMessage({text: "Uno?", messageId: chat.messages[0].id});
              await chat.sendMessage({text: "Due?"});
              return chat.messages.map(textOf);
            """,
        )
        asked = [
            [message["content"] for message in request.json()["messages"][1:]] for request in server.provider.requests
        ]
    assert shown == ["Uno?", "Answer 4.", "Due?", "Answer 5."]
    assert asked == [
        ["One?"],
        ["One?", "Answer 1.", "Two?"],
        ["One?", "Answer 1.", "Two?"],
        ["Uno?"],
        ["Uno?", "Answer 4.", "Due?"],
    ]


async def test_a_reload_in_the_middle_shows_every_part_once(driver: NodeDriver, tmp_path: Path) -> None:
    """The page that comes back has the messages that it kept, the partial one included; another tab has none."""
    (tmp_path / "notes.txt").write_text("rain", encoding="utf-8")
    script = (
        reply(think("Hm."), "Let me see.", call("read_file", {"path": "notes.txt"})),
        Scenario(reply=reply(TEXT), pace_s=0.05),
    )
    async with running_server(tmp_path, *script) as server:
        shown = await driver.run(
            server.url,
            """
              const chat = newChat({id: "reload"});
              const sent = chat.sendMessage({text: "Count."});
              await until(chat, () => chat.messages.length > 1 && textOf(chat.lastMessage).includes("two"));
              const kept = structuredClone(chat.messages);
              const back = newChat({name: "back", id: "reload", messages: kept});
              const tab = newChat({name: "tab", id: "reload"});
              await Promise.all([back.resumeStream(), tab.resumeStream(), sent]);
              const partial = textOf(kept[1]);
              await back.resumeStream();
              return {partial, whole: chat.messages, back: back.messages, tab: tab.messages, status: back.status,
                chunks: [chat.chunks, back.chunks]};
            """,
        )
    assert shown["partial"] != f"Let me see.|{TEXT}"
    assert parts_of(shown["whole"][1])[1:] == [
        ("reasoning", "Hm."),
        ("text", "Let me see."),
        ("read_file", "output-available", "     1\train"),
        "step-start",
        ("text", TEXT),
    ]
    assert shown["back"] == shown["whole"]
    assert shown["tab"] == shown["whole"][1:]
    assert shown["chunks"][0] == shown["chunks"][1], "a resumed stream replays from its start"
    assert shown["status"] == "ready"


async def test_a_reload_while_a_result_of_the_page_is_answered(driver: NodeDriver, tmp_path: Path) -> None:
    """The message is made of two runs: both are replayed."""
    script = (reply("I look.", call("where_am_i", {})), Scenario(reply=reply(TEXT), pace_s=0.05))
    async with running_server(tmp_path, *script) as server:
        shown = await driver.run(
            server.url,
            """
              const chat = newChat({
                id: "own",
                transport: {body: {tools: [{name: "where_am_i"}]}},
                sendAutomaticallyWhen: ai.lastAssistantMessageIsCompleteWithToolCalls,
                onToolCall: ({toolCall: {toolName: tool, toolCallId}}) =>
                  void chat.addToolOutput({tool, toolCallId, output: "Bergen"}),
              });
              void chat.sendMessage({text: "Count."});
              await until(chat, () => chat.messages.length > 1 && textOf(chat.lastMessage).includes("two"));
              const tab = newChat({name: "tab", id: "own"});
              await tab.resumeStream();
              await until(chat, () => chat.status === "ready");
              return {whole: chat.messages, tab: tab.messages};
            """,
        )
    [whole], [tab] = shown["whole"][1:], shown["tab"]
    assert (
        parts_of(tab)
        == parts_of(whole)
        == [
            "step-start",
            ("text", "I look."),
            ("tool-where_am_i", "output-available", "Bergen"),
            "step-start",
            ("text", TEXT),
        ]
    )
    assert (tab["id"], tab["metadata"]) == (whole["id"], whole["metadata"])


async def test_notices_and_citations(driver: NodeDriver, tmp_path: Path) -> None:
    config = "call: {idle_timeout_s: 0.3}\n"
    async with running_server(tmp_path, STALLED, reply(" eight nine ten"), config=config) as server:
        shown = await driver.run(
            server.url, 'const chat = newChat({id: "s"}); await chat.sendMessage({text: "Count."});' + RETURNED
        )
    check_chunks(shown["chunks"])
    kinds = [part["data"]["kind"] for part in shown["data"] if part["type"] == "data-notice"]
    assert "stalled" in kinds
    assert kinds[-1] in ("retry", "failover")
    assert [part["type"] for part in shown["messages"][1]["parts"]] == ["step-start", "text"], "notices are transient"


async def test_files_go_to_the_model_and_come_from_tools(driver: NodeDriver, tmp_path: Path) -> None:
    script = (reply(call("launch", {"what": "camera"})), reply("A picture."))
    async with running_server(tmp_path, *script, tools=(Launch(),), config="approvals: {mode: yolo}\n") as server:
        shown = await driver.run(
            server.url,
            """
              const chat = newChat({id: "files"});
              const files = [
                {type: "file", mediaType: "image/png", filename: "a.png", url: "data:image/png;base64,iVBORw0KGgo="},
                {type: "file", mediaType: "text/plain", filename: "b.txt", url: "data:text/plain,hello%20there"},
              ];
              await chat.sendMessage({text: "What is it?", files});
            """
            + RETURNED,
        )
        content = server.provider.requests[0].json()["messages"][-1]["content"]
    check_chunks(shown["chunks"])
    assert [part["type"] for part in content] == ["image_url", "file", "text"]
    assert content[0]["image_url"]["url"] == "data:image/png;base64,iVBORw0KGgo="
    file = next(part for part in shown["messages"][1]["parts"] if part["type"] == "file")
    assert (file["mediaType"], file["url"]) == ("image/png", "data:image/png;base64,iVBORw==")


async def test_the_body_of_a_page_that_sends_the_last_message_alone(driver: NodeDriver, tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("One."), reply("Two."), reply("Two again.")) as server:
        shown = await driver.run(
            server.url,
            """
              const prepareSendMessagesRequest = ({id, messages, trigger, messageId}) => ({
                body: trigger === "regenerate-message" ? {id, trigger, messageId} : {id, message: messages.at(-1)},
              });
              const chat = newChat({id: "alone", transport: {prepareSendMessagesRequest}});
              await chat.sendMessage({text: "First?"});
              await chat.sendMessage({text: "Second?"});
              await chat.regenerate({messageId: chat.lastMessage.id});
              return chat.messages.map(textOf);
            """,
        )
        asked = [
            [message["content"] for message in request.json()["messages"][1:]] for request in server.provider.requests
        ]
    assert shown == ["First?", "One.", "Second?", "Two again."]
    assert asked[1] == asked[2] == ["First?", "One.", "Second?"]


async def test_any_reader_of_ui_message_streams_reads_it(driver: NodeDriver, tmp_path: Path) -> None:
    """`readUIMessageStream` over the response of a plain `fetch`."""
    async with running_server(tmp_path, reply("As one reads: ", say("water is wet."))) as server:
        shown = await driver.run(
            server.url,
            """
              const body = {id: "plain", messages: [{id: "1", role: "user", parts: [{type: "text", text: "Is it?"}]}]};
              const headers = {"content-type": "application/json"};
              const response = await fetch(`${url}/ui/chat`, {method: "POST", headers, body: JSON.stringify(body)});
              const chunks = ai.parseJsonEventStream({stream: response.body, schema: ai.uiMessageChunkSchema});
              const values = new TransformStream({transform: (read, out) => {
                if (!read.success) throw read.error;
                out.enqueue(read.value);
              }});
              let last;
              const stream = chunks.pipeThrough(values);
              for await (const message of ai.readUIMessageStream({stream})) last = message;
              return {last, header: response.headers.get("x-vercel-ai-ui-message-stream")};
            """,
        )
    assert shown["header"] == "v1"
    assert parts_of(shown["last"]) == ["step-start", ("text", "As one reads: water is wet.")]


RESTORED = """
  const stored = async () => (await fetch(`${url}/ui/chat/${encodeURIComponent(chat.id)}/messages`)).json();
"""


def without_ids_of_thoughts(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Some versions of the AI SDK keep the id of a part that thinks."""
    for message in messages:
        for part in message["parts"]:
            if part["type"] == "reasoning":
                part.pop("id", None)
    return messages


async def test_a_page_that_opens_again_gets_the_messages_that_were_streamed(driver: NodeDriver, tmp_path: Path) -> None:
    """And goes on with them: an approval that waits is answered from there."""
    (tmp_path / "notes.txt").write_text("rain", encoding="utf-8")
    script = (
        reply(think("Hm."), "Let me see.", call("read_file", {"path": "notes.txt"})),
        reply("Rain."),
        reply(call("read_file", {"path": "none.txt"}), call("launch", {"what": "rocket"})),
        reply("It flies."),
    )
    async with running_server(tmp_path, *script, tools=(Launch(),)) as server:
        chat = """
          const chat = newChat({id: "chat/ä 2"});
        """
        steps = """
          const none = await stored();
          await chat.sendMessage({text: "Weather?"});
          const first = {shown: structuredClone(chat.messages), stored: await stored()};
          await chat.sendMessage({text: "Launch."});
          const waiting = {shown: structuredClone(chat.messages), stored: await stored()};
          const messages = await ai.validateUIMessages({messages: structuredClone(waiting.stored)});
          const again = newChat({name: "again", id: chat.id, messages, APPROVING});
          const asked = again.messages.at(-1).parts.find((part) => part.state === "approval-requested");
          await again.addToolApprovalResponse({id: asked.approval.id, approved: true});
          await until(again, (it) => it.status === "ready" && textOf(it.messages.at(-1)).includes("flies"));
          const last = {shown: again.messages, stored: await stored()};
          await ai.validateUIMessages({messages: structuredClone(last.stored)});
          return {none, first, waiting, last, errors: again.errors};
        """.replace("APPROVING", APPROVING)
        seen = await driver.run(server.url, chat + RESTORED + steps)
    assert (seen["none"], seen["errors"]) == ([], [])
    for moment in ("first", "waiting", "last"):
        shown, stored = (without_ids_of_thoughts(seen[moment][name]) for name in ("shown", "stored"))
        assert stored == shown, moment
