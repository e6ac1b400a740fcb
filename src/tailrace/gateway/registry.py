"""The platforms that the config knows, and the adapter of each.

A platform is a folder `tailrace/integrations/<name>` whose `adapter` module has `make(config) -> Platform`, and one
line in `tailrace.config.sections.Platforms`. An adapter is imported when the config enables it: a platform that is not
used need not be installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from importlib import import_module
from types import ModuleType

from tailrace.config.load import Config
from tailrace.config.sections import Platforms, PlatformSettings
from tailrace.delivery.port import Platform
from tailrace.errors import ConfigError
from tailrace.system.extras import install_command

POSITIONS = "platforms.positions"  # in the journal's small state: up to where each account was read


def settings_of(config: Config, name: str) -> PlatformSettings | None:
    """The settings of a platform; None where the config has none."""
    settings: PlatformSettings | None = getattr(config.platforms, name, None)
    return settings


def enabled(config: Config) -> Iterator[str]:
    for name in Platforms.__struct_fields__:
        settings = settings_of(config, name)
        if settings is not None and settings.enabled:
            yield name


def account_of(config: Config, name: str) -> str:
    """Names the account that the config has on a platform, without showing its secrets: two processes with the same one
    must not both poll it. A new token for the same bot is the same account: what waited for it goes on."""
    settings = settings_of(config, name)
    if settings is None:
        return name
    token = config.secret(getattr(settings, "token_env", None)) or ""
    return _account(name, [*_told_of(settings), _bot_of(name, settings, token)])


def _account(name: str, known: object) -> str:
    return f"{name}:{blake2b(repr(known).encode(), digest_size=6).hexdigest()}"


def _told_of(settings: PlatformSettings) -> list[object]:
    return [getattr(settings, field, None) for field in ("base_url", "homeserver", "url", "user", "phone_number_id")]


def _bot_of(name: str, settings: PlatformSettings, token: str) -> str:
    """What a token says of whose it is; empty where the settings say it."""
    match name:
        case "telegram":  # 123456789:secret
            return token.partition(":")[0]
        case "discord":  # id.time.secret
            return token.partition(".")[0]
        case "slack":  # xoxb-workspace-bot-secret
            return token.rpartition("-")[0]
        case _:
            is_told = any(getattr(settings, field, None) for field in ("url", "user", "phone_number_id"))
            return "" if is_told else token


def adapter_of(name: str) -> ModuleType:
    """The module of a platform's adapter. Raises `ConfigError` where its library is not installed."""
    try:
        return import_module(f"tailrace.integrations.{name}.adapter")
    except ImportError as exc:
        raise ConfigError(
            f"its library is not installed ({exc}); {install_command(name)}", key=f"platforms.{name}"
        ) from exc


def make_platform(config: Config, name: str) -> Platform:
    """The adapter, unconnected. Raises `ConfigError` for what is missing in the config or is not installed."""
    platform: Platform = adapter_of(name).make(config)
    return platform
