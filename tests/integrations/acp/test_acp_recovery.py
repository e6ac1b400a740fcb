"""A turn outlives its `tailrace acp` process: killed, or left by its editor, it is shown and ended by the next one.

One story, since each process takes its time to start: the first is killed, the second is left while the third
watches, which goes on.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from acp.exceptions import RequestError
from msgspec.structs import replace

from integrations.acp.acp_editor import (
    LONGEST_S,
    AgentProcess,
    Editor,
    model_calls,
    next_model_call,
    tailrace_acp,
    write_config,
)
from tailrace.testing.provider import FaultyProvider, call, reply, scenario

LONG = " ".join(f"word{number}" for number in range(100))
STALLED = replace(scenario("stall@50%"), reply=reply(LONG))  # half of the answer, and then silence
DANGER = "rm -rf doomed"
TURNS = {
    "rest": [reply(" And the rest of it.")],
    "removes": [reply("Removing.", call("terminal", {"command": DANGER})), reply("That is that.")],
}


async def load(agent: AgentProcess, session: str) -> None:
    async with asyncio.timeout(LONGEST_S):
        await agent.agent.load_session(session_id=session, cwd=str(agent.directory), mcp_servers=[])


async def begin(agent: AgentProcess, session: str, provider: FaultyProvider, question: str) -> str:
    """A turn that is in the middle of its answer; returns what is shown of it."""
    provider.extend(STALLED)
    before = agent.editor.text(session)
    turn = asyncio.create_task(agent.prompt(session, question))
    turn.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    await agent.editor.until(lambda _: "word20 " in agent.editor.text(session).removeprefix(before))
    return agent.editor.text(session)


async def test_turns_outlive_their_process(tmp_path: Path) -> None:
    home, directory = tmp_path / "home", tmp_path / "project"
    (directory / "doomed").mkdir(parents=True)
    silent = Editor()
    silent.silent = True
    async with FaultyProvider([reply("The first answer.")], turns=TURNS) as provider:
        write_config(home, provider.openai_url, approvals={"timeout_s": LONGEST_S}, store={"lease_s": 3})
        async with tailrace_acp(home, directory, editor=silent) as first:
            session = await first.session("rest")
            asking = await first.session("removes")
            await first.prompt(session, "One?")
            question = asyncio.create_task(first.prompt(asking))
            question.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            await silent.until(lambda _: silent.permissions)
            shown = await begin(first, session, provider, "Two?")
            await first.kill()
        async with tailrace_acp(home, directory) as second, tailrace_acp(home, directory) as third:
            whole = await _nothing_is_lost_or_doubled(second, session, shown, provider)
            await _an_open_question_is_asked_again(second, asking)
            left = await begin(second, session, provider, "Three?")
            assert await refused_load(second, session) == -32600  # its own prompt shows it
            # Another editor on the same journal watches the turn, and goes on with it when the first one leaves.
            await load(third, session)
            assert third.editor.text(session, "user_message_chunk") == "One?Two?Three?"
            joined = third.editor.text(session)  # more of it may have come meanwhile
            assert joined.startswith(f"{whole}{left.removeprefix(whole)}")
            assert LONG.startswith(joined.removeprefix(whole))
            provider.extend(STALLED)
            asked = len(provider.requests)
            assert second.process.stdin is not None
            second.process.stdin.close()
            assert await asyncio.wait_for(second.process.wait(), LONGEST_S) == 0
            async with asyncio.timeout(LONGEST_S):
                await next_model_call(provider, asked)
            await third.agent.cancel(session_id=session)  # it is stopped like any other
            assert (await third.prompt(session, "Four?")).stop_reason == "end_turn"
            assert third.editor.text(session).endswith(" And the rest of it.")


async def test_a_session_is_loaded_whose_model_was_an_alias_that_is_gone(tmp_path: Path) -> None:
    home, directory = tmp_path / "home", tmp_path / "project"
    directory.mkdir()
    async with FaultyProvider(turns=TURNS) as provider:
        write_config(home, provider.openai_url, server={"aliases": {"house": "test/rest"}})
        async with tailrace_acp(home, directory) as first:
            session = await first.session()
            await first.agent.set_config_option(config_id="model", session_id=session, value="house")
            await first.prompt(session, "One?")
        write_config(home, provider.openai_url)
        async with tailrace_acp(home, directory) as second:
            await load(second, session)
            assert second.editor.text(session) == " And the rest of it."
            with pytest.raises(RequestError, match="house"):  # the provider is asked for a model of that name
                await second.prompt(session, "Two?")
            await second.agent.set_config_option(config_id="model", session_id=session, value="test/rest")
            assert (await second.prompt(session, "Two?")).stop_reason == "end_turn"


async def refused_load(agent: AgentProcess, session: str) -> int:
    with pytest.raises(RequestError) as caught:
        await load(agent, session)
    return caught.value.code


async def _nothing_is_lost_or_doubled(agent: AgentProcess, session: str, shown: str, provider: FaultyProvider) -> str:
    editor = agent.editor
    await load(agent, session)
    assert editor.text(session).startswith(shown)  # what was seen before is there at once
    await editor.until(lambda _: "the rest of it." in editor.text(session))
    whole = editor.text(session)
    assert editor.text(session, "user_message_chunk") == "One?Two?"
    assert whole.startswith("The first answer.word0 ")
    assert whole.endswith(" And the rest of it.")
    assert whole.count("word20 ") == 1
    asked = model_calls(provider)[-1].json()["messages"]
    assert "word20 " in json.dumps(asked)  # the model goes on from what was shown
    editor.updates.clear()
    await load(agent, session)
    assert (editor.text(session), editor.text(session, "user_message_chunk")) == (whole, "One?Two?")
    return whole


async def _an_open_question_is_asked_again(agent: AgentProcess, session: str) -> None:
    editor = agent.editor
    await load(agent, session)
    await editor.until(lambda _: "That is that." in editor.text(session))
    assert [DANGER in asked.content[0].content.text for asked, _ in editor.permissions] == [True]
    assert not (agent.directory / "doomed").exists()
    assert editor.text(session) == "Removing.That is that."
