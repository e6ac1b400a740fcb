"""What `tailrace add mattermost` asks, and what `tailrace doctor` checks beside the token."""

from __future__ import annotations

import re
from functools import partial
from urllib.parse import urlsplit

from tailrace.cli.setup.finding import Finding
from tailrace.cli.setup.platform_questions import PlatformQuestions, UserIds, http_address
from tailrace.config.load import Config
from tailrace_mattermost import MattermostSettings

QUESTIONS = PlatformQuestions(
    secrets={"token_env": "MATTERMOST_TOKEN"},
    keys={"url": "the server, https://chat.example.org"},
    where="Integrations, Bot Accounts, Add Bot Account: its token is shown once",
    pairing="send {code} to {bot} in a direct message",
    tidied={"url": partial(http_address, scheme="https")},
    user_ids=UserIds(re.compile(r"[a-z0-9]{26}"), "4xp9fdt77pncbef59f4k1qe83o"),
)


def check(config: Config) -> list[Finding]:
    """A token that crosses a network in clear text can be read there."""
    settings = config.platforms.get("mattermost", MattermostSettings)
    if settings is None or settings.url is None or not settings.enabled:
        return []
    address = urlsplit(settings.url)
    if address.scheme == "https" or address.hostname in ("localhost", "127.0.0.1", "::1"):
        return []
    return [Finding("note", "platforms.mattermost.url is http://: the token is sent in clear text", "use https://")]
