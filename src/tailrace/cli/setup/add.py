"""`tailrace add PLATFORM`: asks for the token, verifies it, pairs you, and adds the platform to the config.

The config is changed after the platform has answered, by lines that are added to it; a copy of the old file is kept.
The token goes into `$TAILRACE_HOME/env`, which its owner alone may read, unless its variable is set already. Works
without a config.
"""

from __future__ import annotations

import argparse
import asyncio
import getpass
import os
import secrets
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tailrace.cli.main import DONE, FAILED, INTERRUPTED, USAGE, print_error
from tailrace.cli.setup.config_file import copied_aside, home_directory, write_config
from tailrace.cli.setup.platform_section import with_platform
from tailrace.config.env_file import FILE_NAME, read_env_file, with_variable
from tailrace.config.load import Config, load
from tailrace.config.sections import (
    Discord,
    HomeAssistant,
    Matrix,
    PlatformSettings,
    Slack,
    Telegram,
    WhatsApp,
)
from tailrace.delivery.port import MessageReceived, Platform, Sender, Update
from tailrace.errors import ConfigError, PlatformError
from tailrace.system.own_program import typed

CHECK_TIMEOUT_S = 20.0
PAIRING_TIMEOUT_S = 180.0
CONFIRM_S = 1.0  # the adapter confirms the code's message with its next request: else it would be a question


class PlatformQuestions(NamedTuple):
    """What connecting takes: the variables of secrets by their key, other keys, and how one gets them."""

    section: type[PlatformSettings]
    secrets: Mapping[str, str]
    keys: Mapping[str, str]
    where: str
    writes: bool = True  # a message reaches this process without an open port: one can be paired by a code


PLATFORMS: Mapping[str, PlatformQuestions] = {
    "telegram": PlatformQuestions(
        Telegram, {"token_env": "TELEGRAM_BOT_TOKEN"}, {}, "@BotFather gives a token for /newbot"
    ),
    "discord": PlatformQuestions(
        Discord, {"token_env": "DISCORD_BOT_TOKEN"}, {}, "the developer portal: your application, Bot, Reset Token"
    ),
    "slack": PlatformQuestions(
        Slack,
        {"token_env": "SLACK_BOT_TOKEN", "app_token_env": "SLACK_APP_TOKEN"},
        {},
        "your app: OAuth (xoxb-…), and Basic Information, App-Level Tokens (xapp-…)",
    ),
    "matrix": PlatformQuestions(
        Matrix,
        {"password_env": "MATRIX_PASSWORD"},
        {"homeserver": "the homeserver, https://matrix.org", "user": "the bot's user, @bot:matrix.org"},
        "an account of its own for the bot",
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
        writes=False,
    ),
    "homeassistant": PlatformQuestions(
        HomeAssistant,
        {"token_env": "HASS_TOKEN"},
        {"url": "its address, http://homeassistant.local:8123"},
        "your profile in Home Assistant: Security, Long-lived access tokens",
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("platform", choices=tuple(PLATFORMS), help="which one")
    parser.add_argument(
        "--allow", action="append", default=[], metavar="ID", help="a user to serve; asked for otherwise"
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="another key of the platform")
    parser.add_argument("--no-pair", action="store_true", help="do not wait for a message of yours")


def run(args: argparse.Namespace) -> int:
    """0 added, 1 refused or there already, 2 something is missing, 130 interrupted."""
    try:
        return _Addition(args).run()
    except KeyboardInterrupt:
        sys.stderr.write("\nnothing was changed\n")
        return INTERRUPTED


class _Addition:
    """One platform on its way into the config."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._name: str = args.platform
        self._args = args
        self._questions = PLATFORMS[self._name]
        self._home = home_directory(os.environ)
        self._asking = sys.stdin.isatty()
        self._secrets: dict[str, str] = {}  # typed here, by variable
        self._settings: dict[str, object] = {}

    def run(self) -> int:
        """Raises `ConfigError` for a config that is broken or cannot be changed."""
        from tailrace.platforms.runtime.registry import adapter_of

        config = load(os.environ)
        adapter_of(self._name)  # before a token is typed
        if getattr(config.platforms, self._name) is not None:
            print_error(f"platforms.{self._name} is in the config already; tailrace doctor says whether it works")
            return FAILED
        try:
            self._ask(config)
        except ValueError as mistake:
            print_error(str(mistake))
            return USAGE
        trial = self._trial()
        try:
            sender = asyncio.run(self._connect(trial))
        except (PlatformError, TimeoutError) as exc:
            reason = str(exc).removeprefix(f"{self._name}: ") or "no answer in time"
            print_error(f"{self._name}: {reason}; nothing was changed")
            return FAILED
        self._allow(sender)
        self._write()
        return DONE

    def _ask(self, config: Config) -> None:
        """Raises `ValueError` in words for what is missing."""
        keys = self._questions.section.__struct_fields__
        for given in self._args.set:
            key, equals, value = given.partition("=")
            if not equals or key not in keys:
                raise ValueError(f"--set {given}: expected KEY=VALUE with a key of docs/platforms/{self._name}.md")
            self._settings[key] = value
        if self._asking:
            sys.stderr.write(f"{self._questions.where}; docs/platforms/{self._name}.md has the steps\n")
        for key, what in self._questions.keys.items():
            if key not in self._settings:
                self._settings[key] = self._answer(f"{what}: ", f"--set {key}=…")
        for key, variable in self._questions.secrets.items():
            named = str(self._settings.get(key, variable))
            if named != variable or self._name == "matrix":
                self._settings[key] = named
            if config.secret(named) is None:
                self._secrets[named] = self._secret(named)

    def _answer(self, question: str, option: str) -> str:
        if not self._asking:
            raise ValueError(f"{self._name} needs {option}")
        sys.stderr.write(question)
        sys.stderr.flush()
        if not (answer := input().strip()):
            raise ValueError(f"{self._name} needs {option}")
        return answer

    def _secret(self, variable: str) -> str:
        if not self._asking:
            raise ValueError(f"{self._name} needs {variable} in the environment")
        value = getpass.getpass(f"{variable} (it is not shown): ", stream=sys.stderr).strip()
        if not value or not value.isprintable():
            raise ValueError(f"{self._name} needs {variable}")
        return value

    # ── trying it ────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _file(self) -> Path:
        return self._home / "config.yaml"

    def _new_text(self) -> str:
        text = self._file.read_text(encoding="utf-8") if self._file.exists() else ""
        try:
            return with_platform(text, self._name, self._settings)
        except ConfigError as exc:
            raise ConfigError(exc.message, key="platforms", file=str(self._file)) from exc

    def _trial(self) -> Config:
        """The config as it will be. Raises `ConfigError` where it would not load."""
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "config.yaml").write_text(self._new_text(), encoding="utf-8")
            known = read_env_file(self._home / FILE_NAME)
            return load({**known, **os.environ, **self._secrets}, Path(directory))

    async def _connect(self, config: Config) -> Sender | None:
        """Raises `PlatformError` where the platform refuses."""
        from tailrace.platforms.runtime.registry import make_platform

        platform = make_platform(config, self._name)
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                account = await platform.check()
            sys.stderr.write(f"✓ {self._name}: {account}\n")
            if self._args.allow or self._args.no_pair or not self._asking or not self._questions.writes:
                return None
            return await _paired(platform, account)
        finally:
            await platform.close()

    # ── writing it ───────────────────────────────────────────────────────────────────────────────────────────

    def _allow(self, sender: Sender | None) -> None:
        allowed: list[str] = list(self._args.allow) or ([sender.id] if sender else [])
        if not allowed and self._asking and not self._questions.writes:
            allowed = [self._answer("your own id there: ", "--allow ID")]
        if allowed:
            self._settings["allow"] = [int(user) if user.isdecimal() else user for user in allowed]

    def _write(self) -> None:
        text = self._new_text()
        if self._file.exists():
            sys.stderr.write(f"kept the old config as {copied_aside(self._file)}\n")
        for variable, value in self._secrets.items():
            file = self._home / FILE_NAME
            write_config(file, with_variable(file.read_text("utf-8") if file.exists() else "", variable, value))
            sys.stderr.write(f"kept {variable} in {file}, which you alone may read\n")
        write_config(self._file, text)
        load(os.environ)  # it must load
        sys.stderr.write(f"wrote {self._file}\n")
        if "allow" not in self._settings:
            sys.stderr.write(
                "nobody is served yet: write to the bot, it answers with a code for tailrace gateway --pair\n"
            )
        sys.stderr.write(f"next: {typed('gateway')}, or {typed('serve')}\n")


class _PairingInbox:
    """Waits for the message that holds the code."""

    def __init__(self, code: str) -> None:
        self._code = code
        self.sender: asyncio.Future[Sender] = asyncio.get_running_loop().create_future()

    async def put(self, update: Update) -> None:
        if isinstance(update, MessageReceived) and self._code in update.text and not self.sender.done():
            self.sender.set_result(update.sender)

    def connected(self) -> None:
        pass


async def _paired(platform: Platform, account: str) -> Sender | None:
    """Who sends the code to the bot; None where nobody does in time. Raises `PlatformError`."""
    code = f"{secrets.randbelow(900_000) + 100_000}"
    inbox = _PairingInbox(code)
    bot = account.partition(",")[0]  # what follows are its rights
    sys.stderr.write(f"send {code} to {bot}, and it serves you (waiting {PAIRING_TIMEOUT_S:g} s; Ctrl-C ends)\n")
    listening = asyncio.get_running_loop().create_task(platform.run(inbox))
    try:
        async with asyncio.timeout(PAIRING_TIMEOUT_S):
            both: list[asyncio.Future[Any]] = [listening, inbox.sender]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait([listening], timeout=CONFIRM_S)
    except TimeoutError:
        return None
    finally:
        listening.cancel()
        await asyncio.wait([listening])
    if not inbox.sender.done():
        listening.result()  # raises why it ended
        return None
    sender = inbox.sender.result()
    sys.stderr.write(f"✓ {sender.name or sender.id} ({sender.id}) is served\n")
    return sender
