"""`/ui/chat` judged by the AI SDK: its transport, its chunk schema and the chat that `useChat` is made of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clients.ui_chat import ChatDriver, chat_driver
from server.http_server import running_server
from tailrace.testing.provider import Break, Offset, Scenario, call, reply, say, think


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChatDriver]:
    with chat_driver(tmp_path_factory.mktemp("driver")) as running:
        yield running


async def test_smoke(driver: ChatDriver, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("rain")
    async with running_server(tmp_path, reply(think("Hm."), "Let me see.", call("read_file", {"path": "notes.txt"})), reply("Rain.")) as server:
        shown = await driver.run(server.url, """
          const chat = newChat({id: "c1"});
          await chat.sendMessage({text: "Weather?"});
          return {chunks: chat.chunks, messages: chat.messages, errors: chat.errors, status: chat.status};
        """)
    import json
    print(json.dumps(shown, indent=1))
    assert 0
