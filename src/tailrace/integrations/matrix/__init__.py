"""Matrix, as a chat platform."""

from __future__ import annotations

from typing import ClassVar

from tailrace.config.sections import EnvName, HttpUrl, PlatformSettings
from tailrace.plugins import Integration


class MatrixSettings(PlatformSettings):
    needs_every_secret: ClassVar[bool] = False  # a token, or the password
    homeserver: HttpUrl | None = None
    user: str | None = None
    password_env: EnvName | None = None
    token_env: EnvName | None = None

    def account_id(self, token: str) -> tuple[str | None, ...]:
        return (self.homeserver, self.user or token)


INTEGRATION = Integration(
    name="matrix",
    title="Matrix",
    extra="matrix",
    library="nio",
    settings=MatrixSettings,
    platform=".adapter:make",
    streams=True,
    questions=".setup:QUESTIONS",
)
