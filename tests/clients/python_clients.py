"""Programs written with agent frameworks and SDKs for Python, run against `tailrace serve` before a strict provider."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clients.installed import PROGRAMS, clients_dir, run_client
from clients.serve import KEY, Served
from tailrace.testing.provider import Reply, call, reply, think
from tailrace.testing.scripted import ThinkingBlock

ANSWER = "The Aare is at 3.2 m, and it rains."
_TURN: Sequence[Reply] = (
    reply(think("The river first."), "Let me look.", call("water_level", {"river": "Aare"})),
    reply(think("Now the weather."), call("weather", {"city": "Bern"})),
    reply(think("Enough."), ANSWER),
)
TURNS: dict[str, Sequence[Reply]] = {
    "agentic": _TURN,
    "plain": [reply(*(each for each in step.blocks if not isinstance(each, ThinkingBlock))) for step in _TURN],
}


def run_program(name: str, served: Served, home: Path, models: Sequence[str]) -> dict[str, Any]:
    """What the program said in each of its checks of each of the models, by `<model> <check>`; a failure as a text."""
    variables = {
        "MODEL": " ".join(models),
        "OPENAI_BASE_URL": served.url + "/v1",
        "OPENAI_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": served.url,
        "ANTHROPIC_API_KEY": KEY,
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "LANGSMITH_TRACING": "false",
    }
    ended = run_client([clients_dir() / "venv/bin/python", PROGRAMS / f"{name}.py"], home, variables)
    assert ended.returncode == 0, f"{ended.stderr}\n{served.log}"
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    return {f"{line['model']} {line['check']}": line.get("said", line.get("error")) for line in lines}
