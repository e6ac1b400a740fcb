"""What `tailrace add telegram` asks."""

from __future__ import annotations

import re

from tailrace.cli.setup.platform_questions import PlatformQuestions, UserIds

QUESTIONS = PlatformQuestions(
    secrets={"token_env": "TELEGRAM_BOT_TOKEN"},
    keys={},
    where="@BotFather gives a token for /newbot",
    user_ids=UserIds(re.compile(r"-?\d+"), "12345"),
)
