"""Another config while the gateway runs: platforms come, go and change, and what is half shown goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from proof.platforms.discord import FakeDiscord
from proof.platforms.telegram import FakeTelegram

from gateway.gateways import running_gateway
from tailrace.config.load import load
from tailrace.errors import ConfigError
from tailrace.gateway.gateway import Gateway
from tailrace.testing.provider import Scenario, reply

TEXT = " ".join(f"word{number}" for number in range(80))


def settings(telegram: FakeTelegram, *allowed: int) -> str:
    return f'telegram: {{enabled: true, allow: {list(allowed)}, base_url: "{telegram.url}"}}'


async def take_up(gateway: Gateway, home: Path, env: dict[str, str], before: str, after: str) -> None:
    file = home / "config.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace(before, after), encoding="utf-8")
    config = load(env, home)
    replace = gateway.prepared_platforms(config)
    gateway._app.take_config(config)
    await replace()


async def test_a_changed_platform_goes_on_with_its_answers_and_serves_whom_the_new_config_names(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram:
        ada, ben, env = telegram.private(7), telegram.private(8), {"TELEGRAM_BOT_TOKEN": telegram.token}
        slow = Scenario(reply=reply(TEXT), pace_s=0.03)
        async with running_gateway(tmp_path, [slow, reply("Hi, Ben.")], settings(telegram, 7), env) as (
            gateway,
            provider,
        ):
            telegram.write(ada, "count")
            await provider.request(0)
            await take_up(gateway, tmp_path, env, "allow: [7]", "allow: [7, 8]")
            await telegram.until(lambda: ada.texts == [TEXT])
            telegram.write(ben, "hello")
            await telegram.until(lambda: ben.texts == ["Hi, Ben."])
            assert len(provider.requests) == 2


async def test_a_platform_comes_and_goes_and_the_others_stay_connected(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram, FakeDiscord() as discord:
        ada, env = telegram.private(7), {"TELEGRAM_BOT_TOKEN": telegram.token, "DISCORD_BOT_TOKEN": discord.token}
        served = settings(telegram, 7)
        more = (
            f'discord: {{enabled: true, allow: ["7"], base_url: "{discord.url}", gateway_url: "{discord.gateway_url}"}}'
        )
        async with running_gateway(tmp_path, [reply("One."), reply("Two.")], served, env) as (gateway, _):
            await take_up(gateway, tmp_path, env, served, f"{served}, {more}")
            room = discord.direct(70, 7)
            await discord.until(lambda: discord.identified)
            await discord.write(room, "hello")
            await discord.until(lambda: room.texts == ["One."])
            polled = [runner for runner in gateway._runners if runner.platform.name == "telegram"]
            await take_up(gateway, tmp_path, env, f"{served}, {more}", served)
            assert [runner.platform.name for runner in gateway._runners] == ["telegram"]
            assert gateway._runners == polled, "the same connection"
            telegram.write(ada, "hello")
            await telegram.until(lambda: ada.texts == ["Two."])


async def test_a_platform_that_cannot_be_made_changes_nothing(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram:
        served, env = settings(telegram, 7), {"TELEGRAM_BOT_TOKEN": telegram.token}
        async with running_gateway(tmp_path, [reply("Hello.")], served, env) as (gateway, _):
            before = list(gateway._runners)
            with pytest.raises(ConfigError, match="DISCORD_BOT_TOKEN is not set"):
                await take_up(gateway, tmp_path, env, served, served + ", discord: {enabled: true}")
            assert gateway._runners == before
