"""A whole gateway in a test: application, model endpoint, config, and the platforms that the config enables."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tailrace.app import open_app
from tailrace.config.load import Config, load
from tailrace.gateway.gateway import Gateway
from tailrace.testing.provider import FaultyProvider, Reply, Scenario

CONFIG = """\
model: {{provider: fake, name: any}}
providers: {{fake: {{dialect: chat, base_url: "{provider}"}}}}
streaming: {{enabled: true, min_tokens: 5, {streaming}}}
agent: {{tools: [terminal]}}
store: {{url: "{store}"}}
server: {{drain_s: {drain_s}, port: 0}}
platforms: {{{platforms}}}
"""


def config_for(
    home: Path,
    provider: FaultyProvider,
    platforms: str,
    env: Mapping[str, str],
    *,
    store: str = "memory://",
    streaming: str = "",
    drain_s: float = 0.5,
) -> Config:
    """`platforms` and `streaming` are what stands in those sections, as YAML."""
    told = {"platforms": platforms, "store": store, "streaming": streaming, "drain_s": drain_s}
    text = CONFIG.format(provider=provider.openai_url, **told)
    (home / "config.yaml").write_text(text, encoding="utf-8")
    return load(env, home)


@asynccontextmanager
async def running_gateway(
    home: Path, script: Iterable[Reply | Scenario], platforms: str, env: Mapping[str, str], *, drain_s: float = 0.5
) -> AsyncIterator[tuple[Gateway, FaultyProvider]]:
    async with FaultyProvider(script) as provider:
        config = config_for(home, provider, platforms, env, drain_s=drain_s)
        async with open_app(config, directory=home) as app, Gateway(app) as gateway:
            yield gateway, provider
            gateway.take_no_more()
