"""Which endpoint a provider's name stands for."""

from __future__ import annotations

import gc
import os
import re
from pathlib import Path

import pytest

from tailrace.app.models import Models, chosen, endpoint_of, named, not_embedded
from tailrace.config.load import Config, load
from tailrace.config.sections import ModelChoice
from tailrace.errors import ConfigError
from tailrace.providers.attempt import Route
from tailrace.providers.http.endpoint import Endpoint
from tailrace.providers.http.quirks import quirks_of
from tailrace.providers.transport.http1_transport import open_transport

ROUTER = Endpoint(name="openrouter", dialect="chat", base_url="https://openrouter.ai/api/v1")


def config(home: Path, text: str) -> Config:
    (home / "config.yaml").write_text(text, encoding="utf-8")
    return load({"OPENAI_API_KEY": "sk-theirs", "MINE": "sk-mine"}, home)


def test_J115_a_presets_key_does_not_follow_to_another_address(tmp_path: Path) -> None:
    moved = config(tmp_path, "providers: {openai: {base_url: 'http://10.0.0.5/v1'}}")
    assert endpoint_of(moved, "openai").key == ""
    assert endpoint_of(load({"OPENAI_API_KEY": "sk-theirs"}, tmp_path / "none"), "openai").key == "sk-theirs"
    bound = config(tmp_path, "providers: {openai: {base_url: 'http://10.0.0.5/v1', key_env: MINE}}")
    assert endpoint_of(bound, "openai").key == "sk-mine"


def test_a_users_quirks_join_those_of_the_preset(tmp_path: Path) -> None:
    made = endpoint_of(config(tmp_path, "providers: {ollama: {quirks: [ends-without-done]}}"), "ollama")
    assert made.quirks == ("prefill", "ends-without-done")


def test_reattach_holds_for_the_responses_dialect_alone(tmp_path: Path) -> None:
    kept = config(tmp_path, "providers: {up: {dialect: responses, base_url: 'http://up/v1', reattach: true}}")
    assert endpoint_of(kept, "up").reattach
    with pytest.raises(ConfigError, match=r"providers\.ollama\.reattach: needs dialect: responses, not chat"):
        endpoint_of(config(tmp_path, "providers: {ollama: {reattach: true}}"), "ollama")


def test_a_quirk_that_does_not_exist_is_said_before_any_call(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"providers\.ollama\.quirks: no quirk is called ends-with-done; there are "):
        endpoint_of(config(tmp_path, "providers: {ollama: {quirks: [ends-with-done]}}"), "ollama")


async def test_the_names_that_clients_choose_are_not_kept(tmp_path: Path) -> None:
    made = config(tmp_path, "providers: {mine: {base_url: 'http://127.0.0.1:9/v1'}}")
    async with open_transport() as transport:
        models = Models(made, transport)
        routes = [models.routes(named(made, f"mine/model-{number}"))[0] for number in range(100)]
        assert [route.model for route in routes] == [f"model-{number}" for number in range(100)]
        assert len({id(route.provider) for route in routes}) == 1
        assert len(models._providers) == 1
        del routes
        gc.collect()
        assert not [route for route in gc.get_objects() if isinstance(route, Route) and route.model == "model-7"]


async def test_a_provider_with_stream_false_is_asked_for_whole_answers(tmp_path: Path) -> None:
    made = config(tmp_path, "providers: {ollama: {stream: false}, vllm: {stream: auto}, local: {stream: false}}")
    async with open_transport() as transport:
        models = Models(made, transport)
        routes = [models.routes(named(made, f"{name}/m"))[0] for name in ("ollama", "vllm", "llamacpp", "local")]
        own = models.route_to(endpoint_of(made, "ollama"), "m")
    assert [route.streams for route in (*routes, own)] == [False, True, True, False, False]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nope/x", "no provider is called nope; there are anthropic, "),
        ("opnai/x", r"no provider is called opnai; did you mean openai\?$"),
        ("smollm3", "the embedded model is smollm2-135m, not smollm3: name another provider's as <provider>/smollm3"),
        ("openai/gpt-5", "openai is a provider of its own: name the model as openai/gpt-5, without --provider"),
    ],
)
async def test_an_unknown_model_is_refused_before_anything_is_downloaded(tmp_path: Path, name: str, said: str) -> None:
    async with open_transport() as transport:
        models = Models(load({}, tmp_path), transport)
        with pytest.raises(ConfigError, match=said):
            await models.make_ready(ModelChoice("local", name))
        assert models.local.pid is None
    assert not os.listdir(tmp_path)  # noqa: PTH208 - pathlib's may not be called here


def test_a_provider_in_the_configured_name_is_told_as_the_config_has_it(tmp_path: Path) -> None:
    made = config(tmp_path, "model: {name: openai/gpt-5}")
    said = "openai is a provider of its own: write {provider: openai, name: gpt-5} in place of {name: openai/gpt-5}"
    assert not_embedded(made, "openai/gpt-5").message == said


def test_a_model_may_be_named_with_its_provider(tmp_path: Path) -> None:
    router = config(tmp_path, "model: {provider: openrouter, name: openai/gpt-5}")
    assert chosen(router, None, "ollama/qwen3:8b") == ModelChoice("ollama", "qwen3:8b")
    assert chosen(router, None, "minimax/minimax-m2.7") == ModelChoice("openrouter", "minimax/minimax-m2.7")
    assert chosen(router, None, "openai/gpt-5") == ModelChoice("openrouter", "openai/gpt-5")  # the configured one
    assert chosen(router, "together", "openai/gpt-5") == ModelChoice("together", "openai/gpt-5")
    assert chosen(router, None, None) is router.model
    assert chosen(router, None, "claude-sonnet-5") == ModelChoice("anthropic", "claude-sonnet-5")  # an alias
    assert chosen(router, None, "big-model") == ModelChoice("openrouter", "big-model")


@pytest.mark.parametrize(
    ("name", "hint"), [("opnai/gpt-5", "did you mean openai?"), ("nosuch/x", "there are anthropic")]
)
def test_a_provider_that_is_not_there_is_refused_with_a_hint(tmp_path: Path, name: str, hint: str) -> None:
    for text in ("", "model: {provider: openai, name: gpt-5}"):
        with pytest.raises(ConfigError, match=re.escape(f"no such provider; {hint}")):
            chosen(config(tmp_path, text), None, name)


def test_a_model_named_with_the_provider_that_is_given_too_is_sent_without_it(tmp_path: Path) -> None:
    made = config(tmp_path, "model: {provider: openai, name: gpt-5}")
    named = chosen(made, "openrouter", "openrouter/minimax/minimax-m2.7")
    assert named == ModelChoice("openrouter", "minimax/minimax-m2.7")
    assert [quirk.name for quirk in quirks_of(ROUTER, named.name)] == ["openrouter-minimax"]
    assert chosen(made, "openrouter", "openrouter/auto") == ModelChoice("openrouter", "openrouter/auto")


def test_a_quirk_of_the_users_own_holds_by_host_or_by_name(tmp_path: Path) -> None:
    made = config(
        tmp_path,
        "providers: {mine: {dialect: chat, base_url: 'https://eu.models.example/v1'},"
        " other: {dialect: chat, base_url: 'https://other.example/v1', quirks: [no-seed]}}\n"
        "quirks: [{name: no-seed, host: models.example, model: 'Small-*', why: 'https://models.example/1',"
        " body: {provider: {sort: price}}, drop: [seed]}]",
    )
    for name in ("mine", "other"):
        assert [quirk.name for quirk in quirks_of(endpoint_of(made, name), "small-7b")] == ["no-seed"]
        assert not quirks_of(endpoint_of(made, name), "large")
    with pytest.raises(ConfigError, match=r"quirks\[0\]\.?.*name"):
        config(tmp_path, "quirks: [{host: models.example}]")
    with pytest.raises(ConfigError, match=r"no quirk is called none; there are .*no-seed"):
        endpoint_of(config(tmp_path, "providers: {ollama: {quirks: [none]}}\nquirks: [{name: no-seed}]"), "ollama")


def test_a_name_that_a_client_cut_at_its_slash_is_found_where_one_provider_is_meant(tmp_path: Path) -> None:
    model = "{provider: openrouter, name: acme/small, fallbacks: [{provider: lab, name: acme/big}]}"
    lab = "providers: {lab: {base_url: 'http://127.0.0.1:9/v1'}}"
    several = config(tmp_path, f"model: {model}\n{lab}")
    assert named(several, "acme/small") == ModelChoice("openrouter", "acme/small")
    assert named(several, "acme/big") == ModelChoice("lab", "acme/big")
    assert named(several, "openai/gpt-5") == ModelChoice("openai", "gpt-5")
    with pytest.raises(ConfigError, match=r"server.aliases: \{'qwen3': '<provider>/qwen3'\}"):
        named(several, "qwen3")
    one = config(tmp_path, lab)
    assert named(one, "qwen3") == ModelChoice("lab", "qwen3")


def test_a_path_is_a_model_of_the_configured_provider(tmp_path: Path) -> None:
    config = load({}, tmp_path)
    assert chosen(config, None, "/models/m.gguf") == ModelChoice(config.model.provider, "/models/m.gguf")


@pytest.mark.parametrize(
    ("name", "missing"), [("bad/", "no model after the slash"), ("/gpt-5", "no provider before the slash")]
)
def test_half_a_name_is_told_with_how_a_whole_one_looks(tmp_path: Path, name: str, missing: str) -> None:
    said = f"^model: '{name}' has {missing}; a name looks like <provider>/<model>: openai/gpt-5$"
    with pytest.raises(ConfigError, match=said):
        named(load({}, tmp_path), name)
    with pytest.raises(ConfigError, match=said):
        chosen(load({}, tmp_path), None, name)


def test_a_colon_after_the_provider_is_told_to_be_a_slash(tmp_path: Path) -> None:
    problem = not_embedded(load({}, tmp_path), "anthropic:claude-sonnet-5")
    assert problem.message == "a slash follows the provider: anthropic/claude-sonnet-5, not anthropic:claude-sonnet-5"
