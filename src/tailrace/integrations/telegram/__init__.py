"""Telegram, as a chat platform."""

# ruff: noqa: S105 - the defaults of `…_env` keys are names of variables, not secrets

from __future__ import annotations

from tailrace.config.sections import EnvName, HttpUrl, PlatformSettings
from tailrace.plugins import Integration


class TelegramSettings(PlatformSettings):
    token_env: EnvName = "TELEGRAM_BOT_TOKEN"
    base_url: HttpUrl | None = None

    def account_id(self, token: str) -> tuple[str | None, ...]:
        """A token is `123456789:secret`: the bot's id comes first."""
        return (self.base_url, token.partition(":")[0])


INTEGRATION = Integration(
    name="telegram",
    title="Telegram",
    extra="telegram",
    library="telegram",
    settings=TelegramSettings,
    platform=".adapter:make",
    streams=True,
    questions=".setup:QUESTIONS",
)
