"""Home Assistant, as a chat platform."""

# ruff: noqa: S105 - the defaults of `…_env` keys are names of variables, not secrets

from __future__ import annotations

from tailrace.config.sections import EnvName, HttpUrl, PlatformSettings
from tailrace.plugins import Integration


class HomeAssistantSettings(PlatformSettings):
    url: HttpUrl | None = None
    token_env: EnvName = "HASS_TOKEN"

    def account_id(self, token: str) -> tuple[str | None, ...]:
        return (self.url or token,)


INTEGRATION = Integration(
    name="homeassistant",
    title="Home Assistant",
    settings=HomeAssistantSettings,
    platform=".adapter:make",
    questions=".setup:QUESTIONS",
)
