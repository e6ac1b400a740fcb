"""The endpoints people use, from `presets.toml`: where they are, what they speak, whose key they want.

A preset fills in what `providers.<name>` in the config leaves open.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from tailrace.config.load import Config
from tailrace.config.sections import ProviderSettings
from tailrace.messages import Dialect


class Preset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`quirks` are those that hold whatever the address: a local server has no name to be known by."""

    base_url: str
    dialect: Dialect = "chat"
    key_env: str | None = None
    quirks: tuple[str, ...] = ()


PRESETS: Mapping[str, Preset] = MappingProxyType(
    msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=dict[str, Preset])
)


def dialect_of(config: Config, provider: str) -> Dialect | None:
    """The dialect in which this provider is asked; None where neither the config nor a preset knows it any more."""
    settings, preset = config.providers.get(provider), PRESETS.get(provider)
    if settings is None and preset is None:
        return None
    return (settings or ProviderSettings()).dialect or (preset or Preset("")).dialect


def provider_dialects(config: Config) -> dict[str, Dialect]:
    """The dialect of each provider of the config and of the presets, by the provider's name."""
    names = (*PRESETS, *config.providers)
    return {name: dialect for name in names if (dialect := dialect_of(config, name)) is not None}
