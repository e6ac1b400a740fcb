"""The gateway with Discord alone, from the event to the last edit: in process, and as a process that is killed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from proof.platforms.discord import FakeDiscord
from proof.platforms.discord_channels import user_json

from gateway.gateway_process import gateway_process, kill_9
from gateway.gateways import config_for, running_gateway
from tailrace.testing.provider import FaultyProvider, Reply, Scenario, call, reply

TEXT = " ".join(f"word{number}" for number in range(60))


def settings_for(discord: FakeDiscord) -> str:
    where = f'base_url: "{discord.url}", gateway_url: "{discord.gateway_url}"'
    return f'discord: {{enabled: true, allow: ["7", "8"], {where}}}'


@asynccontextmanager
async def served(discord: FakeDiscord, home: Path, *script: Reply | Scenario) -> AsyncIterator[FaultyProvider]:
    env = {"DISCORD_BOT_TOKEN": discord.token}
    async with running_gateway(home, script, settings_for(discord), env) as (_, provider):
        await discord.until(lambda: discord.identified)
        yield provider


async def test_a_question_is_answered_live_and_G88_once(tmp_path: Path) -> None:
    async with FakeDiscord() as discord:
        ada = discord.direct(70, 7)
        async with served(discord, tmp_path, Scenario(reply=reply(TEXT), pace_s=0.05), reply("Second.")) as provider:
            await discord.write(ada, "hello")
            await discord.until(lambda: ada.texts == [TEXT])
            assert len(ada.answers[0].states) >= 2
            await discord.dispatch("MESSAGE_CREATE", ada.message_json(ada.messages[0]))
            discord.drop_connections()
            await discord.write(ada, "and now?")
            await discord.until(lambda: len(ada.texts) == 2)
            assert ada.texts == [TEXT, "Second."]
            assert len(provider.requests) == 2


async def test_a_turn_of_six_tools_rings_twice_at_most(tmp_path: Path) -> None:
    steps = [reply(f"Step {step}.", call("terminal", {"command": f"echo {step}"})) for step in range(6)]
    async with FakeDiscord() as discord:
        ada = discord.direct(70, 7)
        async with served(discord, tmp_path, *steps, reply(TEXT)):
            await discord.write(ada, "look around")
            await discord.until(lambda: TEXT in ada.texts)
        sent = [call.params for call in discord.calls if "flags" in call.params]
        assert sum("terminal" in each["content"] for each in sent) == 6
        assert 1 <= sum(not each["flags"] & 1 << 12 for each in sent) <= 2


async def test_J110_an_approval_is_a_button_for_the_requester_alone(tmp_path: Path) -> None:
    script = [reply("I will clean up.", call("terminal", {"command": "rm -rf build"})), reply("It is gone.")]
    (tmp_path / "build").mkdir()
    async with FakeDiscord() as discord:
        general = discord.channel(5)
        async with served(discord, tmp_path, *script):
            await discord.write(general, "<@42> remove the build directory", user=7)
            await discord.until(lambda: any(message.buttons for message in general.answers))
            [question] = [message for message in general.answers if message.buttons]
            assert "rm -rf build" in question.text
            await discord.press(general, question, "Approve once", user=8)
            await discord.until(lambda: any("Only user7 may answer" in text for text in general.texts))
            assert (tmp_path / "build").exists()
            await discord.press(general, question, "Approve once", user=7)
            await discord.until(lambda: "It is gone." in general.texts and not question.buttons)
            assert "Approved once" in question.text
            assert not (tmp_path / "build").exists()


async def test_in_a_channel_the_model_reads_who_speaks_by_the_name_that_the_server_shows(tmp_path: Path) -> None:
    def called(user: int, name: str, nick: str | None) -> dict[str, Any]:
        member = {"roles": [], "joined_at": "2024-01-01T00:00:00+00:00", "deaf": False, "mute": False, "flags": 0}
        return {"author": user_json(user) | {"global_name": name}, "member": member | {"nick": nick}}

    async with FakeDiscord() as discord:
        general = discord.channel(5)
        async with served(discord, tmp_path, reply("Booked."), reply("For both.")) as provider:
            await discord.write(general, "<@42> book it for me", user=7, fields=called(7, "Anna", None))
            await discord.until(lambda: general.texts == ["Booked."])
            await discord.write(general, "<@42> for me too", user=8, fields=called(8, "Ben", "anna"))
            await discord.until(lambda: len(general.texts) == 2)
            said = [one["content"] for one in provider.requests[1].json()["messages"] if one["role"] == "user"]
    assert said == ['[from 7 "Anna"]\n| book it for me', '[from 8 "anna"]\n| for me too']


async def test_who_is_not_allowed_gets_no_thumb_for_a_command(tmp_path: Path) -> None:
    async with FakeDiscord() as discord:
        general = discord.channel(5)
        async with served(discord, tmp_path):
            theirs = await discord.command(general, "yolo", "on", user=9)
            ours = await discord.command(general, "status", "", user=7)
            await discord.until(lambda: len(discord.interaction_answers) == 2 and general.texts)
            told = {name: answer["data"]["content"] for name, answer in discord.interaction_answers.items()}
    assert told == {theirs: "I do not know you yet, and have done nothing.", ours: "👍"}
    assert len(general.texts) == 1, "what the stranger wanted is not answered in the channel"
    assert "approvals: on" in general.texts[0]


async def test_G77_after_kill_9_in_mid_stream_the_same_message_is_completed(tmp_path: Path) -> None:
    slow, rest = Scenario(reply=reply(TEXT), pace_s=0.2), reply(" And that is the end of it.")
    async with FakeDiscord() as discord, FaultyProvider([slow, rest]) as provider:
        ada = discord.direct(70, 7)
        config_for(tmp_path, provider, settings_for(discord), {}, store="sqlite:///tailrace.db")
        env = {"DISCORD_BOT_TOKEN": discord.token}
        async with gateway_process(tmp_path, env) as first:
            await discord.until(lambda: discord.identified)
            await discord.write(ada, "hello")
            await discord.until(lambda: ada.answers and len(ada.answers[0].states) >= 3)
            await kill_9(first)
        async with gateway_process(tmp_path, env):
            await discord.until(lambda: ada.texts and ada.texts[-1].endswith("the end of it."))
        assert len(ada.answers) == 1
        assert len(provider.requests) == 2
