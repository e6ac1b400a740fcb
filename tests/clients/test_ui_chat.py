"""`/ui/chat` judged by the AI SDK: its transport, its chunk schema and the `Chat` that `useChat` is made of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.node_driver import NodeDriver, node_driver
from clients.ui_chat_parts import RETURNED, STALLED, parts_of
from integrations.ai_sdk.strict_chunks import check_chunks
from integrations.launch_tool import Launch
from server.http_server import running_server
from tailrace.testing.provider import call, reply, say, think


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeDriver]:
    with node_driver(tmp_path_factory.mktemp("driver"), "ui_chat.mjs") as running:
        yield running


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
                {type: "file", mediaType: "text/plain", filename: "b.txt", url: "data:text/plain;base64,aGVsbG8="},
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
