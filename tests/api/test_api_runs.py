"""What a program sends with a question, and what it does with a run that is under way."""

from __future__ import annotations

import asyncio
import base64
import inspect
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tailrace
import tailrace.testing
from provider_thread import provider
from scripted_agent import config_for, opened
from tailrace import Agent, tool
from tailrace.events import SteerReturned
from tailrace.messages import Usage
from tailrace.runs.view.changes import Asked
from tailrace.testing.provider import call, reply

DOCS = Path(__file__).parents[2] / "docs"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)
PDF = b"%PDF-1.7\n%%EOF"
_PNG, _PDF = (base64.b64encode(data).decode() for data in (PNG, PDF))
SENT: dict[str, list[dict[str, Any]]] = {  # what follows the text
    "chat": [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_PNG}"}},
        {"type": "file", "file": {"filename": "tide.pdf", "file_data": f"data:application/pdf;base64,{_PDF}"}},
    ],
    "responses": [
        {"type": "input_image", "image_url": f"data:image/png;base64,{_PNG}", "detail": "auto"},
        {"type": "input_file", "filename": "tide.pdf", "file_data": f"data:application/pdf;base64,{_PDF}"},
    ],
    "anthropic": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _PNG}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": _PDF},
            "title": "tide.pdf",
            "cache_control": {"type": "ephemeral"},
        },
    ],
}


def without_name(part: dict[str, Any]) -> dict[str, Any]:
    """A document of bytes has no name of its own."""
    inner = part.get("file")
    named = {**part, "file": without_name(inner)} if isinstance(inner, dict) else part
    return {key: value for key, value in named.items() if key not in ("filename", "title")}


@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
@pytest.mark.parametrize("by_path", [True, False])
async def test_an_image_and_a_document_reach_the_provider_in_its_dialect(
    dialect: str, by_path: bool, tmp_path: Path
) -> None:
    (tmp_path / "mill.png").write_bytes(PNG)
    (tmp_path / "tide.pdf").write_bytes(PDF)
    media = (tmp_path / "mill.png", tmp_path / "tide.pdf") if by_path else (PNG, PDF)
    async with opened(tmp_path, reply("A mill."), dialect=dialect) as (agent, server):
        assert (await agent.run(["What is this?", *media])).text == "A mill."
    body = server.requests[0].json()
    [asked] = [each for each in body["input" if dialect == "responses" else "messages"] if each["role"] == "user"]
    text, *sent = asked["content"]
    assert text["text"] == "What is this?"
    if by_path:
        assert sent == SENT[dialect]
    else:
        assert list(map(without_name, sent)) == list(map(without_name, SENT[dialect]))


async def test_a_run_that_has_used_up_its_dollars_ends_incomplete(tmp_path: Path) -> None:
    pytest.importorskip("genai_prices")
    looks = msgspec.structs.replace(reply("I look.", call("read_file", {"path": "a.txt"})), usage=Usage(100, 10))
    async with opened(tmp_path, looks, model="faulty/gpt-4o", builtin=["read_file"]) as (agent, server):
        result = await agent.run("Read.", max_usd=0.0001)
    assert result.status == "incomplete"
    assert result.error is not None
    assert "(max_usd)" in result.text
    assert len(server.requests) == 1


async def test_a_message_for_a_run_is_in_its_next_model_call(tmp_path: Path) -> None:
    digging, is_steered = asyncio.Event(), asyncio.Event()

    @tool
    async def dredge() -> str:
        """Dredge the canal."""
        digging.set()
        await is_steered.wait()
        return "done"

    script = (reply(call("dredge", {})), reply("The Aare too."))
    async with opened(tmp_path, *script, tools=[dredge]) as (agent, server), agent.stream("Dredge.") as run:
        await digging.wait()
        steer = await run.steer("The Aare too.")
        is_steered.set()
        result = await run.result()
    assert steer.state == "accepted"
    assert result.completed
    told = server.requests[1].json()["messages"][-1]
    assert (told["role"], told["content"]) == ("user", "The Aare too.")


async def test_N165_a_stop_returns_the_message(tmp_path: Path) -> None:
    digging = asyncio.Event()

    @tool
    async def dredge() -> str:
        """Dredge the canal."""
        digging.set()
        await asyncio.get_running_loop().create_future()
        return ""

    async with opened(tmp_path, reply(call("dredge", {})), tools=[dredge]) as (agent, _), agent.stream("Dig.") as run:
        await digging.wait()
        steer = await run.steer("The Aare too.")
        await run.stop()
        returned = [event async for event in run.events if isinstance(event, SteerReturned)]
    assert [(event.steer_id, event.reason) for event in returned] == [(steer.accepted.steer_id, "run_stopped")]


@pytest.mark.parametrize(("decision", "orders"), [("once", ["tea"]), ("deny", [])])
async def test_a_question_that_waits_is_answered_by_the_program(
    decision: Any, orders: list[str], tmp_path: Path
) -> None:
    ordered: list[str] = []

    @tool(effect="external")
    def order(what: str) -> str:
        """Orders something."""
        ordered.append(what)
        return "ordered"

    script = (reply(call("order", {"what": "tea"})), reply("So be it."))
    async with (
        opened(tmp_path, *script, tools=[order], on_approval="wait") as (agent, server),
        agent.stream("Order tea.") as run,
    ):
        async for change in run.changes:
            if isinstance(change, Asked):
                assert change.question.command == 'order {"what":"tea"}'
                await run.approve(change.question, decision, reason="the pot is full")
        result = await run.result()
    assert ordered == orders
    assert [left.kind for left in result.not_executed] == ["denied"] * (not orders)
    told = server.requests[1].json()["messages"][-1]["content"]
    assert ("the pot is full" in told) is (not orders)


async def test_a_stream_goes_on_behind_the_entry_that_was_seen_last(tmp_path: Path) -> None:
    async with opened(tmp_path, reply("One two three.")) as (agent, server):
        async with agent.stream("Count.", key="count") as run:
            seen = [entry async for entry in run.entries]
        last = seen[3].seq
        async with agent.stream("Count.", key="count", after=last) as again:
            rest = [entry async for entry in again.entries]
        async with agent.resume(run.id, after=last) as resumed:
            assert [entry async for entry in resumed.entries] == rest
    assert again.id == run.id
    assert rest == [entry for entry in seen if entry.seq > last] != []
    assert len(server.requests) == 1


async def test_run_sync_works_inside_a_loop_that_runs_as_in_a_notebook(tmp_path: Path) -> None:
    with provider(reply("Hello Ann."), reply("Ann.")) as server:
        agent = Agent(config=config_for(server.url, tmp_path), directory=tmp_path)
        assert agent.run_sync("I am Ann.").text == "Hello Ann."
        assert agent.run_sync("Who am I?").text == "Ann."
        assert [message.text for message in await agent.messages()][::2] == ["I am Ann.", "Who am I?"]


@pytest.mark.parametrize("module", [tailrace, tailrace.testing])
def test_each_name_of_a_package_is_there_and_listed(module: Any) -> None:
    assert dir(module) == sorted(module.__all__) == sorted(set(module.__all__))
    assert all(getattr(module, name) is not None for name in module.__all__)
    assert set(module._LAZY) == set(module.__all__) - {"__version__"}


@pytest.mark.parametrize("module", [tailrace, tailrace.testing])
def test_no_docstring_of_a_public_name_has_an_id_of_ours(module: Any) -> None:
    found = [getattr(module, name) for name in module.__all__]
    found += [part for each in found if inspect.isclass(each) for part in vars(each).values()]
    docs = [inspect.getdoc(part.fget if isinstance(part, property) else part) or "" for part in found]
    assert len(docs) > 30
    assert [doc for doc in docs if re.search(r"\b[A-Z]\d{2,3}\b", doc)] == []


def test_each_test_double_stands_on_a_page() -> None:
    pages = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("testing.md", "testing-tools.md"))
    assert set(tailrace.testing.__all__) <= set(re.findall(r"\w+", pages))


async def test_the_result_of_a_stream_is_known_behind_its_block(tmp_path: Path) -> None:
    """Of one that was read to its end, and of one that leaving the block has stopped."""
    with provider(reply("Hello there."), "long+pace@0.05") as server:
        agent = Agent(config=config_for(server.url, tmp_path))
        async with agent.stream("Hi.") as whole:
            said = "".join([text async for text in whole.text])
        async with agent.stream("Go on.") as left:
            await anext(left.text)
        assert ((await whole.result()).text, (await whole.result()).status) == (said, "completed")
        assert (await left.result()).status == "stopped"
