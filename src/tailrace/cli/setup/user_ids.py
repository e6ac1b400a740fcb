"""What a user's id looks like on each platform. A name in place of an id serves nobody, and nothing would say why."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

# The form, and an example. On the other platforms names are ids.
_USER_IDS: Final = {
    "telegram": (re.compile(r"-?\d+"), "12345"),
    "discord": (re.compile(r"\d{15,21}"), "80351110224678912"),
    "slack": (re.compile(r"[UW][A-Z0-9]+"), "U012AB3CD"),
    # or US.1349…: whose number is hidden
    "whatsapp": (re.compile(r"\+?[1-9]\d+|[A-Z]{2}\.[A-Za-z0-9.]+"), "491701234567"),
    "matrix": (re.compile(r"@[^:]+:.+"), "@ada:example.org"),
}


def odd_users(platform: str, allow: Sequence[str]) -> tuple[list[str], str]:
    """Those that are no ids of users, and what an id looks like."""
    if platform not in _USER_IDS:
        return [], ""
    pattern, example = _USER_IDS[platform]
    return [user for user in allow if user != "*" and not pattern.fullmatch(user)], example
