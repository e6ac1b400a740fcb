"""What `tailrace add homeassistant` asks."""

from __future__ import annotations

import re

from tailrace.cli.setup.platform_questions import PlatformQuestions, http_address

_PAGE = re.compile(
    r"(https?://[^/]+)/(?:api|calendar|config|developer-tools|energy|history|home|logbook|map|media-browser|profile|todo"
    r"|lovelace[^/?#]*|dashboard-[^/?#]*)(?:[/?#].*)?"
)


def _home_address(typed: str) -> str:
    """Without the page that the browser was on when the address was copied."""
    address = http_address(typed, "http")
    page = _PAGE.fullmatch(address)
    return page[1] if page else address


QUESTIONS = PlatformQuestions(
    secrets={"token_env": "HASS_TOKEN"},
    keys={"url": "its address, http://homeassistant.local:8123"},
    where="your profile in Home Assistant: Security, Long-lived access tokens",
    pairing='in Developer tools, Events, fire tailrace_message with the data text: "{code}"',
    tidied={"url": _home_address},
)
