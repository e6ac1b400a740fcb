"""The provider: what each plan does to an answer, on the wire, and what it writes down of it."""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from proof.streams import provider as provider_module
from proof.streams.history import History, Words, numbered_word
from proof.streams.http import Broken, fetch, stream
from proof.streams.provider import Plan, Provider

RUN = "run-a-1"
HEALTHY = "".join(numbered_word(n, RUN, 1) for n in range(1, 7))


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[Provider]:
    with History(tmp_path / "history.jsonl") as history:
        provider = Provider(history)
        await provider.start()
        yield provider
        await provider.stop()


def request(*said: str, stream: bool = True) -> dict[str, Any]:
    answers = [{"role": "assistant", "content": text} for text in said]
    return {"model": "m", "stream": stream, "messages": [{"role": "user", "content": f"Count for {RUN}."}, *answers]}


async def answer(provider: Provider, body: dict[str, Any]) -> tuple[str, str]:
    """The text and how the stream ended: its finish reason, an error's code, `closed`, `broken`, or `unreadable`."""
    text, end = "", "closed"
    try:
        async with stream("POST", f"{provider.url}/chat/completions", body=body) as response:
            async for event in response.events():
                if event.data == "[DONE]":
                    break
                told: dict[str, Any] = json.loads(event.data)
                if "error" in told:
                    return text, told["error"]["code"]
                for choice in told["choices"]:
                    text += choice["delta"].get("content") or ""
                    end = choice["finish_reason"] or end
    except Broken:
        return text, "broken"
    except json.JSONDecodeError:
        return text, "unreadable"
    return text, end


def up_to(n: int) -> str:
    return "".join(numbered_word(number, RUN, 1) for number in range(1, n))


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("none", (HEALTHY, "stop")),
        ("cut", (up_to(4), "broken")),
        ("malformed", (up_to(4), "unreadable")),
        ("empty", ("", "stop")),
        ("no-tool-call", ("", "tool_calls")),
        ("429", (up_to(4), "rate_limit_exceeded")),
        ("gone", (up_to(4), "broken")),
    ],
)
async def test_a_fault_meets_the_first_attempt_at_its_word(
    provider: Provider, fault: str, expected: tuple[str, str]
) -> None:
    provider.plans[RUN] = Plan(fault, at=4, words=6, pace_s=0)
    assert await answer(provider, request()) == expected


async def test_the_second_attempt_is_healthy_and_has_other_words(provider: Provider) -> None:
    provider.plans[RUN] = Plan("cut", at=4, words=6, pace_s=0)
    await answer(provider, request())
    text, end = await answer(provider, request())
    assert (text, end) == (HEALTHY.replace(".a ", ".b "), "stop")


async def test_it_goes_on_from_the_text_that_a_request_ends_with(provider: Provider) -> None:
    provider.plans[RUN] = Plan(words=6, pace_s=0)
    text, _ = await answer(provider, request(up_to(4)))
    assert text == HEALTHY.removeprefix(up_to(4))


async def test_a_provider_that_is_gone_refuses_connections(provider: Provider) -> None:
    provider.plans[RUN] = Plan("gone", at=4, words=6, pace_s=0)
    await answer(provider, request())
    with pytest.raises(Broken):
        await fetch("GET", f"{provider.url}/models")


async def test_a_tool_is_asked_for_once_and_its_use_is_written_down(provider: Provider, tmp_path: Path) -> None:
    tool = ("record", {"url": provider.tool_url(RUN)})
    provider.plans[RUN] = Plan(words=6, pace_s=0, tool=tool)
    body = request(stream=False)
    asked = json.loads((await fetch("POST", f"{provider.url}/chat/completions", body=body)).body)
    [call] = asked["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"url": provider.tool_url(RUN)}
    await fetch("GET", provider.tool_url(RUN))
    body["messages"].append({"role": "tool", "tool_call_id": call["id"], "content": '{"ok": true}'})
    told = json.loads((await fetch("POST", f"{provider.url}/chat/completions", body=body)).body)
    assert told["choices"][0]["message"]["content"] == HEALTHY
    written = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [record["what"] for record in written] == ["asked", "ran", "asked", *["said"] * 6]


async def calls_of(provider: Provider, body: dict[str, Any]) -> list[Any]:
    told = json.loads((await fetch("POST", f"{provider.url}/chat/completions", body=body)).body)
    calls: list[Any] = told["choices"][0]["message"].get("tool_calls", [])
    return calls


async def test_I106_a_call_is_made_again_where_it_was_forgotten_and_not_where_its_result_is_unknown(
    provider: Provider, tmp_path: Path
) -> None:
    provider.plans[RUN] = Plan(words=6, pace_s=0, tool=("record", {"url": provider.tool_url(RUN)}))
    body = request(stream=False)
    for _ in range(2):
        [call] = await calls_of(provider, body)
    result = {"role": "tool", "tool_call_id": call["id"], "content": "interrupted: it may or may not have been invoked"}
    body["messages"].append(result)
    assert await calls_of(provider, body) == []
    written = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [record["what"] for record in written][:4] == ["asked", "asked", "told", "asked"]


@pytest.mark.parametrize(
    "content", ['{"ok": true}', '{"ok":true}\n[exit code 0]', "{'ok': True}", '"{\\"ok\\": true}"']
)
async def test_a_result_that_the_tool_gave_is_one_however_it_is_quoted(
    provider: Provider, tmp_path: Path, content: str
) -> None:
    provider.plans[RUN] = Plan(words=6, pace_s=0, tool=("record", {}))
    body = request(stream=False)
    body["messages"].append({"role": "tool", "tool_call_id": "call_1", "content": content})
    assert await calls_of(provider, body) == []
    assert '"told"' not in (tmp_path / "history.jsonl").read_text(encoding="utf-8")


async def test_a_tool_that_is_held_has_its_effect_and_no_answer_yet(provider: Provider, tmp_path: Path) -> None:
    provider.holds_tools = True
    answer = asyncio.ensure_future(fetch("GET", provider.tool_url(RUN)))
    await provider.tools_begun(1)
    assert '"ran"' in (tmp_path / "history.jsonl").read_text(encoding="utf-8")
    assert not answer.done()
    await provider.answer_tools()
    assert (await answer).json() == {"ok": True}


def test_words_are_read_from_any_pieces() -> None:
    for size in range(1, len(HEALTHY)):
        words = Words()
        pieces = [HEALTHY[place : place + size] for place in range(0, len(HEALTHY), size)]
        read = [n for piece in pieces for n, _ in words.feed(piece)]
        assert [*read, *(n for n, _ in words.end())] == [1, 2, 3, 4, 5, 6]


def test_two_words_that_a_seam_glued_together_have_no_number() -> None:
    assert [n for n, _ in Words().feed("t1.run-a.at2.run-a.b t3.run-a.a ")] == [0, 3]


def test_nothing_of_the_proof_imports_the_product() -> None:
    """Its verdict on Tailrace is worth as much as its verdict on others."""
    folder = Path(provider_module.__file__).parent
    modules = [path for path in folder.rglob("*.py") if "programs" not in path.parts]
    assert len(modules) > 10
    for path in modules:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.partition(".")[0] == "tailrace"], path.name
