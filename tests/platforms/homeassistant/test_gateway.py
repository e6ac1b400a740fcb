"""The gateway with Home Assistant alone: from an event to the notification, over restarts of the other side."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from platforms.gateways import running_gateway
from tailrace.testing.clock import driven
from tailrace.testing.platforms.homeassistant import FakeHomeAssistant
from tailrace.testing.provider import FaultyProvider, Reply, Scenario, reply


@asynccontextmanager
async def served(home: Path, *script: Reply | Scenario) -> AsyncIterator[tuple[FakeHomeAssistant, FaultyProvider]]:
    async with FakeHomeAssistant() as fake:
        settings = f'homeassistant: {{enabled: true, allow: [ada, home], url: "{fake.url}"}}'
        async with running_gateway(home, script, settings, {"HASS_TOKEN": fake.token}) as (_, provider):
            await fake.until(lambda: fake.called("subscribe_events"))
            yield fake, provider


@driven
async def test_an_event_is_answered_whole_in_its_conversation(tmp_path: Path) -> None:
    async with served(tmp_path, Scenario(reply=reply("It is 21 °C."), pace_s=1.0), reply("Still 21.")) as (home, _):
        await home.fire("tailrace_message", {"text": "how warm is it?", "user": "ada", "conversation_id": "kitchen"})
        await home.until(lambda: home.fired)
        await home.say_to_assist("how warm is it now")
        await home.until(lambda: len(home.fired) == 2)
        assert [fired.data["conversation_id"] for fired in home.fired] == ["kitchen", "home"]
        assert home.messages == ["It is 21 °C.", "Still 21."]
        assert all(len(shown.states) == 1 for shown in home.notifications.values())


@driven
async def test_an_answer_waits_for_a_home_that_restarts(tmp_path: Path) -> None:
    async with served(tmp_path, Scenario(reply=reply("one two three four"), pace_s=1.0)) as (home, _):
        await home.fire("tailrace_message", {"text": "hello", "user": "ada"})
        await home.restart()
        await home.until(lambda: home.messages == ["one two three four"])
        assert home.connections == 2


@driven
async def test_somebody_who_is_not_served_is_not_answered(tmp_path: Path) -> None:
    async with served(tmp_path, reply("Hello, Ada.")) as (home, provider):
        await home.fire("tailrace_message", {"text": "hello", "user": "eve"})
        await home.fire("tailrace_message", {"text": "hello", "user": "ada"})
        await home.until(lambda: any(fired.data["conversation_id"] == "ada" for fired in home.fired))
        assert len(provider.requests) == 1
