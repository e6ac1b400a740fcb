"""What `tailrace add discord` asks."""

from __future__ import annotations

import re

from tailrace.cli.setup.platform_questions import PlatformQuestions, UserIds

QUESTIONS = PlatformQuestions(
    secrets={"token_env": "DISCORD_BOT_TOKEN"},
    keys={},
    where="the developer portal: your application, Bot, Reset Token",
    pairing="send {code} to {bot} in a direct message, or mention it with the code in a server",
    user_ids=UserIds(re.compile(r"\d{15,21}"), "80351110224678912"),
)
