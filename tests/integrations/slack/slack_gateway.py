"""A whole gateway with Slack alone, and what its model was asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from proof.platforms.slack import FakeSlack

from gateway.gateways import running_gateway
from tailrace.testing.provider import FaultyProvider, Reply, Scenario

TEXT = " ".join(f"word{number}" for number in range(60))


def settings_for(slack: FakeSlack, respond: str = "mentions") -> str:
    return f'slack: {{enabled: true, allow: ["U7", "U8"], respond: {respond}, base_url: "{slack.api_url}"}}'


def env_for(slack: FakeSlack) -> dict[str, str]:
    return {"SLACK_BOT_TOKEN": slack.token, "SLACK_APP_TOKEN": slack.app_token}


def asked_in(provider: FaultyProvider) -> list[str]:
    """What the people said in the newest request."""
    return [one["content"] for one in provider.requests[-1].json()["messages"] if one["role"] == "user"]


@asynccontextmanager
async def served(home: Path, *script: Reply | Scenario) -> AsyncIterator[tuple[FakeSlack, FaultyProvider]]:
    async with (
        FakeSlack() as slack,
        running_gateway(home, script, settings_for(slack), env_for(slack)) as (_, provider),
    ):
        yield slack, provider
