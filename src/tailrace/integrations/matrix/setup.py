"""What `tailrace add matrix` asks."""

from __future__ import annotations

import re
from functools import partial

from tailrace.cli.setup.platform_questions import PlatformQuestions, UserIds, http_address, user_id

_USER_IDS = UserIds(re.compile(r"@[^:]+:.+"), "@ada:example.org")

QUESTIONS = PlatformQuestions(
    secrets={"password_env": "MATRIX_PASSWORD"},
    keys={"homeserver": "the homeserver, https://matrix.org", "user": "the bot's user, @bot:matrix.org"},
    where="an account of its own for the bot",
    pairing="invite {bot} to a room that is not encrypted, and write {code} there",
    instead={"token_env": "MATRIX_TOKEN"},
    tidied={
        "homeserver": partial(http_address, scheme="https"),
        "user": partial(user_id, platform="matrix", ids=_USER_IDS),
    },
    user_ids=_USER_IDS,
)
