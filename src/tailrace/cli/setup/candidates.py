"""Who could answer on this machine: keys in the environment, a running Ollama, the embedded model. Best first."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from tailrace.config.load import load
from tailrace.config.presets import PRESETS
from tailrace.errors import TailraceError

LOCAL, LOCAL_MODEL = "local", "smollm2-135m"
OLLAMA = "ollama"
OLLAMA_PORT = 11434
LOOK_TIMEOUT_S = 1.0
TRIAL_TIMEOUT_S = 60.0
# The model of each provider that a new config names: a good one of its kind, for an agent with tools.
SUGGESTED_MODELS: Mapping[str, str] = {
    "anthropic": "claude-sonnet-5",
    "openai": "gpt-5-mini",
    "openrouter": "minimax/minimax-m2.7",
    "deepseek": "deepseek-chat",
    "mistral": "mistral-large-latest",
    "groq": "llama-3.3-70b-versatile",
    "together": "meta-llama/Llama-3.3-70B-Instruct-Turbo",
    "gemini": "gemini-2.5-flash",
    "xai": "grok-4",
    LOCAL: LOCAL_MODEL,
}


class Candidate(NamedTuple):
    """A model that could answer. `reason` says how it was found; `base_url` where it is not the preset's."""

    provider: str
    model: str
    reason: str
    base_url: str = ""


def is_set(environ: Mapping[str, str], variable: str) -> bool:
    """A variable of blanks counts as not set, as it does when the config is loaded."""
    return bool(environ.get(variable, "").strip())


async def found_candidates(environ: Mapping[str, str]) -> list[Candidate]:
    """The embedded model is always among them, last."""
    found = [
        Candidate(name, SUGGESTED_MODELS[name], f"{preset.key_env} is set")
        for name, preset in PRESETS.items()
        if preset.key_env and is_set(environ, preset.key_env) and name in SUGGESTED_MODELS
    ]
    ollama = await _ollama(environ)
    embedded = Candidate(LOCAL, LOCAL_MODEL, "the embedded model: small, no key, nothing leaves this machine")
    return [*found, *([ollama] if ollama else []), embedded]


def ollama_url(environ: Mapping[str, str]) -> str:
    """Where Ollama's own clients look for it: OLLAMA_HOST is a host, a port, or both."""
    named = environ.get("OLLAMA_HOST", "").strip()
    parts = urlsplit(named if "://" in named else f"//{named}")
    try:
        port = parts.port or OLLAMA_PORT
    except ValueError:
        port = OLLAMA_PORT
    host = parts.hostname or "127.0.0.1"
    if host in ("0.0.0.0", "::"):  # noqa: S104 - what its server listens on, not where it is reached
        host = "127.0.0.1"
    return f"{parts.scheme or 'http'}://{f'[{host}]' if ':' in host else host}:{port}/v1"


async def _ollama(environ: Mapping[str, str]) -> Candidate | None:
    """A running Ollama that has a model."""
    from tailrace.providers.http.endpoint import Endpoint
    from tailrace.providers.http.provider import HttpProvider
    from tailrace.providers.transport.http1_transport import open_transport

    url = ollama_url(environ)
    endpoint = Endpoint(name=OLLAMA, dialect="chat", base_url=url, connect_timeout_s=LOOK_TIMEOUT_S)
    try:
        async with asyncio.timeout(LOOK_TIMEOUT_S), open_transport() as transport:
            models = await HttpProvider(endpoint, transport).list_models()
    except (TailraceError, TimeoutError, OSError):
        return None
    if not models:
        return None
    return Candidate(OLLAMA, models[0], "runs here", "" if url == PRESETS[OLLAMA].base_url else url)


async def try_model(environ: Mapping[str, str], text: str) -> None:
    """One small call to the model of a config that is not written yet. Raises `TailraceError` with the reason."""
    import tempfile
    from pathlib import Path

    from tailrace.app.models import Models
    from tailrace.messages import ModelRequest, user
    from tailrace.providers.transport.http1_transport import open_transport

    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        (home / "config.yaml").write_text(text, encoding="utf-8")
        config = load(environ, home)
        async with open_transport(config.transport) as transport:
            [route, *_] = Models(config, transport).routes(config.model)
            request = ModelRequest(route.model, (user("Say hello in one word."),))
            try:
                async with asyncio.timeout(TRIAL_TIMEOUT_S):
                    await route.provider.complete(request)
            except TimeoutError:
                raise TailraceError(f"no answer within {TRIAL_TIMEOUT_S:g} s") from None
