"""WhatsApp, as a chat platform."""

# ruff: noqa: S105 - the defaults of `…_env` keys are names of variables, not secrets

from __future__ import annotations

from tailrace.config.sections import EnvName, HttpUrl, Identifier, PlatformSettings
from tailrace.plugins import Integration


class WhatsAppSettings(PlatformSettings):
    token_env: EnvName = "WHATSAPP_TOKEN"
    phone_number_id: Identifier | None = None
    app_secret_env: EnvName = "WHATSAPP_APP_SECRET"
    verify_token_env: EnvName = "WHATSAPP_VERIFY_TOKEN"
    base_url: HttpUrl | None = None

    def account_id(self, token: str) -> tuple[str | None, ...]:
        return (self.base_url, self.phone_number_id or token)


INTEGRATION = Integration(
    name="whatsapp", title="WhatsApp", settings=WhatsAppSettings, platform=".adapter:make", questions=".setup:QUESTIONS"
)
