"""Opaque items go back to whoever made them, and to nobody else."""

from __future__ import annotations

import pytest

from providers.faulty_calls import Told, faulty
from tailrace.messages import Dialect, JsonObject, Message, ModelRequest, Native, Part, Reasoning, Text, ToolCall, user
from tailrace.providers.provenance import replayable_messages
from tailrace.testing.provider import Break, Offset, Scenario, call, reply, think

SEALED: dict[Dialect, JsonObject] = {
    "chat": {"reasoning_details": [{"type": "reasoning.encrypted", "data": "sealed"}]},
    "responses": {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"},
    "anthropic": {"type": "thinking", "thinking": "hm", "signature": "sealed"},
}


def history(dialect: Dialect, maker: str) -> tuple[Message, ...]:
    thought = Reasoning("hm", dialect, SEALED[dialect], maker)
    return user("hi"), Message("assistant", (thought, Text("Hello."))), user("and?")


@pytest.mark.parametrize("dialect", SEALED)
@pytest.mark.parametrize(
    ("maker", "goes_back"), [("faulty/m1", True), ("", True), ("other/m1", False), ("faulty2/m1", False)]
)
async def test_a_thought_goes_back_to_its_maker_alone(dialect: Dialect, maker: str, goes_back: bool) -> None:
    async with faulty() as it:
        await it.call(it.route(dialect), request=ModelRequest("", history(dialect, maker)))
        sent = str(it.server.requests[0].json())
    assert ("sealed" in sent) == goes_back
    assert "Hello." in sent


def test_claude_signs_for_itself_whoever_hosts_it() -> None:
    asked = history("anthropic", "bedrock/anthropic.claude-sonnet-4-5")
    assert replayable_messages(asked, provider="anthropic", model="claude-opus-4-1") == asked
    assert SEALED["anthropic"] not in [
        part.native
        for message in replayable_messages(asked, provider="minimax", model="MiniMax-M2")
        for part in message.parts
        if isinstance(part, Reasoning)
    ]


def test_other_opaque_blocks_are_left_out_and_everything_else_stays() -> None:
    parts: tuple[Part, ...] = (
        Text("a"),
        Native("anthropic", {"type": "web_search_tool_result"}, "x/m"),
        ToolCall("1", "t"),
    )
    (message,) = replayable_messages([Message("assistant", parts)], provider="y", model="m")
    assert message.parts == (parts[0], parts[2])


@pytest.mark.parametrize("dialect", SEALED)
async def test_an_answer_says_who_made_it(dialect: Dialect) -> None:
    async with faulty(reply(think("hm", signature="s"), "Hello.", call("look", {}))) as it:
        result = await it.call(it.route(dialect))
    makers = [part.maker for part in result.completion.message.parts if isinstance(part, Reasoning | Native)]
    assert makers
    assert set(makers) == {"faulty/ok"}


@pytest.mark.parametrize("dialect", SEALED)
async def test_a_broken_off_answer_keeps_its_thoughts_and_no_opaque_item(dialect: Dialect) -> None:
    """The provider need not remember an item of an answer that it did not finish."""
    made = reply(think("hm", signature="s"), "Hello there, " * 20)
    async with faulty(Scenario(reply=made, broken=Break("cut", Offset(80, per_cent=True)))) as it:
        result = await it.call(it.route(dialect), told=Told("keep"))
    assert result.incomplete is not None
    first, *rest = result.completion.message.parts
    assert first == Reasoning("hm")
    assert all(isinstance(part, Text) for part in rest)
