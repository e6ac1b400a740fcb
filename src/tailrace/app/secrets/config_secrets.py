"""The secrets that a config names, and the redactor that takes them out of texts."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from tailrace.agent.safety.redact import Redactor
from tailrace.config.load import Config
from tailrace.config.presets import PRESETS
from tailrace.errors import ConfigError


def secrets_of(config: Config) -> dict[str, str]:
    """The secrets in use, by the variable that holds each: never shown, never passed on to a command."""
    names = {preset.key_env for preset in PRESETS.values()}
    names |= {settings.key_env for settings in config.providers.values()}
    names |= config.server.secret_variables() | config.platforms.secret_variables()
    for server in config.mcp.servers.values():
        names |= {server.key_env, *server.headers_env.values()}
    names |= {config.store_password_env}
    return {name: value for name in names if name and (value := config.secret(name))}


def mcp_secrets(config: Config) -> dict[str, str]:
    """What is sent to the addresses of MCP servers, from the file `env` too. A program gets what `env_allow` names, and
    never a variable of that file."""
    by_address = [server for server in config.mcp.servers.values() if server.url is not None]
    names = {name for server in by_address for name in (server.key_env, *server.headers_env.values()) if name}
    for_programs = {name for server in config.mcp.servers.values() for name in server.env_allow}
    return {name: value for name in names - for_programs if (value := config.secret(name))}


def redactor_of(config: Config) -> Redactor:
    """Takes the secrets in use, and what `agent.redact` matches, out of texts. Raises `ConfigError`."""
    try:
        urls = (config.store.url, config.bus.url)
        passwords = [unquote(password) for url in urls if (password := urlsplit(url).password)]
        return Redactor([*secrets_of(config).values(), *passwords], config.agent.redact)
    except re.error as exc:
        raise ConfigError(f"not a regular expression: {exc}", key="agent.redact") from exc
