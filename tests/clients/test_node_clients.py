"""The SDKs for Node.js do whole turns against `tailrace serve`: the same dialect, other dialects and the agent.

Each program in `programs/` runs all its scenarios in one process and prints one JSON line.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from clients.installed import PROGRAMS, run_client
from clients.serve import KEY, Served, tailrace_serve
from clients.turns import ANSWER, REPORT, THOUGHTS, TOOLS, TurnProvider

RAW = ["gpt-5", "deepseek/deepseek-reasoner", "anthropic/claude-sonnet-4-5"]  # responses, chat, anthropic
MODELS = [*RAW, "tailrace"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with turn_server(tmp_path_factory.mktemp("served"), "openai/gpt-5") as running:
        yield running


def turn_server(home: Path, model: str) -> AbstractContextManager[Served]:
    """The agent uses `model`; the file that it reads is in its directory."""
    home.mkdir(exist_ok=True)
    (home / "notes.txt").write_text("rain", encoding="utf-8")
    provider, _, name = model.partition("/")
    return tailrace_serve(home, TurnProvider(), {"model": {"provider": provider, "name": name}})


def run_program(name: str, served: Served, home: Path, models: list[str]) -> dict[str, Any]:
    for program in PROGRAMS.glob("*.mjs"):
        shutil.copy(program, home)
    variables = {"TAILRACE_URL": served.url, "TAILRACE_API_KEY": KEY, "MODELS": json.dumps(models)}
    ended = run_client(["node", name], home, variables)
    assert ended.returncode == 0, f"{ended.stderr}\n{served.log}"
    shown: dict[str, Any] = json.loads(ended.stdout)
    return shown


def for_each_model(models: list[str], wanted: dict[str, Any], agent: dict[str, Any] | None = None) -> dict[str, Any]:
    """Every scenario with every model ends the same, but for what the agent does otherwise."""
    return {
        f"{name} {model}": (agent or {}).get(name, value) if model == "tailrace" else value
        for name, value in wanted.items()
        for model in models
    }


def ai_sdk_turns(thoughts: list[str]) -> list[dict[str, Any]]:
    return [{"calls": TOOLS, "reasoning": thoughts, "text": ANSWER, "finish": "stop", "tokens": 100}] * 2


THOUGHT, SILENT = ai_sdk_turns(THOUGHTS), ai_sdk_turns(["", "", ""])
AI_SDK: dict[str, Any] = {
    "responses": THOUGHT,
    "responses reasoning": THOUGHT,
    "responses unstored": THOUGHT,
    "chat": SILENT,  # this provider of the SDK reads no reasoning
    "compatible": THOUGHT,
    "anthropic": THOUGHT,
    "anthropic thinking": THOUGHT,
    **{f"object {provider}": [REPORT, REPORT] for provider in ("responses", "chat", "compatible", "anthropic")},
}
# the agent shows its thoughts to a client that asks for them
AI_SDK_AGENT = dict.fromkeys(["responses", "compatible", "anthropic"], SILENT)
TURN = {"calls": TOOLS, "text": ANSWER}
OPENAI: dict[str, Any] = {
    "runTools": {**TURN, "tokens": 100},
    "runTools streamed": {**TURN, "tokens": 100},
    "loop": [TURN, TURN],
    "loop reasoning": [TURN, TURN],
    "chained": TURN,
    "background": {"same": True, "last": "response.completed", "text": ANSWER, "status": "completed"},
    "parse": [REPORT, REPORT, REPORT],
}
ANTHROPIC: dict[str, Any] = {
    "toolRunner": {**TURN, "stop": "end_turn"},
    "toolRunner streamed": {**TURN, "stop": "end_turn"},
    "thinking": [{**TURN, "thoughts": "".join(THOUGHTS)}] * 2,
    "parse": [REPORT, REPORT],
    "count": {"counted": True},
}


def test_the_ai_sdk(served: Served, tmp_path: Path) -> None:
    models = ["openai/gpt-5", *MODELS]  # with the prefix the SDK does not know that the model reasons
    shown = run_program("ai_sdk.mjs", served, tmp_path, models)
    assert shown == for_each_model(models, AI_SDK, AI_SDK_AGENT)


def test_the_openai_sdk(served: Served, tmp_path: Path) -> None:
    assert run_program("openai_sdk.mjs", served, tmp_path, MODELS) == for_each_model(MODELS, OPENAI)


def test_the_anthropic_sdk(served: Served, tmp_path: Path) -> None:
    assert run_program("anthropic_sdk.mjs", served, tmp_path, MODELS) == for_each_model(MODELS, ANTHROPIC)


@pytest.mark.parametrize("model", ["deepseek/deepseek-reasoner", "anthropic/claude-sonnet-4-5"])
def test_an_agent_whose_model_speaks_another_dialect(model: str, tmp_path: Path) -> None:
    with turn_server(tmp_path / "served", model) as agent:
        programs = {
            name: run_program(name, agent, tmp_path, ["tailrace"])
            for name in ("ai_sdk.mjs", "openai_sdk.mjs", "anthropic_sdk.mjs")
        }
    assert programs == {
        "ai_sdk.mjs": for_each_model(["tailrace"], AI_SDK, AI_SDK_AGENT),
        "openai_sdk.mjs": for_each_model(["tailrace"], OPENAI),
        "anthropic_sdk.mjs": for_each_model(["tailrace"], ANTHROPIC),
    }
