"""What a process that stays was started with, in one line for its log. It names variables and keys, never a secret."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.config.env_file import FILE_NAME as ENV_FILE
from tailrace.config.load import Config
from tailrace.config.sections import without_credentials


def start_line(config: Config, platforms: Iterable[str]) -> str:
    """The config, the store, the bus, the models in the order in which they are asked, and the platforms."""
    file = config.home / "config.yaml"
    models = [(model.provider, model.name) for model in config.model.fallbacks]
    models.insert(0, (config.model.provider, config.model.name))
    parts = [
        f"config {file if file.exists() else f'none at {file}'}",
        *([f"variables also from {config.home / ENV_FILE}"] if (config.home / ENV_FILE).exists() else []),
        f"store {config.database or without_credentials(config.store.url)}",
        f"bus {'none' if config.bus.url in ('auto', 'memory://') else without_credentials(config.bus.url)}",
        f"model {', then '.join('/'.join(model) for model in models)}",
        f"platforms: {', '.join(platforms) or 'none'}",
    ]
    return "; ".join(parts)


def key_line(config: Config) -> str:
    """Which keys the API takes, by the variable of the first and the names of the others."""
    keys = [config.server.key_env] if config.secret(config.server.key_env) else []
    keys += [key.name for key in config.server.keys]
    return f"a key is required: {', '.join(keys)}" if keys else "no key is required"
