"""The providers that the config names, opened for the length of a command.

Owns which endpoint a name stands for and where its key comes from: `providers.<name>` in the config, filled in by
the preset of that name. Makes no call.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tailrace.config import Config, ModelChoice, ModelRef, ProviderSettings
from tailrace.errors import ConfigError, ProviderError
from tailrace.ports import Provider
from tailrace.providers.attempt import Route
from tailrace.providers.endpoint import Endpoint
from tailrace.providers.http import HttpProvider
from tailrace.providers.local import MODEL_NAME, LocalProvider, LocalServer
from tailrace.providers.presets import PRESETS, Preset
from tailrace.providers.transport import Transport, open_transport

LOCAL = "local"


def default_model(config: Config, provider: str) -> str | None:
    """The model that a provider alone stands for, where it stands for one."""
    if provider == config.model.provider:
        return config.model.name
    return MODEL_NAME if provider == LOCAL else None


def chosen(config: Config, provider: str | None, model: str | None) -> ModelChoice:
    """The model to ask. One that was asked for by name has no stand-ins."""
    if provider is None and model is None:
        return config.model
    provider = provider or config.model.provider
    return ModelChoice(provider=provider, name=model or default_model(config, provider) or "")


@asynccontextmanager
async def open_routes(config: Config, choice: ModelChoice) -> AsyncGenerator[list[Route], None]:
    """The chosen model and whoever stands in for it, ready to be asked. Raises `ConfigError` for what is not set."""
    server = _local_server(config)
    refs = [ModelRef(choice.provider, choice.name), *choice.fallbacks]
    async with open_transport() as transport:
        try:
            routes = [_route(config, ref, server, transport) for ref in refs]
            if choice.provider == LOCAL:
                await _warm_up(server, is_last_resort=len(routes) == 1)
            yield routes
        finally:
            await server.aclose()


async def _warm_up(server: LocalServer, *, is_last_resort: bool) -> None:
    """Downloads and loads before the first call, whose deadlines are about answering."""
    try:
        await server.start()
    except ProviderError:
        if is_last_resort:
            raise


def _route(config: Config, ref: ModelRef, server: LocalServer, transport: Transport) -> Route:
    provider: Provider
    if ref.provider == LOCAL:
        settings = config.providers.get(LOCAL, ProviderSettings())
        provider = LocalProvider(server, transport, dialect=settings.dialect or "chat", extra_body=settings.extra_body)
        return Route(provider, ref.name, config.call_for(LOCAL), local=True)
    endpoint = endpoint_of(config, ref.provider)
    return Route(HttpProvider(endpoint, transport), ref.name, config.call_for(ref.provider), local=endpoint.is_local)


def endpoint_of(config: Config, name: str) -> Endpoint:
    """Raises `ConfigError` where the name stands for nothing, or its key is not set."""
    settings = config.providers.get(name)
    preset = PRESETS.get(name)
    if settings is None and preset is None:
        known = sorted({LOCAL, *PRESETS, *config.providers})
        raise ConfigError(f"no such provider; there are {', '.join(known)}", key=f"providers.{name}")
    settings = settings or ProviderSettings()
    preset = preset or Preset("")
    if not (base_url := settings.base_url or preset.base_url):
        raise ConfigError("is missing", key=f"providers.{name}.base_url")
    # The preset's key belongs to the preset's address: another one gets the key that the config binds to it (J115).
    key_env = settings.key_env or (preset.key_env if settings.base_url is None else None)
    return Endpoint(
        name=name,
        dialect=settings.dialect or preset.dialect,
        base_url=base_url,
        key=config.require_secret(key_env, f"providers.{name}.key_env") if key_env else "",
        headers=settings.headers,
        extra_body=settings.extra_body,
        quirks=preset.quirks,
        connect_timeout_s=config.call_for(name).connect_timeout_s,
    )


def _local_server(config: Config) -> LocalServer:
    settings = config.providers.get(LOCAL)
    if settings is None or settings.model_path is None:
        return LocalServer(config.home / "models")
    path = config.path(settings.model_path)
    return LocalServer(config.home / "models", model_path=path, model_name=path.stem)
