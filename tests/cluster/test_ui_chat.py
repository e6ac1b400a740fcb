"""`kill -9` of the node that streams a UI message: the page resumes it at another node, whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.node_driver import NodeDriver, node_driver
from cluster.conversing import TEXT, TOOL, ConversingProvider
from cluster.nodes import ON_SQLITE, Cluster, SharedStore


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeDriver]:
    with node_driver(tmp_path_factory.mktemp("driver"), "ui_chat.mjs") as running:
        yield running


@ON_SQLITE
async def test_kill_9_in_the_middle_of_a_message(driver: NodeDriver, tmp_path: Path, store: SharedStore) -> None:
    async with (
        ConversingProvider("echo rain", pace_s=0.05) as provider,
        Cluster(tmp_path, store, provider.openai_url) as cluster,
    ):
        owner, other = await cluster.start_many(2)
        partial = await driver.run(
            owner.url,
            """
              const chat = newChat({id: "killed"});
              void chat.sendMessage({text: given.question});
              await until(chat, () => chat.messages.length > 1 && textOf(chat.lastMessage).includes("word3 "));
              return textOf(chat.lastMessage);
            """,
            question=TOOL,
        )
        await owner.kill()
        shown = await driver.run(
            other.url,
            """
              const chat = chats.get("chat");
              await until(chat, () => chat.status === "error");
              const kept = structuredClone(chat.messages);
              const back = newChat({name: "back", id: "killed", messages: kept});
              await back.resumeStream();
              await back.sendMessage({text: "And again."});
              return {kept: kept.map(textOf), messages: back.messages, errors: back.errors};
            """,
        )
    assert shown["errors"] == []
    assert partial in shown["kept"][1]
    parts = [part for part in shown["messages"][1]["parts"] if part["type"] != "step-start"]
    assert [part.get("text", part.get("output", "")) for part in parts][::2] == ["Let me see.", TEXT]
    assert "rain" in parts[1]["output"]
    assert len(shown["messages"]) == 4
    assert shown["messages"][1]["metadata"]["status"] == "completed"
    assert shown["messages"][3]["parts"][-1]["text"] == TEXT
