"""Which platforms there are, and what a missing library means."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tailrace.config.load import load
from tailrace.errors import ConfigError
from tailrace.gateway.registry import account_of, make_platform
from tailrace.system.extras import install_command

LIBRARIES = {"telegram": "telegram", "discord": "discord", "slack": "slack_sdk.errors", "matrix": "nio"}


@pytest.mark.parametrize(("name", "library"), LIBRARIES.items())
def test_without_its_library_one_line_says_what_to_install(
    name: str, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    for module in [module for module in sys.modules if module.startswith(f"tailrace.integrations.{name}")]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(ConfigError, match=re.escape(install_command(name))) as missing:
        make_platform(load({}, tmp_path), name)
    assert "\n" not in str(missing.value)


@pytest.mark.parametrize(
    ("settings", "token", "renewed", "other"),
    [
        ("telegram: {}", "12:old", "12:new", "13:old"),
        ("discord: {}", "MTI.old.old", "MTI.new.new", "MTM.old.old"),
        ("slack: {}", "xoxb-1-2-old", "xoxb-1-2-new", "xoxb-1-3-old"),
        ('whatsapp: {phone_number_id: "106"}', "old", "new", None),
        ('homeassistant: {url: "http://127.0.0.1:8123"}', "old", "new", None),
        ('matrix: {homeserver: "http://127.0.0.1", user: "@bot:localhost", token_env: TOKEN}', "old", "new", None),
        ('matrix: {homeserver: "http://127.0.0.1", token_env: TOKEN}', "ours", "ours", "theirs"),
    ],
)
def test_a_new_token_of_the_same_bot_is_the_same_account(
    settings: str, token: str, renewed: str, other: str | None, tmp_path: Path
) -> None:
    """What waits for an account would wait for ever for one that a new token has made another."""
    (tmp_path / "config.yaml").write_text(f"platforms: {{{settings}}}\n", encoding="utf-8")
    name = settings.partition(":")[0]
    variables = ("TELEGRAM_BOT_TOKEN", "DISCORD_BOT_TOKEN", "SLACK_BOT_TOKEN", "WHATSAPP_TOKEN", "HASS_TOKEN", "TOKEN")

    def account(value: str) -> str:
        return account_of(load(dict.fromkeys(variables, value), tmp_path), name)

    assert account(token) == account(renewed)
    assert token not in account(token)
    if other is not None:
        assert account(other) != account(token)
