"""`tailrace add PLATFORM`: asks for the token, verifies it, pairs you, and adds the platform to the config.

The config is changed after the platform has answered, by lines that are added to it; a copy of the old file is kept.
The token goes into `$TAILRACE_HOME/env`, which its owner alone may read, unless its variable is set already. Works
without a config.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import getpass
import os
import re
import secrets
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import fields, replace

from tailrace.cli.main import DONE, FAILED, INTERRUPTED, USAGE, print_error
from tailrace.cli.setup.config_file import copied_aside, keep_secret, with_platform, write_config
from tailrace.cli.setup.platform_questions import (
    STREAM_THERE,
    OddAnswer,
    PlatformQuestions,
    is_whole_by_default,
    questions_of,
)
from tailrace.cli.setup.qr_code import qr_lines
from tailrace.config.env_file import FILE_NAME, read_env_file
from tailrace.config.load import Config, home_directory, load
from tailrace.delivery.port import Flood, MessageReceived, Platform, Send, Sender, Update
from tailrace.errors import ConfigError, JournalError, PlatformError
from tailrace.plugins.installed import platforms, problems
from tailrace.system.own_program import typed

CHECK_TIMEOUT_S = 20.0
PAIRING_TIMEOUT_S = 180.0
REPLY_S = 5.0
CONFIRM_S = 1.0  # the adapter confirms the code's message with its next request: else it would be a question
_ANY_CODE = re.compile(r"\d{6}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("platform", type=_usable, choices=tuple(platforms()), help="which one")
    parser.add_argument(
        "--allow", action="append", default=[], metavar="ID", help="a user to serve; asked for otherwise"
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="another key of the platform")
    parser.add_argument("--no-pair", action="store_true", help="do not wait for a message of yours")


def _usable(name: str) -> str:
    """Raises `ArgumentTypeError` for an integration that is installed and cannot be used."""
    if name not in platforms() and (problem := problems().get(name)):
        raise argparse.ArgumentTypeError(problem)
    return name


def run(args: argparse.Namespace) -> int:
    """0 added, 1 refused or there already, 2 something is missing, 130 interrupted."""
    try:
        if (questions := questions_of(args.platform)) is None:
            print_error(f"{args.platform} asks nothing; write platforms.{args.platform} into the config by hand")
            return USAGE
        return _Addition(args, questions).run()
    except KeyboardInterrupt:
        sys.stderr.write("\nnothing was changed\n")
        return INTERRUPTED


class _Addition:
    """One platform on its way into the config."""

    def __init__(self, args: argparse.Namespace, questions: PlatformQuestions) -> None:
        self._name: str = args.platform
        self._args = args
        self._questions = questions
        self._home = home_directory(os.environ)
        self._asking = sys.stdin.isatty()
        self._secrets: dict[str, str] = {}  # typed here, by variable
        self._exported: list[str] = []  # variables that were found in the environment
        self._settings: dict[str, object] = {}
        self._position = ""  # up to where the platform was read when the person was paired

    def run(self) -> int:
        """Raises `ConfigError` for a config that is broken or cannot be changed."""
        config = load(os.environ)
        if (found := platforms().get(self._name)) is None:  # reading the config has shown that it cannot be used
            raise ConfigError(problems()[self._name])
        found.load(found.integration.platform, key=f"platforms.{self._name}")  # before a token is typed
        if self._name in config.platforms.by_name:
            print_error(f"platforms.{self._name} is in the config already; tailrace doctor says whether it works")
            return FAILED
        try:
            self._ask(config)
            sender = asyncio.run(self._connect(self._trial()))
            self._allow(sender)
        except OddAnswer as mistake:
            print_error(str(mistake))
            return USAGE
        except (PlatformError, TimeoutError) as exc:
            reason = str(exc).removeprefix(f"{self._name}: ") or self._no_answer()
            print_error(f"{self._name}: {reason}; nothing was changed")
            return FAILED
        self._write()
        return DONE

    def _no_answer(self) -> str:
        """With the address as it was read: who typed it without a scheme has not seen that."""
        address = self._settings.get("homeserver") or self._settings.get("url")
        return f"no answer from {address} in time" if address else "no answer in time"

    def _ask(self, config: Config) -> None:
        """Raises `OddAnswer`."""
        defaults = _defaults(self._name)
        for given in self._args.set:
            key, equals, value = given.partition("=")
            if not equals or key not in defaults:
                raise OddAnswer(f"--set {given}: expected KEY=VALUE with a key of docs/integrations/{self._name}.md")
            is_asked = key in self._questions.keys  # the same as if it were typed, and before a password is
            self._settings[key] = self._questions.tidied.get(key, str)(value) if is_asked else value
        self._check_ids([*self._args.allow])
        if self._asking:
            sys.stderr.write(f"{self._questions.where}; docs/integrations/{self._name}.md has the steps\n")
        for key, what in self._questions.keys.items():
            if key not in self._settings:
                self._settings[key] = self._answer(f"{what}: ", f"--set {key}=…", key)
        wanted = self._wanted_secrets(config)
        names = {key: str(self._settings.get(key, variable)) for key, variable in wanted.items()}
        missing = [named for named in names.values() if config.secret(named) is None]
        for key, named in names.items():
            if named != defaults[key]:
                self._settings[key] = named
            if named in missing:
                self._secrets[named] = self._secret(named, missing)
                continue
            self._questions.tidied.get(key, str)(config.require_secret(named, key))  # before anything is asked with it
            if named not in read_env_file(self._home / FILE_NAME):
                self._exported.append(named)

    def _wanted_secrets(self, config: Config) -> Mapping[str, str]:
        """The other secrets where one of them is named, or set already and none of the first are named."""
        if any(key in self._settings for key in self._questions.secrets):
            return self._questions.secrets
        for key, variable in self._questions.instead.items():
            if key in self._settings or config.secret(variable) is not None:
                return self._questions.instead
        return self._questions.secrets

    def _check_ids(self, users: list[str]) -> None:
        ids = self._questions.user_ids
        if odd := ids.odd(users):
            raise OddAnswer(f"{', '.join(odd)} is no user's id on {self._name}; an id looks like {ids.example}")

    def _answer(self, question: str, option: str, key: str) -> str:
        if not self._asking:
            raise OddAnswer(f"{self._name} needs {option}")

        def typed_line() -> str:
            sys.stderr.write(question)
            sys.stderr.flush()
            return input()

        return self._until_usable(typed_line, key, f"{self._name} needs {option}")

    def _secret(self, variable: str, missing: list[str]) -> str:
        if not self._asking:
            by_default = variable in self._questions.secrets.values()
            others = "".join(f", or {other}," for other in self._questions.instead.values() if by_default)
            raise OddAnswer(f"{self._name} needs {' and '.join(missing)}{others} in the environment")
        key = next((key for key, usual in self._questions.secrets.items() if usual == variable), variable)
        prompt = f"{variable} (it is not shown): "
        return self._until_usable(
            lambda: getpass.getpass(prompt, stream=sys.stderr), key, f"{self._name} needs {variable}"
        )

    def _until_usable(self, ask: Callable[[], str], key: str, missing: str) -> str:
        """Asks again for what cannot be: what was typed before is not lost, and a password that is typed next does not
        land in the shell. Raises `OddAnswer` where nothing more can be typed."""
        tidied = self._questions.tidied.get(key, str)
        while True:
            try:
                answer = ask().strip()
                if answer and answer.isprintable():
                    return tidied(answer)
                why = missing
            except EOFError:
                raise OddAnswer(missing) from None
            except OddAnswer as odd:
                why = str(odd)
            print_error(f"{why}; once more, or Ctrl-C")

    # ── trying it ────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _file(self) -> Path:
        return self._home / "config.yaml"

    def _new_text(self, **settings: object) -> str:
        text = self._file.read_text(encoding="utf-8") if self._file.exists() else ""
        try:
            return with_platform(text, self._name, self._settings | settings)
        except ConfigError as exc:
            raise ConfigError(exc.message, key="platforms", file=str(self._file)) from exc

    def _trial(self) -> Config:
        """The config as it will be; while pairing it serves every user, so that the bot accepts an invitation. Raises
        `ConfigError` where it would not load."""
        with tempfile.TemporaryDirectory() as directory:
            text = self._new_text(allow=["*"]) if self._pairs else self._new_text()
            (Path(directory) / "config.yaml").write_text(text, encoding="utf-8")
            known = read_env_file(self._home / FILE_NAME)
            try:
                config = load({**known, **os.environ, **self._secrets}, Path(directory))
                return replace(config, home=self._home.absolute())  # what a platform keeps stays, and is used later
            except ConfigError as exc:  # in the trial's file, which is gone
                raise ConfigError(exc.message, key=exc.key) from exc

    @property
    def _pairs(self) -> bool:
        return self._asking and bool(self._questions.pairing) and not (self._args.allow or self._args.no_pair)

    async def _connect(self, config: Config) -> Sender | None:
        """Raises `PlatformError` where the platform refuses."""
        from tailrace.gateway.registry import make_platform

        platform = make_platform(config, self._name)
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                account = await platform.check()
            sys.stderr.write(f"✓ {self._name}: {account}\n")
            if not self._pairs:
                return None
            sender, self._position = await _paired(platform, account, self._questions)
            return sender
        finally:
            await platform.close()

    # ── writing it ───────────────────────────────────────────────────────────────────────────────────────────

    def _allow(self, sender: Sender | None) -> None:
        allowed: list[str] = list(self._args.allow) or ([sender.id] if sender else [])
        if not allowed and self._asking and not self._questions.pairing:
            allowed = [self._answer(f"{self._questions.own_id}: ", "--allow ID", "allow")]
        if allowed:
            self._settings["allow"] = [int(user) if user.isdecimal() else user for user in allowed]

    def _write(self) -> None:
        text = self._new_text()
        if self._file.exists():
            sys.stderr.write(f"kept the old config as {copied_aside(self._file)}\n")
        for variable, value in self._secrets.items():
            keep_secret(self._home, variable, value)
        for variable in self._exported:
            kept = f"it must be there at each start, or as {variable}=… in {self._home / FILE_NAME}"
            sys.stderr.write(f"{variable} was found in the environment: {kept}\n")
        write_config(self._file, text)
        config = load(os.environ)  # it must load
        sys.stderr.write(f"wrote {self._file}\n")
        if self._position and config.store_is_kept:
            asyncio.run(_keep_position(config, self._name, self._position))
        if is_whole_by_default(config, self._name):
            sys.stderr.write(f"answers appear whole: {STREAM_THERE}\n")
        if "allow" not in self._settings:
            sys.stderr.write(
                "no user is served yet: write to the bot, it answers with a code for tailrace gateway --pair\n"
            )
        sys.stderr.write(f"next: {typed('gateway')}, or {typed('serve')}\n")
        if self._questions.then:
            sys.stderr.write(f"then {self._questions.then}\n")


def _defaults(platform: str) -> dict[str, object]:
    """The keys of the platform's section, each with its default."""
    section = platforms()[platform].integration.settings
    return {field.name: field.default for field in fields(section)} if section is not None else {}


class _PairingInbox:
    """Waits for the message that holds the code."""

    def __init__(self, platform: Platform, code: str) -> None:
        self._platform, self._code = platform, code
        self.paired: asyncio.Future[MessageReceived] = asyncio.get_running_loop().create_future()
        self.read_up_to = ""  # with the code

    async def put(self, update: Update) -> None:
        if not isinstance(update, MessageReceived) or self.paired.done():
            return
        if self._code in update.text:
            self.paired.set_result(update)
        elif _ANY_CODE.fullmatch(update.text.strip()):
            await _reply(self._platform, update, "That is not the code in the terminal.")

    async def serves(self, sender: Sender) -> bool:
        """Only the sender of the code is served."""
        return self.paired.done() and self.paired.result().sender == sender

    def connected(self) -> None:
        pass

    async def position(self) -> str:
        return ""

    @property
    def holds_parts(self) -> bool:
        return False

    async def until_released(self, update_id: str) -> None:
        """Nothing is held."""

    async def keep_position(self, position: str) -> bool:
        """What comes after the code is for the gateway; there is no config yet, and no store."""
        self.read_up_to = position if self.paired.done() else ""
        return False


async def _reply(platform: Platform, message: MessageReceived, text: str) -> None:
    """As well as it can be within `REPLY_S`: the terminal says the same."""
    told = Send(f"add.{message.update_id}", text, markup=False, purpose="pairing")
    with contextlib.suppress(PlatformError, TimeoutError):
        async with asyncio.timeout(REPLY_S):
            answer = await platform.perform(message.place, told)
            if isinstance(answer, Flood):
                await asyncio.sleep(answer.retry_after_s)
                await platform.perform(message.place, told)


async def _keep_position(config: Config, platform: str, position: str) -> None:
    """The person was told that the gateway answers: so it does with what they write before its first start. Where
    storage fails, it begins with what comes after that."""
    from tailrace.cli.own_journal import own_journal
    from tailrace.gateway.registry import POSITIONS, account_of
    from tailrace.journal.key_values import KeyValues

    with contextlib.suppress(JournalError):
        async with own_journal(config, make=True) as journal:
            await KeyValues(journal, POSITIONS, str).set_default(account_of(config, platform), position)


async def _paired(platform: Platform, account: str, questions: PlatformQuestions) -> tuple[Sender | None, str]:
    """Who sends the code to the bot, None after the time-out, and up to where the platform was read then. Raises
    `PlatformError`."""
    code = f"{secrets.randbelow(900_000) + 100_000}"
    inbox = _PairingInbox(platform, code)
    bot = account.partition(",")[0].removeprefix("logged in as ")  # what follows are its rights
    told = questions.pairing.format(code=code, bot=bot)
    if link := questions.link.format(code=code, bot=bot.removeprefix("@")):
        told = f"open {link}, or {told}"
        if sys.stderr.isatty():
            sys.stderr.write(f"{qr_lines(link)}\n")
    sys.stderr.write(f"{told}, and it serves you (waiting {PAIRING_TIMEOUT_S:g} s; Ctrl-C ends)\n")
    listening = asyncio.get_running_loop().create_task(platform.run(inbox))
    try:
        async with asyncio.timeout(PAIRING_TIMEOUT_S):
            both: list[asyncio.Future[Any]] = [listening, inbox.paired]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if inbox.paired.done():
            await _reply(platform, inbox.paired.result(), "Paired. I answer here once the gateway runs.")
        await asyncio.wait([listening], timeout=CONFIRM_S)
    except TimeoutError:
        return None, ""
    finally:
        listening.cancel()
        await asyncio.wait([listening])
    if not inbox.paired.done():
        listening.result()  # raises why it ended
        return None, ""
    sender = inbox.paired.result().sender
    named = f"{sender.name} ({sender.id})" if sender.name else sender.id
    sys.stderr.write(f"✓ {named} is served\n")
    return sender, inbox.read_up_to
