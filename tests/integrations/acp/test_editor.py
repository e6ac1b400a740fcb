"""The editor at the other end: answers that cannot be understood, and a connection that has ended."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from acp.connection import Connection

from tailrace.integrations.acp.editor import Editor, EditorRefused


class _Answers:
    """A transport whose peer gives these answers, one for each request, and is then gone."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.posted: list[Any] = []
        self._replies: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    async def send(self, message: dict[str, Any]) -> None:
        answer = self._answers.pop(0) if self._answers else None
        self._replies.put_nowait(None if answer is None else {"jsonrpc": "2.0", "id": message["id"], **answer})

    async def write(self, lines: bytes) -> None:
        raise ConnectionError("gone")

    def post(self, lines: bytes) -> None:
        self.posted.append(json.loads(lines))

    async def receive(self) -> dict[str, Any] | None:
        return await self._replies.get()

    async def close(self) -> None:
        pass


async def _no_method(_method: str, _params: Any, _is_notification: bool) -> None:
    return None


def editor_with(*answers: Any) -> tuple[Editor, Connection]:
    transport = _Answers(*answers)
    editor = Editor(transport)
    connection = Connection(_no_method, transport)
    editor.connect(connection)
    return editor, connection


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        ({"result": {"outcome": {"outcome": "selected", "optionId": "session"}}}, "session"),
        ({"result": {"outcome": {"outcome": "selected", "optionId": "sudo"}}}, "deny"),
        ({"result": {"outcome": {"outcome": "cancelled"}}}, None),
        ({"result": None}, "deny"),
        ({"result": "yes"}, "deny"),
        ({"error": {"code": -32603, "message": "no window"}}, None),
    ],
)
async def test_what_is_no_clear_yes_is_no_approval(answer: Any, decision: str | None) -> None:
    editor, connection = editor_with(answer)
    assert await editor.ask_permission("s", {"toolCallId": "c"}) == decision
    await connection.close()


async def test_answers_without_what_was_asked_for_are_refusals() -> None:
    editor, connection = editor_with({"result": {}}, {"result": {"content": 5}})
    with pytest.raises(EditorRefused):
        await editor.read_text("s", "/a")
    with pytest.raises(EditorRefused):
        await editor.read_text("s", "/a")
    await connection.close()


async def test_a_turn_does_not_take_the_end_of_the_connection_for_an_answer() -> None:
    """The process is about to end; the turn goes on from here in another one."""
    editor, connection = editor_with()
    waiting = [
        asyncio.create_task(editor.ask_permission("s", {})),
        asyncio.create_task(editor.read_text("s", "/a")),
        asyncio.create_task(editor.write(b"line\n")),
    ]
    for _ in range(20):
        await asyncio.sleep(0)
    assert [task.done() for task in waiting] == [False] * 3
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await connection.close()
