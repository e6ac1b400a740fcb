"""The gateway with Home Assistant alone: from an event to the notification, over restarts of the other side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from proof.platforms.homeassistant import FakeHomeAssistant

from gateway.gateways import config_for, running_gateway
from tailrace.app import open_app
from tailrace.gateway.gateway import Gateway
from tailrace.testing.clock import driven
from tailrace.testing.provider import FaultyProvider, Reply, Scenario, Status, call, reply


@asynccontextmanager
async def served(home: Path, *script: Reply | Scenario) -> AsyncIterator[tuple[FakeHomeAssistant, FaultyProvider]]:
    async with FakeHomeAssistant() as fake:
        settings = f'homeassistant: {{enabled: true, allow: [ada, home], url: "{fake.url}"}}'
        async with running_gateway(home, script, settings, {"HASS_TOKEN": fake.token}) as (_, provider):
            await fake.until(lambda: fake.called("subscribe_events")[1:])
            yield fake, provider


@driven
async def test_an_event_is_answered_whole_in_its_conversation(tmp_path: Path) -> None:
    async with served(tmp_path, Scenario(reply=reply("It is 21 °C."), pace_s=1.0), reply("Still 21.")) as (home, _):
        await home.fire("tailrace_message", {"text": "how warm is it?", "user": "ada", "conversation_id": "kitchen"})
        await home.until(lambda: home.fired)
        await home.fire("tailrace_message", {"text": "how warm is it now"})
        await home.until(lambda: len(home.fired) == 2)
        assert [fired.data["conversation_id"] for fired in home.fired] == ["kitchen", "home"]
        assert home.messages == ["It is 21 °C.", "Still 21."]
        states = [shown.states for shown in home.notifications.values()]
        assert [[state.title for state in shown] for shown in states] == [["Tailrace · kitchen"], ["Tailrace"]]


@driven
async def test_an_answer_waits_until_a_home_that_restarts_is_running(tmp_path: Path) -> None:
    """The connection is back ten seconds before the automations are: what is fired before that is heard by none."""
    async with served(tmp_path, Scenario(reply=reply("one two three four"), pace_s=1.0)) as (home, _):
        await home.fire("tailrace_message", {"text": "hello", "user": "ada"})
        await home.restart()
        await home.until(lambda: home.connections == 2)
        assert home.state == "NOT_RUNNING"
        await home.until(lambda: home.fired)
        assert home.messages == [home.fired[0].data["text"]] == ["one two three four"]
        assert home.unheard == []


@driven
async def test_the_start_of_home_assistant_wakes_an_answer_that_waits_for_its_next_try(tmp_path: Path) -> None:
    """However long it takes: an answer is not given up because the other side is not there."""
    async with served(tmp_path, Scenario(reply=reply("one two three four"), pace_s=1.0)) as (home, _):
        await home.fire("tailrace_message", {"text": "hello", "user": "ada"})
        await home.restart(start_s=None)
        await asyncio.sleep(1800)
        started_at = home.now()
        await home.start()
        await home.until(lambda: home.fired)
        assert home.now() - started_at < 5
        assert home.messages == ["one two three four"]


@driven
async def test_a_refused_token_is_tried_once_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with FakeHomeAssistant(ban_after=2) as home, FaultyProvider() as provider:
        settings = f'homeassistant: {{enabled: true, allow: [ada], url: "{home.url}"}}'
        config = config_for(tmp_path, provider, settings, {"HASS_TOKEN": "wrong-token"})
        async with open_app(config, directory=tmp_path) as app, Gateway(app):
            await home.until(lambda: home.refused_tokens)
            await asyncio.sleep(600)
            assert home.refused_tokens == 1
            assert "the token was refused" in app.degraded["homeassistant"]
            assert "not tried again before a restart" in app.degraded["homeassistant"]
    assert any(record.levelname == "ERROR" and "token was refused" in record.message for record in caplog.records)


@driven
async def test_pairing_codes_approvals_and_tools_are_not_spoken(tmp_path: Path) -> None:
    """Automations speak `tailrace_response`: what is not an answer is another event."""
    asked = reply("I clean up.", call("terminal", {"command": "rm -rf build"}))
    async with served(tmp_path, asked, reply("Done.")) as (home, _):
        await home.fire("tailrace_message", {"text": "hello", "user": "eve"})
        await home.until(lambda: home.fired)
        await home.fire("tailrace_message", {"text": "clean up", "user": "ada"})
        await home.until(lambda: [fired for fired in home.fired if fired.data.get("kind") == "approval"])
        await home.fire("tailrace_message", {"text": "/deny", "user": "ada"})
        await home.until(lambda: home.fired[-1].data["text"] == "Done.")
        spoken = [fired.data["text"] for fired in home.fired if fired.type == "tailrace_response"]
        assert spoken == ["I clean up.", "Done."], "M149: all texts of the answer"
        notices = {fired.data["kind"] for fired in home.fired if fired.type == "tailrace_notice"}
        assert notices == {"pairing", "approval", "tools"}
        assert any("--pair" in fired.data["text"] for fired in home.fired if fired.data.get("kind") == "pairing")


@driven
async def test_failures_and_replies_to_commands_are_not_spoken(tmp_path: Path) -> None:
    async with served(tmp_path, Scenario(status=Status(400)), *[reply()] * 3, reply("Hello.")) as (home, _):
        for text in ("fails", "says nothing", "/help", "/aprove", "hello"):
            before = len(home.fired)
            await home.fire("tailrace_message", {"text": text, "user": "ada"})
            await home.until(lambda: len(home.fired) > before)  # noqa: B023 - it is called in this pass alone
        assert [fired.data["text"] for fired in home.fired if fired.type == "tailrace_response"] == ["Hello."]
        notices = [fired for fired in home.fired if fired.type == "tailrace_notice"]
        assert [fired.data["kind"] for fired in notices] == ["failure", "failure", "notice", "notice"]
        assert [fired.data["text"][0] for fired in notices] == ["⚠", "⚠", "/", "T"]


@driven
async def test_the_beginning_of_an_answer_that_was_stopped_is_shown_and_not_spoken(tmp_path: Path) -> None:
    """Nothing of it was heard before: a loudspeaker would begin to speak because it was told to stop."""
    slowly = Scenario(reply=reply("one ", "two ", "three "), pace_s=10.0)
    async with served(tmp_path, slowly, slowly, reply("The newer one.")) as (home, provider):
        for number, newer in enumerate(("/stop", "something else")):
            await home.fire("tailrace_message", {"text": "count", "user": "ada"})
            await provider.request(number)
            await asyncio.sleep(25)
            await home.fire("tailrace_message", {"text": newer, "user": "ada"})
            await home.until(lambda: len(home.fired) == 2 * number + 2)  # noqa: B023 - it is called in this pass alone
        assert [(fired.type, fired.data.get("kind"), fired.data["text"]) for fired in home.fired] == [
            ("tailrace_notice", "stopped", "one "),
            ("tailrace_notice", "notice", "⏹ Stopped."),
            ("tailrace_notice", "stopped", "one\n\n⏹ Interrupted by a newer message."),
            ("tailrace_response", None, "The newer one."),
        ]
        assert home.messages == [fired.data["text"] for fired in home.fired]


@driven
async def test_an_answer_that_ends_while_the_process_does_is_shown(tmp_path: Path) -> None:
    """`server.drain_s` is half a second here."""
    async with FakeHomeAssistant() as home:
        settings = f'homeassistant: {{enabled: true, allow: [ada], url: "{home.url}"}}'
        slowly = Scenario(reply=reply("one two three"), pace_s=0.02)
        async with running_gateway(tmp_path, [slowly], settings, {"HASS_TOKEN": home.token}) as (_, provider):
            await home.until(lambda: home.called("subscribe_events")[1:])
            await home.fire("tailrace_message", {"text": "count", "user": "ada"})
            await provider.request(0)
        assert [fired.data["text"] for fired in home.fired] == home.messages == ["one two three"]


@driven
async def test_an_answer_is_shown_though_the_connection_is_lost_while_the_process_ends(tmp_path: Path) -> None:
    async with FakeHomeAssistant() as home:
        settings = f'homeassistant: {{enabled: true, allow: [ada], url: "{home.url}"}}'
        slowly = Scenario(reply=reply("one two three"), pace_s=1.0)
        env = {"HASS_TOKEN": home.token}
        async with running_gateway(tmp_path, [slowly], settings, env, drain_s=60.0) as (gateway, provider):
            await home.until(lambda: home.called("subscribe_events")[1:])
            await home.fire("tailrace_message", {"text": "count", "user": "ada"})
            await provider.request(0)
            gateway.take_no_more()
            await home.restart(start_s=5.0)
        assert [fired.data["text"] for fired in home.fired] == home.messages == ["one two three"]
        assert home.connections == 2


@driven
async def test_an_answer_that_the_end_of_the_process_cuts_is_announced(tmp_path: Path) -> None:
    async with FakeHomeAssistant() as home:
        settings = f'homeassistant: {{enabled: true, allow: [ada], url: "{home.url}"}}'
        slowly = Scenario(reply=reply("one two three"), pace_s=30.0)
        async with running_gateway(tmp_path, [slowly], settings, {"HASS_TOKEN": home.token}) as (_, provider):
            await home.until(lambda: home.called("subscribe_events")[1:])
            await home.fire("tailrace_message", {"text": "count", "user": "ada"})
            await provider.request(0)
        assert [fired.data["kind"] for fired in home.fired] == ["notice"]
        assert home.messages == ["⏸ Restarting; this goes on afterwards."]


@driven
async def test_somebody_who_is_not_served_is_not_answered(tmp_path: Path) -> None:
    async with served(tmp_path, reply("Hello, Ada.")) as (home, provider):
        await home.fire("tailrace_message", {"text": "hello", "user": "eve"})
        await home.fire("tailrace_message", {"text": "hello", "user": "ada"})
        await home.until(lambda: any(fired.data["conversation_id"] == "ada" for fired in home.fired))
        assert len(provider.requests) == 1
