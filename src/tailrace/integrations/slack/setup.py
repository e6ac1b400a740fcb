"""What `tailrace add slack` asks."""

from __future__ import annotations

import re
from functools import partial

from tailrace.cli.setup.platform_questions import OddAnswer, PlatformQuestions, UserIds

_TOKENS = {"xoxb-": "the bot token", "xapp-": "the app-level token"}


def _not_swapped(typed: str, begins: str) -> str:
    found = next((other for other in _TOKENS if other != begins and typed.startswith(other)), None)
    if found is not None:
        raise OddAnswer(f"{found}… is {_TOKENS[found]}; {_TOKENS[begins]} is wanted, {begins}…")
    return typed


QUESTIONS = PlatformQuestions(
    secrets={"token_env": "SLACK_BOT_TOKEN", "app_token_env": "SLACK_APP_TOKEN"},
    keys={},
    where="your app: OAuth (xoxb-…), and Basic Information, App-Level Tokens (xapp-…)",
    tidied={"token_env": partial(_not_swapped, begins="xoxb-"), "app_token_env": partial(_not_swapped, begins="xapp-")},
    user_ids=UserIds(re.compile(r"[UW][A-Z0-9]+"), "U012AB3CD"),
)
