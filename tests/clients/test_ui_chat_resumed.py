"""`/ui/chat` judged by the AI SDK: what a page shows after a stop, another try and a reload."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clients.node_driver import NodeDriver, node_driver
from clients.ui_chat_parts import APPROVING, STALLED, TEXT, parts_of
from integrations.ai_sdk.strict_chunks import check_chunks
from integrations.launch_tool import Launch
from server.http_server import running_server
from tailrace.testing.provider import Scenario, call, reply, think

WAIT = "call: {idle_timeout_s: 600}\n"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeDriver]:
    with node_driver(tmp_path_factory.mktemp("driver"), "ui_chat.mjs") as running:
        yield running


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
                transport: {body: {tools: {where_am_i: {}}}},
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
