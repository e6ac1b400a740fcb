"""Discord, as a chat platform."""

# ruff: noqa: S105 - the defaults of `…_env` keys are names of variables, not secrets

from __future__ import annotations

from tailrace.config.sections import EnvName, HttpUrl, PlatformSettings, SocketUrl
from tailrace.plugins import Integration


class DiscordSettings(PlatformSettings):
    token_env: EnvName = "DISCORD_BOT_TOKEN"
    base_url: HttpUrl | None = None
    gateway_url: SocketUrl | None = None

    def account_id(self, token: str) -> tuple[str | None, ...]:
        """A token is `id.time.secret`: the bot's id comes first."""
        return (self.base_url, token.partition(".")[0])


INTEGRATION = Integration(
    name="discord",
    title="Discord",
    extra="discord",
    library="discord",
    settings=DiscordSettings,
    platform=".adapter:make",
    streams=True,
    questions=".setup:QUESTIONS",
)
