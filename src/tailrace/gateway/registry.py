"""The enabled platforms of a config, the account of each, and its adapter.

An adapter is imported when the config enables its platform: the library of a platform that is not used need not be
installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

from tailrace.config.load import Config
from tailrace.delivery.port import Platform
from tailrace.errors import ConfigError
from tailrace.plugins.installed import platforms

POSITIONS = "platforms.positions"  # in the journal's small state: up to where each account was read


def enabled(config: Config) -> Iterator[str]:
    return (name for name, settings in config.platforms.by_name.items() if settings.enabled)


def account_of(config: Config, name: str) -> str:
    """Names the account that the config has on a platform, without showing its secrets: two processes with the same one
    must not both poll it."""
    settings = config.platforms.by_name.get(name)
    if settings is None:
        return name
    known = settings.account_id(config.secret(settings.secrets().get("token_env")) or "")
    return f"{name}:{blake2b(repr(known).encode(), digest_size=6).hexdigest()}"


def settings_and_secrets(config: Config, name: str) -> object:
    """The settings that an adapter is made from: equal settings make equal adapters."""
    settings = config.platforms.by_name.get(name)
    return settings and (settings, [config.secret(variable) for variable in settings.secrets().values()])


def make_platform(config: Config, name: str) -> Platform:
    """The adapter, unconnected. Raises `ConfigError` for what is missing in the config or is not installed, and where
    the integration's own code fails: its adapter, or the `account_id` of its settings."""
    key = f"platforms.{name}"
    if (found := platforms().get(name)) is None:
        raise ConfigError("there is no such platform", key=key)
    platform = found.call(found.integration.platform, config, key=key)
    with found.failures(key):
        if not isinstance(platform, Platform) or platform.name != name:
            made = f"{found.integration.platform} returned {platform!r}"
            raise ConfigError(f"{made}, which is no Platform of that name", key=key)
        if platform.hook_path and not platform.hook_path.startswith("/platforms/"):
            raise ConfigError(f"its webhook {platform.hook_path!r} is not below /platforms/", key=key)
        account_of(config, name)
    return platform
