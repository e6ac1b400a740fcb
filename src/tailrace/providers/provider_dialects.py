"""Which dialect each provider of the config and of the presets speaks: what a count of tokens means depends on it."""

from __future__ import annotations

from tailrace.config.load import Config
from tailrace.config.sections import ProviderSettings
from tailrace.messages import Dialect
from tailrace.providers.presets import PRESETS, Preset


def provider_dialects(config: Config) -> dict[str, Dialect]:
    """By the providers' names."""
    return {
        name: config.providers.get(name, ProviderSettings()).dialect or PRESETS.get(name, Preset("")).dialect
        for name in (*PRESETS, *config.providers)
    }
