"""Mattermost, as a chat platform of Tailrace."""

from __future__ import annotations

from tailrace.config.sections import EnvName, HttpUrl, PlatformSettings
from tailrace.plugins import Integration


class MattermostSettings(PlatformSettings):
    """The section `platforms.mattermost` of the config."""

    url: HttpUrl | None = None
    token_env: EnvName = "MATTERMOST_TOKEN"  # noqa: S105 - the name of a variable

    def account_id(self, token: str) -> tuple[str | None, ...]:
        """A token does not say whose it is: another token is another account."""
        return (self.url, token)


INTEGRATION = Integration(
    name="mattermost",
    title="Mattermost",
    settings=MattermostSettings,
    platform=".adapter:make",
    streams=True,
    questions=".setup:QUESTIONS",
    checks=".setup:check",
)
