"""What `tailrace add whatsapp` asks."""

from __future__ import annotations

import re

from tailrace.cli.setup.platform_questions import OddAnswer, PlatformQuestions, UserIds, user_id

_TYPED_IN_NUMBERS = re.compile(r"[\s()./+-]")
# or US.1349…, of a person whose number is hidden
_USER_IDS = UserIds(re.compile(r"\+?[1-9]\d+|[A-Z]{2}\.[A-Za-z0-9.]+"), "491701234567")


def _number(typed: str) -> str:
    """A number as it is written on paper."""
    return user_id(_TYPED_IN_NUMBERS.sub("", typed), "whatsapp", _USER_IDS)


def _number_id(typed: str) -> str:
    if not typed.isdecimal():
        raise OddAnswer(
            f"{typed or 'nothing'} is no id; the dashboard has it below the number, it looks like 106540352242922"
        )
    return typed


QUESTIONS = PlatformQuestions(
    secrets={
        "token_env": "WHATSAPP_TOKEN",
        "app_secret_env": "WHATSAPP_APP_SECRET",
        "verify_token_env": "WHATSAPP_VERIFY_TOKEN",
    },
    keys={"phone_number_id": "the phone number's id"},
    where="the Meta app's dashboard: WhatsApp, API Setup",
    pairing="",
    then="at Meta, under WhatsApp, Configuration: the callback URL https://YOUR.HOST/platforms/whatsapp/webhook, "
    "the verify token of WHATSAPP_VERIFY_TOKEN, and the field messages",
    own_id="your own number, with the country code",
    tidied={"phone_number_id": _number_id, "allow": _number},
    user_ids=_USER_IDS,
)
