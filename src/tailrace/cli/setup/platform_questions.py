"""What `tailrace add` asks for each platform, and how an answer is kept that a person typed. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from tailrace.cli.setup.user_ids import odd_users
from tailrace.config.load import Config
from tailrace.config.sections import (
    Discord,
    HomeAssistant,
    Matrix,
    PlatformSettings,
    Slack,
    Telegram,
    WhatsApp,
)

_GROWING = ("telegram", "discord", "slack", "matrix")  # where a message can be edited
STREAM_THERE = "streaming: {enabled: true} in the config lets them grow while they are written"
_HOST = re.compile(r"https?://[^/\s]\S*")
_HOME_PAGE = re.compile(
    r"(https?://[^/]+)/(?:api|calendar|config|developer-tools|energy|history|home|logbook|map|media-browser|profile|todo"
    r"|lovelace[^/?#]*|dashboard-[^/?#]*)(?:[/?#].*)?"
)
_TYPED_IN_NUMBERS = re.compile(r"[\s()./+-]")
_SLACK_TOKENS = {"xoxb-": "the bot token", "xapp-": "the app-level token"}


class OddAnswer(Exception):
    """What is missing or cannot be, in words."""


def is_whole_by_default(config: Config, platform: str) -> bool:
    """Whether answers appear whole in a chat where they could grow, and nobody has said that they shall."""
    unset = config.streaming.enabled is None and getattr(config.streaming, platform) is None
    return platform in _GROWING and unset and not config.streams(platform)


def _address(typed: str, scheme: str) -> str:
    """An address without a scheme is taken as it is typed into a browser."""
    address = typed if "://" in typed else f"{scheme}://{typed}"
    if not _HOST.fullmatch(address):
        raise OddAnswer(f"{typed} is no http:// or https:// address")
    return address


def _home_address(typed: str) -> str:
    """Without the page that the browser was on when the address was copied."""
    address = _address(typed, "http")
    page = _HOME_PAGE.fullmatch(address)
    return page[1] if page else address


def _user(typed: str, platform: str) -> str:
    odd, example = odd_users(platform, [typed])
    if odd:
        raise OddAnswer(f"{typed} is no user's id on {platform}; an id looks like {example}")
    return typed


def _number(typed: str) -> str:
    """A number as it is written on paper."""
    return _user(_TYPED_IN_NUMBERS.sub("", typed), "whatsapp")


def _number_id(typed: str) -> str:
    if not typed.isdecimal():
        raise OddAnswer(
            f"{typed or 'nothing'} is no id; the dashboard has it below the number, it looks like 106540352242922"
        )
    return typed


def _not_swapped(typed: str, begins: str) -> str:
    found = next((other for other in _SLACK_TOKENS if other != begins and typed.startswith(other)), None)
    if found is not None:
        raise OddAnswer(f"{found}… is {_SLACK_TOKENS[found]}; {_SLACK_TOKENS[begins]} is wanted, {begins}…")
    return typed


class PlatformQuestions(NamedTuple):
    """What connecting takes: the variables of secrets by their key, other keys, and how one gets them."""

    section: type[PlatformSettings]
    secrets: Mapping[str, str]
    keys: Mapping[str, str]
    where: str
    pairing: str = "send {code} to {bot}"  # how one is paired; empty: no message comes without an open port
    instead: Mapping[str, str] = {}  # secrets that serve in place of `secrets` where their variables are set
    then: str = ""  # what is left to do on the platform
    own_id: str = "your own id there"
    # By key, `allow` for the person's own id: what was typed as it is kept. They raise `OddAnswer`.
    tidied: Mapping[str, Callable[[str], str]] = {}


PLATFORMS: Mapping[str, PlatformQuestions] = {
    "telegram": PlatformQuestions(
        Telegram, {"token_env": "TELEGRAM_BOT_TOKEN"}, {}, "@BotFather gives a token for /newbot"
    ),
    "discord": PlatformQuestions(
        Discord,
        {"token_env": "DISCORD_BOT_TOKEN"},
        {},
        "the developer portal: your application, Bot, Reset Token",
        pairing="send {code} to {bot} in a direct message, or mention it with the code in a server",
    ),
    "slack": PlatformQuestions(
        Slack,
        {"token_env": "SLACK_BOT_TOKEN", "app_token_env": "SLACK_APP_TOKEN"},
        {},
        "your app: OAuth (xoxb-…), and Basic Information, App-Level Tokens (xapp-…)",
        tidied={
            "token_env": partial(_not_swapped, begins="xoxb-"),
            "app_token_env": partial(_not_swapped, begins="xapp-"),
        },
    ),
    "matrix": PlatformQuestions(
        Matrix,
        {"password_env": "MATRIX_PASSWORD"},
        {"homeserver": "the homeserver, https://matrix.org", "user": "the bot's user, @bot:matrix.org"},
        "an account of its own for the bot",
        pairing="invite {bot} to a room that is not encrypted, and write {code} there",
        instead={"token_env": "MATRIX_TOKEN"},
        tidied={"homeserver": partial(_address, scheme="https"), "user": partial(_user, platform="matrix")},
    ),
    "whatsapp": PlatformQuestions(
        WhatsApp,
        {
            "token_env": "WHATSAPP_TOKEN",
            "app_secret_env": "WHATSAPP_APP_SECRET",
            "verify_token_env": "WHATSAPP_VERIFY_TOKEN",
        },
        {"phone_number_id": "the phone number's id"},
        "the Meta app's dashboard: WhatsApp, API Setup",
        pairing="",
        then="at Meta, under WhatsApp, Configuration: the callback URL https://YOUR.HOST/platforms/whatsapp/webhook, "
        "the verify token of WHATSAPP_VERIFY_TOKEN, and the field messages",
        own_id="your own number, with the country code",
        tidied={"phone_number_id": _number_id, "allow": _number},
    ),
    "homeassistant": PlatformQuestions(
        HomeAssistant,
        {"token_env": "HASS_TOKEN"},
        {"url": "its address, http://homeassistant.local:8123"},
        "your profile in Home Assistant: Security, Long-lived access tokens",
        pairing='in Developer tools, Events, fire tailrace_message with the data text: "{code}"',
        tidied={"url": _home_address},
    ),
}
