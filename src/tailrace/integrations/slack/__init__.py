"""Slack, as a chat platform."""

# ruff: noqa: S105 - the defaults of `…_env` keys are names of variables, not secrets

from __future__ import annotations

from tailrace.config.sections import EnvName, HttpUrl, PlatformSettings
from tailrace.plugins import Integration


class SlackSettings(PlatformSettings):
    token_env: EnvName = "SLACK_BOT_TOKEN"
    app_token_env: EnvName = "SLACK_APP_TOKEN"
    base_url: HttpUrl | None = None

    def account_id(self, token: str) -> tuple[str | None, ...]:
        """A token is `xoxb-workspace-bot-secret`."""
        return (self.base_url, token.rpartition("-")[0])


INTEGRATION = Integration(
    name="slack",
    title="Slack",
    extra="slack",
    library="slack_sdk",
    settings=SlackSettings,
    platform=".adapter:make",
    streams=True,
    questions=".setup:QUESTIONS",
)
