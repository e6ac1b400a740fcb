"""`tailrace add`: a platform is verified, the person paired, and the config changed by lines alone."""

from __future__ import annotations

import asyncio
import re
import socket
import stat
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from proof.platforms.telegram import FakeTelegram
from proof.platforms.whatsapp import FakeWhatsApp

from cli.commands.command_line import environment
from cli.screen.vt import VirtualTerminal
from tailrace.cli.setup import add as add_command
from tailrace.cli.setup.config_file import with_platform
from tailrace.cli.setup.platform_questions import OddAnswer, questions_of
from tailrace.config.load import load
from tailrace.errors import ConfigError
from tailrace.integrations.whatsapp import WhatsAppSettings
from tailrace.plugins.installed import platforms

CONFIG = (
    "# mine\nagent: {max_turns: 3}   # few\n\nplatforms:   # chats\n    discord:\n        enabled: false\n# the end\n"
)


async def add(home: Path, *args: str, **variables: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tailrace", "add", *args),
        env=environment(home, **variables),
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    return process.returncode, said.decode()


async def test_a_person_types_the_token_and_is_paired_by_a_code(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    async with FakeTelegram() as telegram:
        command = [sys.executable, "-m", "tailrace", "add", "telegram", "--set", f"base_url={telegram.url}"]
        async with VirtualTerminal(command, environment(tmp_path), columns=110) as terminal:
            await terminal.until("TELEGRAM_BOT_TOKEN (it is not shown):")
            terminal.enter(telegram.token)
            await terminal.until("and it serves you")
            [code] = re.findall(r"send (\d{6}) to", terminal.text)
            stranger, ada = telegram.private(8), telegram.private(7)
            telegram.write(stranger, "hello")
            telegram.write(ada, "000000")
            await telegram.until(lambda: ada.texts)
            telegram.write(ada, code)
            assert await terminal.exit_code() == 0
            assert stranger.texts == []
            assert ada.texts == [
                "That is not the code in the terminal.",
                "Paired. I answer here once the gateway runs.",
            ]
            assert telegram.token not in terminal.text
            assert code not in str(telegram._unconfirmed()), "the code is no question to the model"
    config = load({}, tmp_path)
    assert config.platforms.by_name["telegram"].allow == ("7",)
    assert config.secret("TELEGRAM_BOT_TOKEN") == telegram.token
    assert stat.S_IMODE((tmp_path / "env").stat().st_mode) == 0o600
    text = (tmp_path / "config.yaml").read_text()
    assert telegram.token not in text
    assert [line for line in CONFIG.splitlines() if line not in text.splitlines()] == ["platforms:   # chats"]
    assert (tmp_path / "config.yaml.bak1").read_text() == CONFIG
    assert telegram.token not in config.environment.without(()).values(), "no child process is given it"


async def test_an_answer_that_cannot_be_is_asked_for_again(tmp_path: Path) -> None:
    """The three secrets before it are not to be typed again."""
    async with FakeWhatsApp() as whatsapp:
        command = [sys.executable, "-m", "tailrace", "add", "whatsapp", "--set", f"base_url={whatsapp.url}"]
        async with VirtualTerminal(command, environment(tmp_path), columns=110) as terminal:
            await terminal.until("the phone number's id:")
            terminal.enter("+1 555 0000")
            await terminal.until("+1 555 0000 is no id")
            terminal.enter("")
            await terminal.until("whatsapp needs --set phone_number_id=…; once more, or Ctrl-C")
            terminal.enter(whatsapp.phone_number_id)
            secrets = {
                "TOKEN": whatsapp.token,
                "APP_SECRET": whatsapp.app_secret,
                "VERIFY_TOKEN": whatsapp.verify_token,
            }
            for variable, secret in secrets.items():
                await terminal.until(f"WHATSAPP_{variable} (it is not shown):")
                terminal.enter(secret)
            await terminal.until("your own number, with the country code:")
            terminal.enter("ada")
            await terminal.until("ada is no user's id on whatsapp")
            terminal.enter("+1 (555) 123-4567")
            assert await terminal.exit_code() == 0
    config = load({}, tmp_path)
    settings = config.platforms.get("whatsapp", WhatsAppSettings)
    assert settings is not None
    assert settings.allow == ("15551234567",)
    assert settings.phone_number_id == whatsapp.phone_number_id


@pytest.mark.parametrize(
    ("platform", "key", "typed", "kept"),
    [
        ("homeassistant", "url", "127.0.0.1:8123", "http://127.0.0.1:8123"),
        ("homeassistant", "url", "https://home.example.org/", "https://home.example.org/"),
        ("homeassistant", "url", "http://home.local:8123/lovelace/0?edit=1", "http://home.local:8123"),
        ("homeassistant", "url", "http://home.local:8123/dashboard-cellar", "http://home.local:8123"),
        ("homeassistant", "url", "http://proxy.local/house", "http://proxy.local/house"),
        ("homeassistant", "url", "my home", "my home is no http:// or https:// address"),
        ("homeassistant", "url", "ftp://home", "ftp://home is no http:// or https:// address"),
        ("matrix", "homeserver", "matrix.org", "https://matrix.org"),
        ("matrix", "user", "tailrace", "tailrace is no user's id on matrix; an id looks like @ada:example.org"),
        ("slack", "token_env", "xoxb-1-2-a", "xoxb-1-2-a"),
        ("slack", "token_env", "xapp-1", "xapp-… is the app-level token; the bot token is wanted, xoxb-…"),
        ("slack", "app_token_env", "xoxb-1-2-a", "xoxb-… is the bot token; the app-level token is wanted, xapp-…"),
    ],
)
def test_an_answer_is_kept_as_it_is_meant_or_told(platform: str, key: str, typed: str, kept: str) -> None:
    questions = questions_of(platform)
    assert questions is not None
    try:
        assert questions.tidied[key](typed) == kept
    except OddAnswer as odd:
        assert str(odd) == kept  # noqa: PT017 - either is an outcome


async def test_what_has_not_the_form_of_a_token_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    async with FakeTelegram() as telegram:
        variables = {"TELEGRAM_BOT_TOKEN": "sk-some-other-secret"}
        code, said = await add(tmp_path, "telegram", "--set", f"base_url={telegram.url}", **variables)
        assert telegram.calls == []
    assert (code, "sk-some" in said) == (2, False)
    assert said.startswith("error: this does not look like a bot's token")
    assert (tmp_path / "config.yaml").read_text() == CONFIG


async def test_a_token_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    async with FakeTelegram() as telegram:
        variables = {"TELEGRAM_BOT_TOKEN": "1:wrong-but-a-token"}
        code, said = await add(tmp_path, "telegram", "--set", f"base_url={telegram.url}", **variables)
    assert code == 1
    assert said.endswith("; nothing was changed\n")
    assert not (tmp_path / "env").exists()
    assert not (tmp_path / "config.yaml.bak1").exists()
    assert (tmp_path / "config.yaml").read_text() == CONFIG


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("telegram",), "telegram needs TELEGRAM_BOT_TOKEN in the environment"),
        (("slack",), "slack needs SLACK_BOT_TOKEN and SLACK_APP_TOKEN in the environment"),
        (("matrix", "--set", "user=@b:x"), "matrix needs --set homeserver=…"),
        (("telegram", "--set", "colour=red"), "--set colour=red: expected KEY=VALUE with a key of docs/integrations"),
        (("discord",), "platforms.discord is in the config already"),
        (("telegram", "--allow", "@ada"), "@ada is no user's id on telegram; an id looks like 12345"),
        (("whatsapp", "--allow", "+1 555 1234567"), "+1 555 1234567 is no user's id on whatsapp"),
        (("matrix", "--set", "homeserver=my server"), "my server is no http:// or https:// address"),
        (("matrix", "--set", "homeserver=http://x", "--set", "user=bot"), "bot is no user's id on matrix"),
        (
            ("matrix", "--set", "homeserver=http://x", "--set", "user=@b:x"),
            "matrix needs MATRIX_PASSWORD, or MATRIX_TOKEN, in the environment",
        ),
    ],
)
async def test_without_a_terminal_it_says_what_is_missing(tmp_path: Path, args: tuple[str, ...], error: str) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    code, said = await add(tmp_path, *args)
    assert code in (1, 2)
    assert said.startswith(f"error: {error}")
    assert (tmp_path / "config.yaml").read_text() == CONFIG


async def test_a_key_that_cannot_be_is_named_without_a_file_that_nobody_wrote(tmp_path: Path) -> None:
    code, said = await add(
        tmp_path, "telegram", "--set", "base_url=127.0.0.1:8081", TELEGRAM_BOT_TOKEN="1:x-for-a-test-of-addresses"
    )
    assert code == 1
    assert said.startswith("error: platforms.telegram.base_url: expected an http:// or https:// address")


def test_an_address_without_a_scheme_is_named_as_it_was_read_where_nothing_answers_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(add_command, "CHECK_TIMEOUT_S", 0.1)
    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path))
    monkeypatch.setenv("MATRIX_TOKEN", "t")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        keys = [f"homeserver={address}", "user=@bot:localhost"]
        code = add_command.run(Namespace(platform="matrix", set=keys, allow=["@ada:localhost"], no_pair=False))
    assert code == 1
    assert capsys.readouterr().err == f"error: matrix: no answer from https://{address} in time; nothing was changed\n"


async def test_a_password_that_is_named_is_wanted_although_a_token_is_set(tmp_path: Path) -> None:
    keys = ("--set", "homeserver=http://x", "--set", "user=@b:x", "--set", "password_env=BOT_PASSWORD")
    code, said = await add(tmp_path, "matrix", *keys, MATRIX_TOKEN="x")
    assert (code, said) == (2, "error: matrix needs BOT_PASSWORD in the environment\n")


async def test_a_token_of_the_environment_is_said_to_be_kept_nowhere(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram:
        args = ("telegram", "--set", f"base_url={telegram.url}", "--allow", "7")
        code, said = await add(tmp_path, *args, TELEGRAM_BOT_TOKEN=telegram.token)
    assert code == 0
    assert f"or as TELEGRAM_BOT_TOKEN=… in {tmp_path / 'env'}\n" in said


@pytest.mark.parametrize("streaming", ["", "streaming: {enabled: true}\n", "streaming: {telegram: false}\n"])
async def test_that_answers_appear_whole_is_said_unless_the_config_says(tmp_path: Path, streaming: str) -> None:
    (tmp_path / "config.yaml").write_text(streaming, encoding="utf-8")
    async with FakeTelegram() as telegram:
        args = ("telegram", "--set", f"base_url={telegram.url}", "--allow", "7")
        _, said = await add(tmp_path, *args, TELEGRAM_BOT_TOKEN=telegram.token)
    assert ("answers appear whole: streaming: {enabled: true} in the config" in said) == (not streaming)


async def test_what_is_left_to_do_at_meta_is_said(tmp_path: Path) -> None:
    async with FakeWhatsApp() as whatsapp:
        args = ("--set", f"base_url={whatsapp.url}", "--set", f"phone_number_id={whatsapp.phone_number_id}")
        variables = {
            "WHATSAPP_TOKEN": whatsapp.token,
            "WHATSAPP_APP_SECRET": whatsapp.app_secret,
            "WHATSAPP_VERIFY_TOKEN": whatsapp.verify_token,
        }
        code, said = await add(tmp_path, "whatsapp", *args, "--allow", "15551234567", **variables)
    assert code == 0
    assert "https://YOUR.HOST/platforms/whatsapp/webhook" in said


# ── the text of the config ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "platforms:\n  telegram:\n    enabled: true\n    allow: [7]\n"),
        ("agent: {}", "agent: {}\n\nplatforms:\n  telegram:\n    enabled: true\n    allow: [7]\n"),
        ("platforms: {}\n", "platforms:\n  telegram:\n    enabled: true\n    allow: [7]\n"),
        (
            "platforms:\n   # note\n   slack: {}\nagent: {}\n",
            "platforms:\n   telegram:\n      enabled: true\n      allow: [7]\n   # note\n   slack: {}\nagent: {}\n",
        ),
    ],
)
def test_lines_are_added_and_the_rest_is_left(before: str, after: str) -> None:
    assert with_platform(before, "telegram", {"allow": [7]}) == after


def test_a_section_on_one_line_is_left_to_the_person() -> None:
    with pytest.raises(ConfigError, match=r'add by hand: telegram: \{"enabled": true, "allow": \[7\]\}'):
        with_platform("platforms: {slack: {enabled: true}}\n", "telegram", {"allow": [7]})


def test_every_platform_can_be_added() -> None:
    for name, found in platforms().items():
        questions, section = questions_of(name), found.integration.settings
        assert questions is not None
        assert section is not None
        assert {*questions.secrets, *questions.keys} <= set(section.__struct_fields__), name
