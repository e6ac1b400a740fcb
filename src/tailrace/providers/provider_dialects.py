"""Which dialect each provider of the config and of the presets speaks: what a count of tokens means depends on it."""

from __future__ import annotations

from tailrace.config.load import Config
from tailrace.config.sections import ProviderSettings
from tailrace.messages import Dialect
from tailrace.providers.presets import PRESETS, Preset
from tailrace.wire.dialects import DIALECTS


def dialect_of(config: Config, provider: str) -> Dialect | None:
    """The dialect in which this provider is asked; None where neither the config nor a preset knows it any more."""
    settings, preset = config.providers.get(provider), PRESETS.get(provider)
    if settings is None and preset is None:
        return None
    return (settings or ProviderSettings()).dialect or (preset or Preset("")).dialect


def counts_cache_apart(config: Config, provider: str) -> bool:
    """Whether this provider's count of input tokens leaves out the cached ones."""
    dialect = dialect_of(config, provider)
    return dialect is not None and DIALECTS[dialect].counts_cache_apart


def provider_dialects(config: Config) -> dict[str, Dialect]:
    """By the providers' names."""
    names = (*PRESETS, *config.providers)
    return {name: dialect for name in names if (dialect := dialect_of(config, name)) is not None}
