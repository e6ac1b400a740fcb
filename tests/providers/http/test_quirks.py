"""What single endpoints need: matched on who they really are, and never over the user's own choice."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from providers.faulty_calls import ASK, Told, faulty
from tailrace.config.quirks import REGISTRY, Quirk, WireQuirks
from tailrace.config.sections import OwnQuirk
from tailrace.messages import ModelRequest, user
from tailrace.providers.attempt import Route
from tailrace.providers.http.endpoint import Endpoint
from tailrace.providers.http.quirks import CONTINUE, adapted_body, matches_host, quirks_of, wire_quirks_of
from tailrace.providers.http.streamed_answer import discard
from tailrace.wire.dialects import DIALECTS
from tailrace.wire.peer_json import merged

OPENROUTER = Endpoint(name="openrouter", dialect="chat", base_url="https://openrouter.ai/api/v1")
MINIMAX = ModelRequest("minimax/minimax-m2.7", (user("hi"),))
ROUTED = {"ignore": ["minimax"], "order": ["fireworks", "novitaai", "google-vertex", "atlascloud", "together"]}


def body_of(endpoint: Endpoint, request: ModelRequest, **extra: Any) -> dict[str, Any]:
    quirks = quirks_of(endpoint, request.model)
    return adapted_body(
        msgspec.structs.replace(request, extra=extra),
        DIALECTS[endpoint.dialect],
        quirks,
        extra=endpoint.extra_body,
        stream=True,
    )


def test_minimax_on_openrouter_goes_to_other_hosts() -> None:
    assert body_of(OPENROUTER, MINIMAX)["provider"] == ROUTED


@pytest.mark.parametrize(
    ("theirs", "sent"),
    [
        ({"only": ["minimax"]}, {"only": ["minimax"]}),
        ({"order": ["together"]}, {"order": ["together"], "ignore": ["minimax"]}),
        ({"order": ["minimax", "together"]}, {"order": ["minimax", "together"]}),
        ({"ignore": ["novitaai"]}, {"ignore": ["novitaai"], "order": ROUTED["order"]}),
        ({"ignore": []}, {"ignore": [], "order": ROUTED["order"]}),
        ({"sort": "price"}, {"sort": "price", "ignore": ["minimax"]}),
        ({"data_collection": "deny"}, {"data_collection": "deny", **ROUTED}),
    ],
)
def test_what_the_user_set_wins(theirs: dict[str, Any], sent: dict[str, Any]) -> None:
    """In the request itself and in the endpoint's `extra_body` alike."""
    assert body_of(OPENROUTER, MINIMAX, provider=theirs)["provider"] == sent
    configured = msgspec.structs.replace(OPENROUTER, extra_body={"provider": theirs})
    assert body_of(configured, MINIMAX)["provider"] == sent
    assert configured.extra_body == {"provider": theirs}  # the config's own value is not written to


@pytest.mark.parametrize(
    ("base_url", "model"),
    [
        ("https://evil-openrouter.ai.example.com/api/v1", "minimax/minimax-m2.7"),
        ("https://evil-openrouter.ai/api/v1", "minimax/minimax-m2.7"),
        ("https://openrouter.ai.example.com/v1", "minimax/minimax-m2.7"),
        ("https://example.com/openrouter.ai/v1", "minimax/minimax-m2.7"),
        ("https://openrouter.ai@example.com/v1", "minimax/minimax-m2.7"),
        ("https://openrouter.ai/api/v1", "anthropic/claude-sonnet-4.5"),
        ("https://openrouter.ai/api/v1", "other/minimax/x"),
    ],
)
def test_it_is_for_that_host_and_those_models_alone(base_url: str, model: str) -> None:
    endpoint = msgspec.structs.replace(OPENROUTER, base_url=base_url)
    assert "provider" not in body_of(endpoint, msgspec.structs.replace(MINIMAX, model=model))


@pytest.mark.parametrize("base_url", ["https://OpenRouter.AI:443/api/v1", "https://eu.openrouter.ai/api/v1"])
def test_a_subdomain_and_another_spelling_are_the_same_host(base_url: str) -> None:
    endpoint = msgspec.structs.replace(OPENROUTER, base_url=base_url)
    assert "provider" in body_of(endpoint, msgspec.structs.replace(MINIMAX, model="MiniMax/MiniMax-M2.7"))


def test_hosts() -> None:
    assert matches_host("openrouter.ai.", "openrouter.ai")
    assert not matches_host("", "openrouter.ai")
    assert not matches_host("notopenrouter.ai", "openrouter.ai")


def test_a_field_that_an_endpoint_refuses_is_renamed_or_left_out() -> None:
    endpoint = Endpoint(name="mistral", dialect="chat", base_url="https://api.mistral.ai/v1")
    request = ModelRequest("mistral-large-latest", (user("hi"),), max_tokens=9, seed=4)
    body = body_of(endpoint, request)
    assert "stream_options" not in body
    assert (body["max_tokens"], body["random_seed"]) == (9, 4)
    assert not {"max_completion_tokens", "seed"} & body.keys()
    assert body_of(endpoint, request, stream_options={"x": 1})["stream_options"] == {"x": 1}


def test_what_the_decoder_must_know() -> None:
    named = Endpoint(name="x", dialect="chat", base_url="https://x", quirks=("name-in-pieces", "cumulative-text"))
    assert wire_quirks_of(quirks_of(named, "m")) == WireQuirks(cumulative_text=True, name_in_pieces=True)
    assert wire_quirks_of(quirks_of(OPENROUTER, "m")) == WireQuirks()


def test_an_unknown_quirk_is_a_mistake() -> None:
    with pytest.raises(LookupError, match="nonsense"):
        quirks_of(msgspec.structs.replace(OPENROUTER, quirks=("nonsense",)), "m")


async def test_A17_B28_quirks_reach_the_decoder_over_the_wire() -> None:
    async with faulty("ok+cumulative", "tools+name-in-pieces", "ok", "tools") as bench:
        odd = bench.provider(quirks=("cumulative-text", "name-in-pieces"))
        plain = bench.provider()
        said = []
        for provider in (odd, odd, plain, plain):
            async with provider.stream(ASK) as answer:
                await answer.pump(discard)
                said.append(answer.completion().message)
        assert said[:2] == said[2:]


@pytest.mark.parametrize(
    ("base_url", "model", "prefilled"),
    [
        ("https://api.anthropic.com", "claude-3-7-sonnet-latest", True),
        ("https://api.anthropic.com", "claude-sonnet-4-5-20250929", True),
        ("https://api.anthropic.com", "claude-opus-4-6", False),
        ("https://api.anthropic.com", "claude-opus-5", False),
        ("https://elsewhere.example", "claude-sonnet-4-5", False),
    ],
)
def test_a_continuation_is_prefilled_only_where_that_is_known_to_work(
    base_url: str, model: str, prefilled: bool
) -> None:
    endpoint = Endpoint(name="a", dialect="anthropic", base_url=base_url)
    last = body_of(endpoint, ModelRequest(model, (user("hi"),), prefill="Water"))["messages"][-1]
    assert (last["role"] == "assistant") is prefilled
    assert (CONTINUE in str(last)) is not prefilled


def test_thoughts_and_schemas_do_not_go_with_a_prefill() -> None:
    endpoint = Endpoint(name="l", dialect="chat", base_url="http://127.0.0.1:8080", quirks=("prefill",))
    plain = ModelRequest("m", (user("hi"),), prefill="Water")
    assert body_of(endpoint, plain)["messages"][-1]["role"] == "assistant"
    for request in (
        msgspec.structs.replace(plain, reasoning_effort="low"),
        msgspec.structs.replace(plain, response_schema={"type": "object"}),
    ):
        assert CONTINUE in str(body_of(endpoint, request)["messages"][-1])
    assert CONTINUE in str(body_of(endpoint, plain, thinking={"type": "enabled"})["messages"][-1])


def test_vllm_is_told_to_go_on() -> None:
    endpoint = Endpoint(name="v", dialect="chat", base_url="http://127.0.0.1:8000", quirks=("vllm-prefill",))
    body = body_of(endpoint, ModelRequest("m", (user("hi"),), prefill="Water"))
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)
    assert body["messages"][-1] == {"role": "assistant", "content": "Water"}
    assert "continue_final_message" not in body_of(endpoint, ModelRequest("m", (user("hi"),)))


def test_extra_fields_merge_key_by_key_and_the_request_wins() -> None:
    assert merged({"a": {"x": 1, "y": 1}, "b": 1}, {"a": {"y": 2}, "b": {"z": 3}}) == {
        "a": {"x": 1, "y": 2},
        "b": {"z": 3},
    }
    endpoint = msgspec.structs.replace(OPENROUTER, extra_body={"temperature": 0.1, "provider": {"only": ["a"]}})
    body = body_of(endpoint, MINIMAX, temperature=0.9, provider={"quantizations": ["fp8"]})
    assert body["temperature"] == 0.9
    assert body["provider"] == {"only": ["a"], "quantizations": ["fp8"]}


def test_every_entry_says_why() -> None:
    assert len({quirk.name for quirk in REGISTRY}) == len(REGISTRY)
    assert REGISTRY[0].name == "openrouter-minimax"
    for quirk in REGISTRY:
        assert quirk.why.startswith("https://"), quirk.name
        assert quirk.host == quirk.host.lower(), quirk.name


@pytest.mark.parametrize(
    ("base_url", "named", "is_known"),
    [
        ("https://api.perplexity.ai", (), True),
        ("https://router.huggingface.co/v1", (), True),
        ("https://api.writer.com/v1", (), True),
        ("https://models.example.com/v1", ("ends-without-done",), True),
        ("https://models.example.com/v1", (), False),
        ("https://api.perplexity.ai.example.com", (), False),
    ],
)
def test_D48_servers_that_never_send_done_are_known_by_name(
    base_url: str, named: tuple[str, ...], is_known: bool
) -> None:
    endpoint = Endpoint(name="x", dialect="chat", base_url=base_url, quirks=named)
    assert wire_quirks_of(quirks_of(endpoint, "m")).ends_without_done is is_known


async def test_D48_an_answer_without_done_is_whole_where_that_is_known_and_said_once_where_not() -> None:
    """Elsewhere it is a cut: asked again, the same words are not shown twice."""
    told = Told()
    async with faulty("no-terminal", "ok") as it:
        provider = it.provider(quirks=("ends-without-done",))
        known = await it.call(Route(provider, "ok"))
        assert known.incomplete is None
        assert len(known.attempts) == 1
    async with faulty("no-terminal", "ok") as it:
        unknown = await it.call(it.route(backoff_s=0.001), told=told)
    assert len(unknown.attempts) == 2
    assert told.text == unknown.completion.text == known.completion.text


def test_a_quirk_of_the_users_own_adds_and_drops_fields_and_never_what_was_set() -> None:
    own = Quirk(name="own", why="", host="openrouter.ai", body={"provider": {"sort": "price"}, "n": 1}, drop=("seed",))
    endpoint = msgspec.structs.replace(OPENROUTER, own_quirks=(own,))
    request = ModelRequest("a/b", (user("hi"),), seed=7)
    sent = body_of(endpoint, request)
    assert (sent["provider"], sent["n"], "seed" in sent) == ({"sort": "price"}, 1, False)
    theirs = body_of(endpoint, request, n=2, seed=8, provider={"sort": "latency", "only": ["x"]})
    assert (theirs["provider"], theirs["n"], theirs["seed"]) == ({"sort": "latency", "only": ["x"]}, 2, 8)


def test_a_quirk_of_the_config_drops_what_a_client_sent_and_not_what_the_config_adds() -> None:
    own = OwnQuirk(name="own", host="openrouter.ai", drop=("seed", "top_k")).as_quirk()
    endpoint = msgspec.structs.replace(OPENROUTER, own_quirks=(own,), extra_body={"top_k": 3})
    sent = body_of(endpoint, ModelRequest("a/b", (user("hi"),)), seed=8)
    assert (sent["top_k"], "seed" in sent) == (3, False)
