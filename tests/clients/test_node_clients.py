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

# DeepSeek wants its reasoning back, and these loops drop it: the Responses ones return it
NO_REASONING = "Missing `reasoning_content` field in the assistant message at message index 1."
RAW = ["gpt-5", "deepseek/deepseek-reasoner", "anthropic/claude-sonnet-5"]  # responses, chat, anthropic
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


def for_each_model(models: list[str], wanted: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Every scenario ends the same with every model, but for `others`, which name the model too."""
    told = {name: value for name, value in wanted.items() if len(models) > 1 or not name.startswith("switched")}
    whole = {f"{name} {model}": value for name, value in told.items() for model in models}
    return whole | {name: value for name, value in others.items() if name in whole}


def ai_sdk_turns(thoughts: list[str]) -> list[dict[str, Any]]:
    return [{"calls": TOOLS, "reasoning": thoughts, "text": ANSWER, "finish": "stop", "tokens": 100}] * 2


THOUGHT, SILENT = ai_sdk_turns(THOUGHTS), ai_sdk_turns(["", "", ""])
TURN = {"calls": TOOLS, "text": ANSWER}
AI_SDK: dict[str, Any] = {
    "responses": THOUGHT,
    "responses reasoning": THOUGHT,
    "responses unstored": THOUGHT,
    "chat": SILENT,  # this provider of the SDK reads no reasoning
    "compatible": THOUGHT,
    "anthropic": THOUGHT,
    "anthropic thinking": THOUGHT,
    **{f"switched {provider}": [TURN] * 5 for provider in ("responses", "unstored", "compatible", "anthropic")},
    **{f"object {provider}": [REPORT] * 2 for provider in ("responses", "chat", "compatible", "anthropic")},
}
AI_SDK_OTHERS: dict[str, Any] = {
    # the agent shows its thoughts to a client that asks for them
    **dict.fromkeys(["responses tailrace", "compatible tailrace", "anthropic tailrace"], SILENT),
    "chat deepseek/deepseek-reasoner": {"error": f"AI_APICallError: {NO_REASONING}"},
}
OPENAI: dict[str, Any] = {
    "runTools": {**TURN, "tokens": 100},
    "runTools streamed": {**TURN, "tokens": 100},
    "loop": [TURN, TURN],
    "loop reasoning": [TURN, TURN],
    "chained": TURN,
    "background": {"same": True, "last": "response.completed", "text": ANSWER, "status": "completed"},
    "parse": [REPORT] * 3,
}
OPENAI_OTHERS: dict[str, Any] = {
    f"{loop} deepseek/deepseek-reasoner": {"error": f"Error: 400 {NO_REASONING}"}
    for loop in ("runTools", "runTools streamed")
}
ANTHROPIC: dict[str, Any] = {
    "toolRunner": {**TURN, "stop": "end_turn"},
    "toolRunner streamed": {**TURN, "stop": "end_turn"},
    "thinking": [{**TURN, "thoughts": "".join(THOUGHTS)}] * 2,
    "parse": [REPORT, REPORT],
    "count": {"counted": True},
}
PROGRAMS_SHOW = {
    "ai_sdk.mjs": (AI_SDK, AI_SDK_OTHERS),
    "openai_sdk.mjs": (OPENAI, OPENAI_OTHERS),
    "anthropic_sdk.mjs": (ANTHROPIC, {}),
}


@pytest.mark.parametrize("program", PROGRAMS_SHOW)
def test_an_sdk_does_whole_turns_with_every_model(program: str, served: Served, tmp_path: Path) -> None:
    already = len(served.provider.refusals)
    shown = run_program(program, served, tmp_path, MODELS)
    assert shown == for_each_model(MODELS, *PROGRAMS_SHOW[program])
    assert set(served.provider.refusals[already:]) <= {NO_REASONING}


@pytest.mark.parametrize("model", ["deepseek/deepseek-reasoner", "anthropic/claude-sonnet-5"])
def test_an_agent_whose_model_speaks_another_dialect(model: str, tmp_path: Path) -> None:
    agent = ["tailrace"]
    with turn_server(tmp_path / "served", model) as served:
        shown = {program: run_program(program, served, tmp_path, agent) for program in PROGRAMS_SHOW}
        assert served.provider.refusals == []
    assert shown == {program: for_each_model(agent, *wanted) for program, wanted in PROGRAMS_SHOW.items()}
