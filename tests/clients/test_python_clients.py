"""Agent frameworks and SDKs, unchanged, through whole turns: against providers of every dialect, and the agent.

The provider refuses what the vendors' APIs refuse. Each program prints what its client made of the answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from proof.strict_provider import StrictProvider

from clients.python_clients import ANSWER, TURNS, run_program
from clients.serve import tailrace_serve

RAW = ("deepseek/agentic", "openai/agentic", "anthropic/agentic")  # chat, responses, anthropic
# Their chat models drop the reasoning of a chat provider, which then refuses, also without a server in between.
RAW_WITHOUT_CHAT_REASONING = (
    "deepseek/plain=chat",
    "deepseek/agentic=responses,messages",
    "openai/agentic",
    "anthropic/agentic",
)
LEVEL = {"river": "text", "metres": 1}  # made up by the provider, of the schema's form


def said_by(home: Path, program: str, models: Sequence[str], *, agent: str) -> dict[str, Any]:
    """`agent`: the provider behind the agent, which is the model `tailrace`."""
    provider = StrictProvider(turns=TURNS, returns_reasoning=True)
    sections = {"model": {"provider": agent, "name": "agentic"}}
    with tailrace_serve(home / "server", provider, sections) as served:
        said = run_program(program, served, home, [*models, "tailrace"])
        assert provider.refusals == [], said
    return said


def of_every_model(models: Sequence[str], checks: Mapping[str, Any]) -> dict[str, Any]:
    expected: dict[str, Any] = {}
    for model in models:
        name, _, words = model.partition("=")
        expected |= {
            f"{name} {check}": said for check, said in checks.items() if check.startswith(tuple(words.split(",")))
        }
    return expected


def test_anthropic_sdk(tmp_path: Path) -> None:
    stops = ["tool_use", "tool_use", "end_turn"]
    checks = {
        "tool_runner": [stops, [ANSWER]],
        "tool_runner_thinking": [stops, 3, [ANSWER]],
        "tool_runner_streamed": [stops, [ANSWER]],
        "parsed": LEVEL,
        "counted": True,
    }
    said = said_by(tmp_path, "anthropic_sdk", RAW, agent="openai")
    assert said == of_every_model((*RAW, "tailrace"), checks)


def test_openai_sdk(tmp_path: Path) -> None:
    thought = [
        [["reasoning", "message", "function_call"], ["reasoning", "function_call"], ["reasoning", "message"]],
        ANSWER,
    ]
    hidden = [[["message", "function_call"], ["function_call"], ["message"]], ANSWER]
    checks = {
        "input_plus_output": thought,
        "input_plus_output_unstored": thought,
        "input_plus_output_streamed": thought,
        "previous_response": thought,
        "background_resumed": thought,
        "parsed": LEVEL,
        "chat": [["tool_calls", "tool_calls", "stop"], ANSWER],
        "chat_parsed": LEVEL,
    }
    unasked = dict.fromkeys(["input_plus_output_streamed", "previous_response", "background_resumed"], hidden)
    said = said_by(tmp_path, "openai_sdk", RAW, agent="anthropic")
    assert said == of_every_model(RAW, checks) | of_every_model(["tailrace"], checks | unasked)


def test_openai_agents(tmp_path: Path) -> None:
    step = ["tool_call_item", "tool_call_output_item"]
    plain = [["message_output_item", *step, *step, "message_output_item"], ANSWER]
    said_after_thought = ["reasoning_item", "message_output_item"]
    thought = [[*said_after_thought, *step, "reasoning_item", *step, *said_after_thought], ANSWER]
    checks = {
        "responses": thought,
        "responses_streamed": thought,
        "responses_typed": LEVEL,
        "chat": thought,
        "chat_typed": LEVEL,
    }
    models = [*RAW_WITHOUT_CHAT_REASONING, "tailrace"]
    said = said_by(tmp_path, "openai_agents", RAW_WITHOUT_CHAT_REASONING, agent="deepseek")
    assert said == of_every_model(models, checks) | {"deepseek/plain chat": plain, "tailrace chat": plain}


def test_langchain(tmp_path: Path) -> None:
    turn = [["human", "ai", "tool", "ai", "tool", "ai"], ANSWER]
    checks = {
        f"{api}{kind}": LEVEL if kind == "_typed" else turn
        for api in ("chat", "responses", "messages")
        for kind in ("", "_streamed", "_typed")
    }
    said = said_by(tmp_path, "langchain_agents", RAW_WITHOUT_CHAT_REASONING, agent="anthropic")
    assert said == of_every_model([*RAW_WITHOUT_CHAT_REASONING, "tailrace"], checks)


def test_pydantic_ai(tmp_path: Path) -> None:
    step = ["tool-call", "tool-return"]
    plain = [["user-prompt", "text", *step, *step, "text"], ANSWER]
    thought = [["user-prompt", "thinking", "text", *step, "thinking", *step, "thinking", "text"], ANSWER]
    checks = {
        f"{api}{kind}": LEVEL if kind == "_typed" else thought
        for api in ("chat", "responses", "messages")
        for kind in ("", "_streamed", "_typed")
    } | {"chat_native": LEVEL}
    unasked = dict.fromkeys(["chat", "chat_streamed", "messages", "messages_streamed"], plain)
    said = said_by(tmp_path, "pydantic_ai_agents", RAW, agent="openai")
    assert said == of_every_model(RAW, checks) | of_every_model(["tailrace"], checks | unasked)
