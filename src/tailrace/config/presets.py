"""The endpoints people use, as data: where they are, what they speak, whose key they want.

A preset fills in what `providers.<name>` in the config leaves open.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from tailrace.config.load import Config
from tailrace.config.sections import ProviderSettings
from tailrace.messages import Dialect


class Preset(msgspec.Struct, frozen=True):
    """`quirks` are those that hold whatever the address: a local server has no name to be known by."""

    base_url: str
    dialect: Dialect = "chat"
    key_env: str | None = None
    quirks: tuple[str, ...] = ()


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "openai": Preset("https://api.openai.com/v1", "responses", "OPENAI_API_KEY"),
        "anthropic": Preset("https://api.anthropic.com", "anthropic", "ANTHROPIC_API_KEY"),
        "openrouter": Preset("https://openrouter.ai/api/v1", "chat", "OPENROUTER_API_KEY"),
        "deepseek": Preset("https://api.deepseek.com/v1", "chat", "DEEPSEEK_API_KEY"),
        "mistral": Preset("https://api.mistral.ai/v1", "chat", "MISTRAL_API_KEY"),
        "groq": Preset("https://api.groq.com/openai/v1", "chat", "GROQ_API_KEY"),
        "together": Preset("https://api.together.xyz/v1", "chat", "TOGETHER_API_KEY"),
        "gemini": Preset("https://generativelanguage.googleapis.com/v1beta/openai", "chat", "GEMINI_API_KEY"),
        "xai": Preset("https://api.x.ai/v1", "chat", "XAI_API_KEY"),
        "qwen": Preset("https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "chat", "DASHSCOPE_API_KEY"),
        "perplexity": Preset("https://api.perplexity.ai/chat/completions", "chat", "PERPLEXITY_API_KEY"),
        "ollama": Preset("http://127.0.0.1:11434/v1", quirks=("prefill",)),
        "llamacpp": Preset("http://127.0.0.1:8080/v1", quirks=("prefill",)),
        "vllm": Preset("http://127.0.0.1:8000/v1", quirks=("vllm-prefill",)),
        "lmstudio": Preset("http://127.0.0.1:1234/v1"),
    }
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
