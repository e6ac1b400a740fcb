"""Which model a name stands for, at which endpoint, with whose key.

`providers.<name>` in the config, filled in by the preset of that name. Makes no call.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from tailrace.config import quirks
from tailrace.config.load import Config
from tailrace.config.presets import PRESETS, Preset
from tailrace.config.sections import ModelChoice, ProviderSettings
from tailrace.errors import ConfigError, ProviderError
from tailrace.flows.definition.spelling import did_you_mean
from tailrace.providers.attempt import Route
from tailrace.providers.http.endpoint import Endpoint
from tailrace.providers.http.provider import MAX_MODEL_CHARS, HttpProvider
from tailrace.providers.http.reattaching import http_provider
from tailrace.providers.http.refused_fields import RefusedFields
from tailrace.providers.local.provider import MODEL_NAME, LocalProvider, LocalServer
from tailrace.providers.transport.port import Transport
from tailrace.wire.dialects import DIALECTS

LOCAL = "local"
MAX_NAMED = 1024  # names whose routes are kept
_NEAR_PROVIDER = 0.75  # difflib's ratio: "opnai" is near "openai", "nope" is not
AGENT = "tailrace"  # the agent, where a model is named or an alias stands for it


def default_model(config: Config, provider: str) -> str | None:
    """The model that a provider alone stands for, where it stands for one."""
    if provider == config.model.provider:
        return config.model.name
    return MODEL_NAME if provider == LOCAL else None


def chosen(config: Config, provider: str | None, model: str | None) -> ModelChoice:
    """The model to ask. One that was asked for by name has no stand-ins. Without a provider, `<provider>/<model>` and
    `server.aliases` are understood, and any other name is one of the configured provider's. Raises `ConfigError` for
    half a name, and for a provider that is not there."""
    if provider is None and model is None:
        return config.model
    if provider is None and model is not None and not _is_own_model(config, model) and not _is_path(model):
        if (model := unaliased(config, model)) == AGENT:
            return named(config, model)
        _check_halves(model)
        before, slash, rest = model.partition("/")
        if slash and not (before not in _known(config) and _has_slashed_names(config)):
            check_known(config, before)
            return ModelChoice(provider=before, name=rest)
    provider = provider or config.model.provider
    rest = (model or "").removeprefix(f"{provider}/")
    if "/" in rest:  # named with its provider twice; a router's own model has one slash: `openrouter/auto`
        model = rest
    return ModelChoice(provider=provider, name=model or default_model(config, provider) or "")


def _is_own_model(config: Config, model: str) -> bool:
    """Whether the configured model has this very name: `openai/gpt-5` of a router, say."""
    return model in {config.model.name, *(ref.name for ref in config.model.fallbacks)}


def _has_slashed_names(config: Config) -> bool:
    """Whether the configured provider's own models have names like `minimax/minimax-m2.7`, as a router's do."""
    names = [ref.name for ref in config.model.fallbacks if ref.provider == config.model.provider]
    return any("/" in name for name in (config.model.name, *names))


def _is_path(model: str) -> bool:
    """As servers call a model that they have loaded from a file."""
    return model.startswith("/") and "/" in model[1:] and not model.endswith("/")


def named(config: Config, name: str) -> ModelChoice:
    """The model that `<provider>/<model>` names, or an alias of one; empty: the configured one. Raises
    `ConfigError`."""
    if not name:
        return config.model
    _check_halves(name)
    target = unaliased(config, name)
    if target == AGENT:
        raise ConfigError(
            f"{name[:80]!r} stands for the agent, which is no model; name one as <provider>/<model>, or none: that is"
            " the configured one",
            key="model",
        )
    provider, slash, model = target.partition("/")
    if (not slash or provider not in _known(config)) and len(owners := _owners(config, target)) == 1:
        return ModelChoice(provider=owners.pop(), name=target)
    if not slash or not model:
        alias = {name[:80]: f"<provider>/{name[:80]}"}
        raise ConfigError(
            f"expected tailrace, <provider>/<model> or one of server.aliases, found {name[:80]!r}; where a client cuts"
            f" names at the slash, set server.aliases: {alias}",
            key="model",
        )
    return ModelChoice(provider=provider, name=model)


def _owners(config: Config, name: str) -> set[str]:
    """The providers that may have a model of this bare name (some clients cut a name at its first slash): those of the
    configured model and its stand-ins with this name; else, for a name without a slash, every configured one."""
    owners = {choice.provider for choice in config.model.fallbacks if choice.name == name}
    if config.model.name == name:
        owners.add(config.model.provider)
    if owners or "/" in name:
        return owners
    return {config.model.provider, *config.providers} - {LOCAL}  # the embedded model has one name


def _check_halves(name: str) -> None:
    """Raises `ConfigError` for a name with nothing on one side of its slash."""
    provider, slash, model = name.partition("/")
    if slash and not (provider and model):
        missing = "model after" if provider else "provider before"
        raise ConfigError(
            f"{name[:80]!r} has no {missing} the slash; a name looks like <provider>/<model>: openai/gpt-5", key="model"
        )


def unaliased(config: Config, name: str) -> str:
    """What a bare name stands for by `server.aliases`, a model or the agent; the first pattern that matches wins."""
    if "/" in name:
        return name
    for pattern, target in config.server.aliases.items():
        if fnmatchcase(name, pattern):
            return target.replace("*", name)
    return name


def is_known(config: Config, provider: str) -> bool:
    return provider in _known(config)


def check_known(config: Config, provider: str) -> None:
    """Raises `ConfigError` where the name stands for nothing."""
    known = _known(config)
    if provider not in known:
        raise ConfigError(f"no such provider{_hint(provider, known)}", key=f"providers.{provider}")


def _hint(provider: str, known: set[str]) -> str:
    """The end of a message about a name that stands for nothing: the one that was probably meant, else all."""
    _, meant = did_you_mean(provider, known, near=_NEAR_PROVIDER)
    return f"; did you mean {meant}?" if meant is not None else f"; there are {', '.join(sorted(known))}"


def _known(config: Config) -> set[str]:
    return {LOCAL, *PRESETS, *config.providers}


def endpoint_of(config: Config, name: str) -> Endpoint:
    """Raises `ConfigError` where the name stands for nothing, or its key is not set."""
    check_known(config, name)
    settings = config.providers.get(name, ProviderSettings())
    preset = PRESETS.get(name, Preset(""))
    if not (base_url := settings.base_url or preset.base_url):
        raise ConfigError("is missing", key=f"providers.{name}.base_url")
    names = quirks.NAMES.union(quirk.name for quirk in config.quirks)
    if unknown := [quirk for quirk in settings.quirks if quirk not in names]:
        there_are = ", ".join(sorted(names))
        raise ConfigError(f"no quirk is called {unknown[0]}; there are {there_are}", key=f"providers.{name}.quirks")
    dialect = settings.dialect or preset.dialect
    if settings.reattach and not DIALECTS[dialect].keeps_answers:
        raise ConfigError(f"needs dialect: responses, not {dialect}", key=f"providers.{name}.reattach")
    # The preset's key belongs to the preset's address: another one gets the key that the config binds to it (J115).
    key_env = settings.key_env or (preset.key_env if settings.base_url is None else None)
    return Endpoint(
        name=name,
        dialect=dialect,
        base_url=base_url,
        key=config.require_secret(key_env, f"providers.{name}.key_env") if key_env else "",
        headers=settings.headers,
        extra_body=settings.extra_body,
        quirks=(*preset.quirks, *settings.quirks),
        own_quirks=tuple(quirk.as_quirk() for quirk in config.quirks),
        connect_timeout_s=config.call_for(name).connect_timeout_s,
        reattach=settings.reattach,
    )


def not_embedded(config: Config, name: str) -> ConfigError:
    """The embedded model has another name than this one."""
    provider, slash, model = name.partition("/")
    if slash and provider in _known(config):
        is_configured = (config.model.provider, config.model.name) == (LOCAL, name)
        instead = f"name the model as {provider}/{model}, without --provider"
        if is_configured:
            instead = f"write {{provider: {provider}, name: {model}}} in place of {{name: {name}}}"
        message = f"{provider} is a provider of its own: {instead}"
    elif slash:
        message = f"no provider is called {provider}{_hint(provider, _known(config))}"
    elif (colon := name.partition(":"))[0] in _known(config) and colon[2]:
        message = f"a slash follows the provider: {colon[0]}/{colon[2]}, not {name}"
    else:
        message = f"the embedded model is {MODEL_NAME}, not {name}: name another provider's as <provider>/{name}"
    return ConfigError(message, key="model", refused=name)


class Models:
    """Routes to models by name, made as they are asked for. The providers that they lead to are kept, and some routes:
    clients choose the names of models, and may choose any number of them."""

    def __init__(self, config: Config, transport: Transport) -> None:
        self.config = config
        self._transport = transport
        self._providers: dict[str, HttpProvider | LocalProvider] = {}  # by name: no more than the config and presets
        self._at: dict[str, Route] = {}  # a route to each of them, without a model
        self._named: dict[str, tuple[Route, ...]] = {}  # see `routes_of`
        self._refused = RefusedFields()
        settings = config.providers.get(LOCAL)
        path = config.path(settings.model_path) if settings and settings.model_path else None
        directory = config.home / "models"
        self.local = LocalServer(directory, model_path=path, model_name=path.stem) if path else LocalServer(directory)

    def take_config(self, config: Config) -> None:
        """From now on its providers, keys and models. Calls under way keep the route that they have."""
        self.config = config
        self._providers.clear()
        self._at.clear()
        self._named.clear()

    def routes(self, choice: ModelChoice) -> tuple[Route, ...]:
        """The chosen model and its fallbacks. Raises `ConfigError` for what is not set."""
        first = self._route(choice.provider, choice.name)
        return (
            (first,)
            if not choice.fallbacks
            else (first, *[self._route(ref.provider, ref.name) for ref in choice.fallbacks])
        )

    def routes_of(self, name: str) -> tuple[Route, ...]:
        """Those of the model that a client names so; the configured model brings its fallbacks along. Raises
        `ConfigError`."""
        if (routes := self._named.get(name)) is None:
            choice, configured = named(self.config, name), self.config.model
            same = (choice.provider, choice.name) == (configured.provider, configured.name)
            routes = self.routes(configured if same else choice)
            if len(self._named) >= MAX_NAMED:
                self._named.clear()
            if len(name) <= MAX_MODEL_CHARS:  # a client may send any
                self._named[name] = routes
        return routes

    async def make_ready(self, choice: ModelChoice) -> None:
        """Checks before the first question that the model can be called; downloads and loads the embedded model, so
        that this time does not count against a call's deadlines. A name that the embedded model does not have is
        refused before anything is downloaded. Raises `ConfigError`, `ProviderError`."""
        self.routes(choice)
        if choice.provider != LOCAL:
            return
        self.check_embedded(choice)
        try:
            await self.local.start()
        except ProviderError:
            if not choice.fallbacks:
                raise

    def check_embedded(self, choice: ModelChoice) -> None:
        """Raises `ConfigError` for a name that the embedded model does not have."""
        if choice.provider == LOCAL and not self.local.serves(choice.name):
            raise not_embedded(self.config, choice.name)

    async def listed_by(self, provider: str) -> tuple[str, ...]:
        """The models that the provider lists itself. Raises `ConfigError`, `ProviderError`."""
        if provider == LOCAL:
            return (MODEL_NAME,)
        return await HttpProvider(endpoint_of(self.config, provider), self._transport).list_models()

    def route_to(self, endpoint: Endpoint, model: str) -> Route:
        """A model at an address that the config may not name; not kept."""
        provider = http_provider(endpoint, self._transport, self._refused)
        policy, streams = self.config.call_for(endpoint.name), self._streams(endpoint.name)
        return Route(provider, model, policy, local=endpoint.is_local, streams=streams)

    def _route(self, provider: str, model: str) -> Route:
        if (at := self._at.get(provider)) is None:
            at = self._at[provider] = self._route_without_model(provider)
        return Route(at.provider, model, at.policy, local=at.local, streams=at.streams)

    def _route_without_model(self, name: str) -> Route:
        provider = self._providers[name] = self._local() if name == LOCAL else self._http(name)
        is_local = not isinstance(provider, HttpProvider) or provider.is_local
        return Route(provider, "", self.config.call_for(name), local=is_local, streams=self._streams(name))

    def _http(self, name: str) -> HttpProvider:
        return http_provider(endpoint_of(self.config, name), self._transport, self._refused)

    def _local(self) -> LocalProvider:
        settings = self.config.providers.get(LOCAL, ProviderSettings())
        return LocalProvider(
            self.local, self._transport, dialect=settings.dialect or "chat", extra_body=settings.extra_body
        )

    def _streams(self, provider: str) -> bool:
        settings = self.config.providers.get(provider)
        return settings is None or settings.stream is not False
