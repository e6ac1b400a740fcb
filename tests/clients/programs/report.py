"""Every check of a program against every model of `MODEL`, one line of JSON each: what came, or what went wrong.

`MODEL` has names with spaces between them. `name=chat,responses` is for the checks that begin with one of these words.
"""

import asyncio
import json
import os
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

RIVER, CITY = "Aare", "Bern"


def water_level(river: str) -> str:
    """The level of a river.

    Args:
        river: The river's name.
    """
    return f"{river} is at 3.2 m"


def weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: The city's name.
    """
    return f"rain in {city}"


async def _said(check: Callable[[str], Awaitable[Any]], model: str) -> dict[str, Any]:
    try:
        return {"said": await check(model)}
    except Exception as error:  # whatever a client raises is what is reported
        return {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc(limit=-6)}


async def _all(checks: list[Callable[[str], Awaitable[Any]]]) -> None:
    for each in os.environ["MODEL"].split():
        model, _, words = each.partition("=")
        for check in checks:
            if not check.__name__.startswith(tuple(words.split(","))):
                continue
            print(json.dumps({"model": model, "check": check.__name__, **await _said(check, model)}), flush=True)


def report(*checks: Callable[[str], Awaitable[Any]]) -> None:
    asyncio.run(_all(list(checks)))
