"""What a program brings along for its agents, and whether a turn of theirs can be begun."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from tailrace.agent.turn_spec import TurnSpec
from tailrace.app.costs import Costs
from tailrace.app.models import Models, named
from tailrace.errors import ConfigError
from tailrace.flows.schema.schema import SchemaError
from tailrace.flows.schema.whole_value import NotChecked, answer_in, load_schema
from tailrace.messages import JsonObject, SpentTokens, Usage
from tailrace.ports import Tool
from tailrace.providers.prices import load_prices
from tailrace.system.extras import install_command


class AgentProgram(msgspec.Struct, frozen=True):
    """For the turns of one agent: its tools, in place of what the process offers, and what is wrong with an answer's
    value, in words. Another process has neither."""

    tools: Mapping[str, Tool] = {}
    problem_in: Callable[[Any], str] = lambda _: ""

    async def problem_of(self, schema: JsonObject | None, text: str) -> str:
        """What is wrong with an answer that must satisfy a schema, and the program besides."""
        try:
            value, problems = await answer_in(text, await load_schema(schema or {}))
        except (SchemaError, NotChecked) as exc:
            return str(exc)
        return "; ".join(problems) or self.problem_in(value)


NO_PROGRAM: Final = AgentProgram()


async def check_turn(spec: TurnSpec, models: Models, costs: Costs) -> None:
    """Raises `ConfigError` for a turn whose model is not there or has no key, and for a limit in dollars where it has
    no price."""
    choice = named(models.config, spec.model)
    models.routes(choice)
    models.check_embedded(choice)
    if spec.max_usd is not None:
        await load_prices()
        if costs.price(SpentTokens(choice.provider, choice.name, Usage(1_000_000))) is None:
            what = f"{choice.provider}/{choice.name} has no price; {install_command('prices')}, or set max_tokens"
            raise ConfigError(what, key="max_usd")
