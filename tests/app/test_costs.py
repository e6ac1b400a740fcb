"""What runs cost by list prices."""

from __future__ import annotations

from pathlib import Path

from tailrace.app.costs import Costs
from tailrace.config.load import load
from tailrace.messages import SpentTokens, Usage


async def test_half_a_price_is_no_price(tmp_path: Path) -> None:
    costs = Costs(load({}, tmp_path))
    known = SpentTokens("openai", "gpt-4o", Usage(1_000_000, 1_000_000))
    unknown = SpentTokens("openai", "no-such-model", Usage(1, 1))
    await costs.load([known])
    assert (costs.of([known]) or 0.0) > 1.0
    assert costs.of([known, SpentTokens("openai", "no-such-model", Usage())]) == costs.of([known])
    assert costs.of([known, unknown]) is None
    assert costs.of([]) is None


async def test_the_providers_dialect_says_how_cached_tokens_are_counted_not_the_models_name(tmp_path: Path) -> None:
    """A host of Claude that speaks Chat Completions counts them among the input."""
    costs = Costs(load({}, tmp_path))
    used = Usage(1_000_000, 0, cache_read_tokens=900_000)
    apart = SpentTokens("anthropic", "claude-sonnet-4-5", used)
    among = SpentTokens("openrouter", "anthropic/claude-sonnet-4-5", used)
    await costs.load([apart])
    assert (costs.price(among) or 0.0) < 0.5 * (costs.price(apart) or 0.0)


async def test_a_price_of_the_config_stands_before_the_list_and_is_the_only_one_of_an_own_model(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        "providers:\n"
        "  home: {dialect: chat, base_url: 'http://127.0.0.1:1/v1', prices: {'llama-*': {input: 0.5, output: 2}}}\n"
        "  openai: {prices: {gpt-4o: {input: 100, output: 0, cache_read: 1}}}\n",
        encoding="utf-8",
    )
    costs = Costs(load({}, tmp_path))
    assert costs.price(SpentTokens("home", "llama-70b", Usage(1_000_000, 1_000_000))) == 2.5
    assert costs.price(SpentTokens("home", "qwen", Usage(1_000_000, 1_000_000))) is None
    cached = Usage(1_000_000, 1_000_000, cache_read_tokens=400_000)
    assert costs.price(SpentTokens("openai", "gpt-4o", cached)) == 60.4, "cached tokens are among those of the input"
