"""Which platforms there are, and which of them the config enables. An adapter's module is imported when it is
needed and not before: what one platform needs installed, the others do not."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from tailrace.config.load import Config
from tailrace.config.sections import PlatformSettings
from tailrace.delivery.port import Platform
from tailrace.errors import ConfigError

ADAPTERS = ("telegram", "discord", "slack", "whatsapp", "homeassistant", "matrix")


def settings_of(config: Config, name: str) -> PlatformSettings | None:
    """What the config says of a platform; None where it says nothing."""
    settings: PlatformSettings | None = getattr(config.platforms, name, None)
    return settings


def enabled(config: Config) -> Iterator[str]:
    for name in ADAPTERS:
        settings = settings_of(config, name)
        if settings is not None and settings.enabled:
            yield name


def make_platform(config: Config, name: str) -> Platform:
    """The adapter, unconnected. Raises `ConfigError` for what is missing in the config or is not installed."""
    try:
        module = import_module(f"tailrace.platforms.{name}.adapter")
    except ImportError as exc:
        raise ConfigError(
            f"its library is not there ({exc}); pip install 'tailrace[{name}]'", key=f"platforms.{name}"
        ) from exc
    platform: Platform = module.make(config)
    return platform
