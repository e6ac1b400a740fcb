"""The presets are data that the rest can use: an address of the dialect, known quirks, the name of a variable."""

from __future__ import annotations

import re

import pytest

from tailrace.config.presets import PRESETS
from tailrace.providers.http.endpoint import Endpoint
from tailrace.providers.http.quirks import quirks_of

REMOTE = {
    "openai": "https://api.openai.com/v1/responses",
    "anthropic": "https://api.anthropic.com/v1/messages",
    "openrouter": "https://openrouter.ai/api/v1/chat/completions",
    "deepseek": "https://api.deepseek.com/v1/chat/completions",
    "mistral": "https://api.mistral.ai/v1/chat/completions",
    "groq": "https://api.groq.com/openai/v1/chat/completions",
    "together": "https://api.together.xyz/v1/chat/completions",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions",
    "xai": "https://api.x.ai/v1/chat/completions",
    "qwen": "https://dashscope-intl.aliyuncs.com/compatible-mode/v1/chat/completions",
    "perplexity": "https://api.perplexity.ai/chat/completions",
}
LOCAL = {"ollama": 11434, "llamacpp": 8080, "vllm": 8000, "lmstudio": 1234}


def endpoint(name: str) -> Endpoint:
    preset = PRESETS[name]
    return Endpoint(name=name, dialect=preset.dialect, base_url=preset.base_url, quirks=preset.quirks)


def test_the_endpoints_people_use_are_there() -> None:
    assert PRESETS.keys() == REMOTE.keys() | LOCAL.keys()


@pytest.mark.parametrize("name", REMOTE)
def test_a_service(name: str) -> None:
    assert endpoint(name).url() == REMOTE[name]
    assert not endpoint(name).is_local
    assert re.fullmatch(r"[A-Z]+_API_KEY", PRESETS[name].key_env or "")


@pytest.mark.parametrize("name", LOCAL)
def test_a_server_of_ones_own(name: str) -> None:
    assert endpoint(name).url() == f"http://127.0.0.1:{LOCAL[name]}/v1/chat/completions"
    assert endpoint(name).is_local
    assert PRESETS[name].key_env is None


@pytest.mark.parametrize("name", PRESETS)
def test_every_quirk_it_names_is_in_the_registry(name: str) -> None:
    assert set(PRESETS[name].quirks) <= {quirk.name for quirk in quirks_of(endpoint(name), "m")}
