"""What `tailrace add telegram` asks."""

from __future__ import annotations

import re

from tailrace.cli.setup.platform_questions import OddAnswer, PlatformQuestions, UserIds

_TOKEN = re.compile(r"\d+:[A-Za-z0-9_-]{12,}")


def _token(typed: str) -> str:
    if not _TOKEN.fullmatch(typed):  # not repeated: it may be another secret
        raise OddAnswer("this does not look like a bot's token: 123456789:AAExample-of-letters_and_digits")
    return typed


QUESTIONS = PlatformQuestions(
    secrets={"token_env": "TELEGRAM_BOT_TOKEN"},
    keys={},
    where="@BotFather gives a token for /newbot",
    link="https://t.me/{bot}?start={code}",
    tidied={"token_env": _token},
    user_ids=UserIds(re.compile(r"-?\d+"), "12345"),
)
