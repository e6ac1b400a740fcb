"""What the agent thought before and after its tools, as clients of each API that ask for thinking are shown it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from server.dialect_api import DIALECTS, WATER_LEVEL, dialect_server
from server.v1.replaying_provider import PATHS, rebuilt
from tailrace.messages import Dialect, JsonObject
from tailrace.testing.provider import Reply, call, reply, think

LOOK = call("water_level", {"river": "Aare"})
SPEAKS = (reply(think("I must look."), "Let me look.", LOOK), reply(think("Now I know."), "It is at 3.2 m."))
IS_SILENT = (reply(think("I must look."), LOOK), reply(think("Now I know."), "It is at 3.2 m."))
ASKED: dict[Dialect, JsonObject] = {
    "chat": {"messages": [{"role": "user", "content": "Go."}]},
    "responses": {"input": "Go.", "reasoning": {"summary": "auto"}, "store": False},
    "anthropic": {
        "messages": [{"role": "user", "content": "Go."}],
        "max_tokens": 4096,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    },
}


BLOCKS = pytest.mark.parametrize(
    ("dialect", "thought", "text"), [("anthropic", "thinking", "text"), ("responses", "reasoning", "message")]
)


async def answers(home: Path, dialect: Dialect, up: Dialect, turn: tuple[Reply, ...], **more: Any) -> list[Any]:
    """What the agent says streamed, and whole."""
    asked = {"model": "tailrace", **ASKED[dialect], **more}
    sections = {"model": {"provider": f"up-{up}", "name": "ok"}, "agent": {"show_reasoning": dialect == "chat"}}
    async with dialect_server(home, [*turn, *turn], sections=sections, tools=[WATER_LEVEL]) as server:
        async with server.session.post(server.url + PATHS[dialect], json={**asked, "stream": True}) as response:
            streamed = rebuilt(dialect, await response.read())
        assert streamed is not None
        status, whole = await server.post(PATHS[dialect], asked)
        assert status == 200, whole
    return [said_in(streamed, dialect), said_in(whole, dialect)]


def said_in(body: JsonObject, dialect: Dialect) -> Any:
    match dialect:
        case "chat":
            message = body["choices"][0]["message"]
            return message["reasoning_content"], message["content"]
        case "anthropic":
            return body["content"]
        case "responses":
            return [{name: value for name, value in item.items() if name != "id"} for item in body["output"]]


def texts_in(said: list[JsonObject]) -> list[tuple[str, str]]:
    """The kind of each block or item, and its text."""
    return [(each["type"], _text_of(each)) for each in said]


def _text_of(said: JsonObject) -> str:
    if parts := said.get("summary") or said.get("content"):
        return "".join(part["text"] for part in parts)
    return str(said[said["type"]])


@pytest.mark.parametrize("up", DIALECTS)
@BLOCKS
async def test_thoughts_and_texts_stand_in_their_order_streamed_and_whole(
    tmp_path: Path, dialect: Dialect, up: Dialect, thought: str, text: str
) -> None:
    streamed, whole = await answers(tmp_path, dialect, up, SPEAKS)
    assert texts_in(whole) == [
        (thought, "I must look."),
        (text, "Let me look."),
        (thought, "Now I know."),
        (text, "It is at 3.2 m."),
    ]
    assert streamed == whole


@pytest.mark.parametrize("up", DIALECTS)
@BLOCKS
async def test_thoughts_in_a_row_are_paragraphs(
    tmp_path: Path, dialect: Dialect, up: Dialect, thought: str, text: str
) -> None:
    streamed, whole = await answers(tmp_path, dialect, up, IS_SILENT)
    assert texts_in(whole) == [(thought, "I must look.\n\nNow I know."), (text, "It is at 3.2 m.")]
    assert streamed == whole


@pytest.mark.parametrize("up", DIALECTS)
async def test_a_chat_message_has_one_field_for_the_thoughts_and_one_for_the_texts(tmp_path: Path, up: Dialect) -> None:
    streamed, whole = await answers(tmp_path, "chat", up, SPEAKS)
    assert whole == ("I must look.\n\nNow I know.", "Let me look.\n\nIt is at 3.2 m.")
    assert streamed == whole


async def test_without_thoughts_the_texts_are_one_block(tmp_path: Path) -> None:
    streamed, whole = await answers(tmp_path, "anthropic", "chat", SPEAKS, thinking={"type": "disabled"})
    assert texts_in(whole) == [("text", "Let me look.\n\nIt is at 3.2 m.")]
    assert streamed == whole
