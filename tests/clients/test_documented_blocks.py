"""docs/clients.md is held to what it says: every block runs as it stands, only the server's address is another."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
import yaml

from clients.installed import ROOT, run_client
from clients.serve import KEY, Served, tailrace_serve
from clients.turns import ANSWER, TurnProvider

ADDRESS = "http://127.0.0.1:8642"
COMMANDS = {"sh": ["sh", "block.sh"], "python": ["python", "block.py"], "js": ["node", "block.mjs"]}
NEEDED = {
    *("claude-code", "codex", "openai-python", "openai-node", "anthropic-python", "anthropic-node"),
    *("ai-sdk", "openai-agents", "langchain", "pydantic-ai"),
}


class Block(NamedTuple):
    language: str
    attributes: dict[str, str]
    text: str


def documented_blocks() -> list[Block]:
    page = (ROOT / "docs/clients.md").read_text(encoding="utf-8")
    blocks = []
    for language, info, text in re.findall(r"^```(\w+)(.*)\n((?:.*\n)*?)```$", page, re.MULTILINE):
        blocks.append(Block(language, dict(word.split("=", 1) for word in info.split()), text))
    return blocks


BLOCKS = documented_blocks()
RUN = sorted({block.attributes["client"] for block in BLOCKS if "client" in block.attributes})
CONFIGURED = {block.attributes["config"]: block for block in BLOCKS if "config" in block.attributes}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with tailrace_serve(tmp_path_factory.mktemp("served"), TurnProvider()) as running:
        yield running


def test_the_page_has_a_block_for_every_client_that_is_promised() -> None:
    assert set(RUN) >= NEEDED
    others = [block for block in BLOCKS if not block.attributes]
    assert [block.text.split("=")[0] for block in others] == ["export TAILRACE_API_KEY"], "a block that no test runs"


@pytest.mark.parametrize("client", RUN)
def test_the_block_runs_as_it_stands(client: str, served: Served, tmp_path: Path) -> None:
    shown, asked_before = "", len(served.provider.requests)
    for block in BLOCKS:
        if block.attributes.get("client") != client:
            continue
        text = block.text.replace(ADDRESS, served.url)
        if name := block.attributes.get("file"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text, encoding="utf-8")
            continue
        command = COMMANDS[block.language]
        (tmp_path / command[-1]).write_text(text, encoding="utf-8")
        ended = run_client(command, tmp_path, {"TAILRACE_API_KEY": KEY})
        assert ended.returncode == 0, f"{ended.stderr}\n{ended.stdout}\n{served.log}"
        shown += ended.stdout
        if "get_weather" in text:
            assert b"rain in Bergen" in served.provider.requests[-1].body
    assert ANSWER in (streamed_text(shown) if client == "curl" else shown)
    asked = served.provider.requests[asked_before:]
    assert asked
    assert [request.refusal for request in asked if request.refusal] == []


def streamed_text(body: str) -> str:
    chunks = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"])


@pytest.mark.parametrize("program", sorted(CONFIGURED))
async def test_a_configured_program_finds_its_models(program: str, served: Served) -> None:
    block = CONFIGURED[program]
    base, models = base_url_and_models(program, block)
    assert base == ADDRESS + "/v1"
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as session:
        async with session.get(f"{served.url}/v1/models") as response:
            assert response.status == 200
        for model in models:
            body = {"model": model, "messages": [{"role": "user", "content": "Where does the water go?"}]}
            async with session.post(f"{served.url}/v1/chat/completions", json=body) as response:
                answer = await response.json()
            assert answer["choices"][0]["message"]["content"] == ANSWER


def base_url_and_models(program: str, block: Block) -> tuple[str, list[str]]:
    """What the program would make of its settings."""
    settings = settings_in(block)
    match program:
        case "opencode":
            provider = settings["provider"]["tailrace"]
            return provider["options"]["baseURL"], list(provider["models"])
        case "zed":
            provider = settings["language_models"]["openai_compatible"]["tailrace"]
            return provider["api_url"], [model["name"] for model in provider["available_models"]]
        case "continue":
            return settings["models"][0]["apiBase"], [model["model"] for model in settings["models"]]
        case "llm":
            return settings[0]["api_base"], [model["model_name"] for model in settings]
        case "open-webui":
            return settings["OPENAI_API_BASE_URL"], ["tailrace"]
        case "aider":
            return settings["OPENAI_API_BASE"], ["tailrace"]
        case _:
            raise AssertionError(f"say how {program} reads its settings")


def settings_in(block: Block) -> Any:
    match block.language:
        case "json":
            return json.loads(block.text)
        case "yaml":
            return yaml.safe_load(block.text)
        case "toml":
            return tomllib.loads(block.text)
        case _:
            return dict(word.split("=", 1) for word in block.text.split() if "=" in word)
