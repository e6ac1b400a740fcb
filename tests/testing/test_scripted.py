"""The scripted provider: real completions by the dialects' own code, streamed or not, and every way to fail."""

from __future__ import annotations

import asyncio
from itertools import repeat

import msgspec
import pytest

from tailrace.errors import Permanent, ProviderError, Rejected, Retryable, StreamCut, Unavailable
from tailrace.messages import (
    AnyDelta,
    Completion,
    Dialect,
    FinishDelta,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    UsageDelta,
    user,
)
from tailrace.ports import AnswerStream, Provider
from tailrace.testing.clock import driven
from tailrace.testing.provider import REPLIES
from tailrace.testing.scripted import Cut, Fail, Reply, ScriptedProvider, Stall, call, reply, say, think

DIALECTS: tuple[Dialect, ...] = ("chat", "responses", "anthropic")
ASK = ModelRequest("m", (user("hi"),), max_tokens=64)


async def gather(answer: AnswerStream, seen: list[AnyDelta]) -> None:
    await answer.pump(seen.extend)


async def streamed(provider: Provider, seen: list[AnyDelta]) -> Completion:
    async with provider.stream(ASK) as answer:
        await gather(answer, seen)
    return answer.completion()


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", sorted(set(REPLIES) - {"surrogate", "long"}))
async def test_the_completion_is_the_same_streamed_or_not(dialect: Dialect, name: str) -> None:
    provider = ScriptedProvider(repeat(REPLIES[name].reply), dialect=dialect)
    seen: list[AnyDelta] = []
    from_stream = await streamed(provider, seen)
    assert from_stream == await provider.complete(ASK)
    assert from_stream.text == "".join(delta.text for delta in seen if isinstance(delta, TextDelta))
    assert from_stream.reasoning == "".join(delta.text for delta in seen if isinstance(delta, ReasoningDelta))
    assert provider.requests == [ASK, ASK]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_all_of_a_reply_comes_through(dialect: Dialect) -> None:
    own = reply(think("hm", "sig"), say("Yes."), call("look", {"at": [1]}, id="c1"), call("run", {}, id="c2"))
    seen: list[AnyDelta] = []
    done = await streamed(ScriptedProvider([own], dialect=dialect), seen)
    assert (done.dialect, done.text, done.reasoning, done.stop) == (dialect, "Yes.", "hm", "tools")
    assert done.tool_calls == (ToolCall("c1", "look", '{"at":[1]}'), ToolCall("c2", "run", "{}"))
    assert done.usage.input_tokens == 25
    assert {delta.index for delta in seen if isinstance(delta, ToolCallDelta)} == {0, 1}
    assert sum(isinstance(delta, FinishDelta) for delta in seen) == 1
    assert any(isinstance(delta, UsageDelta) for delta in seen)


async def test_calls_of_custom_tools_and_of_tools_in_a_namespace_are_items_of_their_own_kind() -> None:
    tools = [{"type": "custom", "name": "apply_patch"}, {"type": "namespace", "name": "mill", "tools": []}]
    own = reply(
        call("apply_patch", {"input": "*** Begin Patch"}), call("mill__stop", {"now": True}), call("run__it", {})
    )
    asked = msgspec.structs.replace(ASK, extra={"tools": tools})
    provider = ScriptedProvider(repeat(own), dialect="responses")
    async with provider.stream(asked) as answer:
        await gather(answer, [])
    output = answer.completion().body["output"]
    assert output == (await provider.complete(asked)).body["output"]
    patched, stopped, ran = output
    assert (patched["type"], patched["input"], "arguments" in patched) == ("custom_tool_call", "*** Begin Patch", False)
    assert (stopped["type"], stopped["namespace"], stopped["name"]) == ("function_call", "mill", "stop")
    assert (ran["name"], "namespace" in ran) == ("run__it", False)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_D48_a_cut_keeps_what_came_and_raises(dialect: Dialect) -> None:
    provider = ScriptedProvider([Cut(reply("one two three four"), after=2)], dialect=dialect)
    seen: list[AnyDelta] = []
    async with provider.stream(ASK) as answer:
        with pytest.raises(StreamCut):
            await gather(answer, seen)
        assert answer.completion().text == "one two"
    assert "".join(delta.text for delta in seen if isinstance(delta, TextDelta)) == "one two"


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("overloaded", Retryable),
        ("rate-limit", Retryable),
        ("server", Retryable),
        ("invalid", Permanent),
        ("auth", Permanent),
    ],
)
@pytest.mark.parametrize("after", [0, 2])
async def test_D50_D51_a_failure_is_classified_as_over_the_wire(
    dialect: Dialect, kind: str, error: type[ProviderError], after: int
) -> None:
    provider = ScriptedProvider([Fail(kind, reply("one two three"), after=after)] * 2, dialect=dialect)
    with pytest.raises(error) as in_stream:
        await streamed(provider, [])
    with pytest.raises(error) as plain:
        await provider.complete(ASK)
    assert in_stream.value.provider == plain.value.provider == "scripted"


@pytest.mark.parametrize("dialect", DIALECTS)
@driven
async def test_E59_a_stall_lasts_until_the_caller_gives_up(dialect: Dialect) -> None:
    provider = ScriptedProvider([Stall(reply("one two three"), after=1), Stall()], dialect=dialect)
    loop = asyncio.get_running_loop()
    seen: list[AnyDelta] = []
    began = loop.time()
    async with provider.stream(ASK) as answer:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(gather(answer, seen), 900)
        assert any(isinstance(delta, TextDelta) for delta in seen)
        assert answer.completion().text == "one"
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(provider.complete(ASK), 900)
    assert loop.time() - began == pytest.approx(1800)


@driven
async def test_the_pace_is_the_loops_time() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await streamed(ScriptedProvider(["one two three"], pace_s=10), [])
    # the opening chunk, three words, the finish, the usage and [DONE]
    assert loop.time() - began == pytest.approx(70)


async def test_an_error_in_the_script_is_raised_in_place_of_an_answer() -> None:
    first = Unavailable("busy", status=503, retry_after_s=2)
    provider = ScriptedProvider([first, "at last"], name="mine")
    with pytest.raises(Unavailable) as raised:
        await streamed(provider, [])
    assert raised.value is first
    assert first.provider == "mine"
    assert (await streamed(provider, [])).text == "at last"


async def test_a_call_past_the_end_of_the_script_is_rejected() -> None:
    provider = ScriptedProvider(["only"])
    await provider.complete(ASK)
    with pytest.raises(Rejected, match="before call 2"):
        await provider.complete(ASK)


async def test_an_answer_that_is_left_early_is_closed() -> None:
    provider = ScriptedProvider([reply("one two three four"), Reply()])
    async with provider.stream(ASK) as answer:

        def leave(_deltas: list[AnyDelta]) -> None:
            raise KeyError

        with pytest.raises(KeyError):
            await answer.pump(leave)
    seen: list[AnyDelta] = []
    await gather(answer, seen)
    assert seen == []


async def test_a_cancelled_call_ends_at_once() -> None:
    provider = ScriptedProvider([Stall()])
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(streamed(provider, []))
        await asyncio.sleep(0)  # the task takes its first steps
        assert provider.requests == [ASK]
        task.cancel()
    assert task.cancelled()


def test_an_unknown_kind_of_failure_is_refused() -> None:
    with pytest.raises(ValueError, match="overloaded"):
        Fail("gremlins")
