"""A sequence's `budget`, against what the steps of its instance have used so far."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from tailrace.flows.definition.definition import Budget
from tailrace.flows.engine.plan import Plan
from tailrace.flows.steps.base import AskedModel, StepError
from tailrace.messages import SpentTokens, Usage
from tailrace.providers.prices import Prices
from tailrace.system.extras import install_command


async def check_budget(budget: Budget, plan: Plan, prices: Prices, asked: Sequence[AskedModel]) -> None:
    """To be awaited before a step that may ask these models. Raises `StepError` where the budget is spent, and where a
    limit in dollars has no price to count by."""
    tokens = plan.usage.input_tokens + plan.usage.output_tokens
    if budget.max_tokens is not None and tokens >= budget.max_tokens:
        raise StepError(f"the budget of {budget.max_tokens} tokens is spent ({tokens})", code="budget")
    if budget.max_cost_usd is None:
        return
    cost = 0.0
    for (provider, model), usage in tuple(plan.usage_by_model.items()):
        cost += await _cost(prices, AskedModel(provider, model, plan.dialects.get(provider)), usage)
    if cost >= budget.max_cost_usd:
        raise StepError(f"the budget of ${budget.max_cost_usd:g} is spent (${cost:.4f})", code="budget")
    for each in asked:
        await _cost(prices, each, Usage(1_000_000))


async def _cost(prices: Prices, asked: AskedModel, usage: Usage) -> float:
    cost = await prices.find(SpentTokens(asked.provider, asked.model, usage), asked.dialect)
    if cost is None and usage != Usage():
        more = "" if find_spec("genai_prices") is not None else f", or {install_command('prices')}"
        what = f"{asked.provider}/{asked.model} has no price, which budget.max_cost_usd needs"
        raise StepError(f"{what}; set providers.{asked.provider}.prices{more}", code="budget")
    return cost or 0.0
