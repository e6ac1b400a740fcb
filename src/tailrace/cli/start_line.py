"""What a process that stays was started with, in one line for its log. It names variables and keys, never a secret."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tailrace.config.env_file import FILE_NAME as ENV_FILE
from tailrace.config.error_place import with_place
from tailrace.config.load import CONFIG_FILE, Config
from tailrace.errors import ConfigError
from tailrace.values.urls import without_credentials


def start_line(config: Config, platforms: Iterable[str]) -> str:
    """The config, the store, the bus, the models in the order in which they are asked, and the platforms."""
    file = config.home / CONFIG_FILE
    parts = [
        f"config {file if file.exists() else f'none at {file}'}",
        *([f"variables also from {config.home / ENV_FILE}"] if (config.home / ENV_FILE).exists() else []),
        f"store {config.database or without_credentials(config.store.url)}",
        f"bus {'none' if config.bus.url in ('auto', 'memory://') else without_credentials(config.bus.url)}",
        f"model {', then '.join('/'.join(model) for model in _models(config))}",
        f"platforms: {', '.join(platforms) or 'none'}",
    ]
    return "; ".join(parts)


def require_writable_store(config: Config) -> None:
    """For a process that stays. Raises `ConfigError` for a database that can be read and not written: a command that
    only shows what is in it needs no more, a server could record nothing."""
    from tailrace.journal.sqlite.integrity import unwritable

    file = config.database
    try:
        is_there = file is not None and file.exists()
    except PermissionError:  # it may not even be looked for
        is_there = True
    if file is not None and is_there and (place := unwritable(file)) is not None:
        message = f"{place} cannot be written to: it is another user's, or its file system is read-only"
        raise ConfigError(message, key="store.url")


def model_problems(config: Config) -> Iterator[str]:
    """Why a configured model cannot be asked, such as a key that is not set: else the first user would find out."""
    for model, problem in _unaskable_models(config):
        yield f"model {model} cannot be asked: {with_place(problem, config)}"


def _unaskable_models(config: Config) -> Iterator[tuple[str, ConfigError]]:
    from tailrace.app.models import LOCAL, endpoint_of

    for provider, name in _models(config):
        try:
            if provider != LOCAL:
                endpoint_of(config, provider)
        except ConfigError as exc:
            yield f"{provider}/{name}", exc


def _models(config: Config) -> list[tuple[str, str]]:
    """In the order in which they are asked."""
    return [(config.model.provider, config.model.name), *((ref.provider, ref.name) for ref in config.model.fallbacks)]


def key_line(config: Config) -> str:
    """Which keys the API takes, by the variable of the first and the names of the others."""
    keys = [config.server.key_env] if config.secret(config.server.key_env) else []
    keys += [key.name for key in config.server.keys]
    return f"a key is required: {', '.join(keys)}" if keys else "no key is required"
