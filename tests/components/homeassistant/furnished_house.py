"""A real Home Assistant that was set up through the integration's flow, a server for it, and a model behind that."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

from components.homeassistant.home import Heard, Home, Tailrace, homeassistant_python, started_home
from tailrace.messages import JsonObject
from tailrace.testing.provider import FaultyProvider, Scenario, Status, call, reply
from tailrace.testing.scripted.request_reader import ScriptedRequest

KEY = "a key for the house"
WORDS = [f"word{number} " for number in range(30)]


class HouseModel(FaultyProvider):
    """Answers by what the last question asks for."""

    def choose(self, request: ScriptedRequest) -> Scenario:
        messages = request.body["messages"]
        question = next(_text(each) for each in reversed(messages) if each["role"] == "user")
        answered = messages[-1]["role"] == "tool"
        match question.partition(" ")[0]:
            case "count":
                return Scenario(reply=reply(*WORDS), pace_s=0.03)
            case "slowly":
                return Scenario(reply=reply(*WORDS), pace_s=0.2)
            case "look":
                look = reply("Let me look.", call("read_file", {"path": "notes.txt"}))
                return Scenario(reply=reply("There is nothing.") if answered else look)
            case "remove":
                remove = reply("I would remove it.", call("terminal", {"command": "rm -rf build"}))
                return Scenario(reply=reply("That is settled.") if answered else remove)
            case "earlier":
                return Scenario(reply=reply(f"{sum(each['role'] == 'user' for each in messages)} questions."))
            case "nothing":
                return Scenario(reply=reply())
            case "blanks":
                return Scenario(reply=reply("  ", "\n"))
            case "fail":
                return Scenario(status=Status(400))
            case "refuse":
                return Scenario(status=Status(401))
            case _:
                return Scenario(reply=reply("Hello!"))


def _text(message: JsonObject) -> str:
    content = message["content"]
    return str(content) if isinstance(content, str) else "".join(part.get("text", "") for part in content)


@dataclass
class House:
    home: Home
    tailrace: Tailrace
    entry: str
    entity: str
    pipelines: dict[str, str]

    async def say(self, text: str, language: str = "en", **fields: Any) -> Heard:
        return await (await self.home.say(self.pipelines[language], text, **fields)).answer()

    async def newest_run(self) -> dict[str, Any]:
        return (await self.tailrace.runs())[0]


@asynccontextmanager
async def furnished_house(directory: Path) -> AsyncIterator[House]:
    python = homeassistant_python() or _missing()
    (directory / "home").mkdir()
    async with (
        HouseModel() as provider,
        Tailrace(directory / "tailrace", _settings(provider), KEY) as tailrace,
        started_home(python, directory / "home") as home,
    ):
        entry = await _set_up(home, tailrace)
        entity = await entity_of(home, entry)
        pipelines = {language: await add_pipeline(home, entity, language) for language in ("en", "de")}
        yield House(home, tailrace, entry, entity, pipelines)


def _missing() -> NoReturn:
    reason = "Home Assistant is not installed: set TAILRACE_HOMEASSISTANT_PYTHON, or run `make homeassistant`"
    if os.environ.get("TAILRACE_HOMEASSISTANT_PYTHON"):
        pytest.fail(reason)
    pytest.skip(reason)


def _settings(provider: FaultyProvider) -> dict[str, Any]:
    return {
        "model": {"provider": "fake", "name": "any"},
        "providers": {"fake": {"dialect": "chat", "base_url": provider.openai_url, "backoff_s": 0.01}},
        "agent": {"tools": ["terminal", "read_file"]},
        "approvals": {"mode": "ask", "timeout_s": 60},
        "store": {"lease_s": 1.5},
        "server": {"drain_s": 0.05},
    }


async def _set_up(home: Home, tailrace: Tailrace) -> str:
    """Through the flow, as a person does who mistypes first."""
    flow = await home.http("POST", "/api/config/config_entries/flow", {"handler": "tailrace"})
    assert flow["step_id"] == "user"
    path = f"/api/config/config_entries/flow/{flow['flow_id']}"
    address = tailrace.url.removeprefix("http://")
    given = {"url": f" {address}/v1/ ", "api_key": KEY, "verify_ssl": True}
    mistakes: list[tuple[dict[str, str], dict[str, str]]] = [
        ({"url": "ftp://nowhere"}, {"url": "invalid_url"}),
        ({"url": "no address"}, {"url": "invalid_url"}),
        ({"url": "http://192.168.1..10:8642"}, {"url": "invalid_url"}),
        ({"url": "http://127.0.0.1:9"}, {"base": "cannot_connect"}),
        ({"url": home.url}, {"base": "not_tailrace"}),
        ({"url": f"https://{address}"}, {"url": "no_tls"}),
        ({"api_key": "wrong"}, {"api_key": "invalid_auth"}),
        ({"api_key": " "}, {"api_key": "no_key"}),
        ({"api_key": f"{KEY}\n{KEY}"}, {"api_key": "invalid_auth"}),
    ]
    for mistake, errors in mistakes:
        assert (await home.http("POST", path, {**given, **mistake}))["errors"] == errors
    made = await home.http("POST", path, given)
    assert made["type"] == "create_entry", made
    return str(made["result"]["entry_id"])


async def entity_of(home: Home, entry: str) -> str:
    entities = await home.ask("config/entity_registry/list")
    [entity] = [each["entity_id"] for each in entities if each["config_entry_id"] == entry]
    return str(entity)


async def add_pipeline(home: Home, entity: str, language: str) -> str:
    none = dict.fromkeys(("stt_engine", "stt_language", "tts_engine", "tts_language", "tts_voice"))
    none |= dict.fromkeys(("wake_word_entity", "wake_word_id"))
    made = await home.ask(
        "assist_pipeline/pipeline/create",
        name=f"Tailrace {language}",
        language=language,
        conversation_engine=entity,
        conversation_language="*",
        **none,
    )
    return str(made["id"])
