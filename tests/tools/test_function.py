"""`@tool`: the schema from the signature, the words from the docstring, and what becomes of the result."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from datetime import date
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta
from pydantic import BaseModel

import tailrace
from tailrace import tool
from tailrace.ports import Effect, Tool, ToolContext, ToolOutcome
from tailrace.tools.function import FunctionTool
from tools.tool_context import Workplace


class Level(BaseModel):
    metres: float
    on: date


class Point(msgspec.Struct):
    x: int
    y: int = 0


@tool
async def forecast(
    city: str,
    days: Annotated[int, Meta(ge=1, le=14, description="From the annotation.")] = 3,
    units: Literal["metric", "imperial"] = "metric",
) -> str:
    """The weather of the days ahead.

    Takes a moment.

    Args:
        city: Name of the city, in English,
            or its code.
        days: This is overruled.
        units (str): Which units: metric
            or not.

    Returns:
        city: never taken for a parameter
    """
    return f"{city} {days} {units}"


def as_tool(made: Tool) -> Tool:
    """The type checker agrees that it is one."""
    return made


def test_the_schema_and_the_words() -> None:
    spec = as_tool(forecast).spec
    assert (spec.name, spec.description) == ("forecast", "The weather of the days ahead.\n\nTakes a moment.")
    assert spec.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Name of the city, in English, or its code."},
            "days": {
                "type": "integer",
                "minimum": 1,
                "maximum": 14,
                "description": "From the annotation.",
                "default": 3,
            },
            "units": {
                "enum": ["imperial", "metric"],
                "description": "Which units: metric or not.",
                "default": "metric",
            },
        },
        "required": ["city"],
        "additionalProperties": False,
    }


async def test_it_runs_with_what_the_model_sent(here: Workplace) -> None:
    assert await forecast.run({"city": "Ulm"}, here) == ToolOutcome("Ulm 3 metric")
    assert await forecast.run({"city": "Ulm", "days": "5"}, here) == ToolOutcome("Ulm 5 metric")
    assert forecast.invalid({"city": "Ulm", "days": 2}) == ""
    assert "days: must be at most 14" in forecast.invalid({"city": "Ulm", "days": 15})
    assert "city: is missing" in forecast.invalid({})
    assert "there is no field 'town'" in forecast.invalid({"city": "Ulm", "town": "x"})


async def test_the_function_stays_what_it_was() -> None:
    assert await forecast("Ulm", units="imperial") == "Ulm 3 imperial"
    assert forecast.__name__ == "forecast"
    assert forecast.__doc__ is not None
    assert repr(forecast) == "<tool forecast>"


async def test_a_plain_function_runs_in_a_thread(here: Workplace) -> None:
    @tool
    def where() -> str:
        return threading.current_thread().name

    assert (await where.run({}, here)).output != threading.current_thread().name
    assert where() == threading.current_thread().name


async def test_a_function_may_ask_for_the_context(here: Workplace) -> None:
    @tool
    def list_here(suffix: str, context: ToolContext) -> list[str]:
        context.progress("looking")
        return sorted(path.name for path in context.directory.glob(f"*{suffix}"))

    here.write("a.py", "")
    assert list(list_here.spec.parameters["properties"]) == ["suffix"]
    assert await list_here.run({"suffix": ".py"}, here) == ToolOutcome('["a.py"]')
    assert here.reports == ["looking"]


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        ("text", ToolOutcome("text")),
        (None, ToolOutcome("(done)")),
        (ToolOutcome("no", ok=False), ToolOutcome("no", ok=False)),
        ({"a": [1, None]}, ToolOutcome('{"a":[1,null]}')),
        (Point(1), ToolOutcome('{"x":1,"y":0}')),
        ([Level(metres=1.5, on=date(2026, 1, 2))], ToolOutcome('[{"metres":1.5,"on":"2026-01-02"}]')),
        (0, ToolOutcome("0")),
        (1j, ToolOutcome('"1j"')),
    ],
)
async def test_results(here: Workplace, result: Any, outcome: ToolOutcome) -> None:
    @tool
    async def give() -> Any:
        return result

    assert await give.run({}, here) == outcome


async def test_structured_arguments_and_defaults_of_their_own(here: Workplace) -> None:
    @tool
    def route(points: list[Point], tags: list[str] = ["a"], limit: int | None = None) -> int:  # noqa: B006 - on purpose
        tags.append("b")
        return len(points) * 10 + len(tags)

    assert route.spec.parameters["properties"]["points"] == {"type": "array", "items": {"$ref": "#/$defs/Point"}}
    assert route.spec.parameters["$defs"]["Point"]["required"] == ["x"]
    for _ in range(2):  # the second call does not find what the first one added
        assert await route.run({"points": [{"x": 1}, {"x": 2, "y": 3}]}, here) == ToolOutcome("22")
    assert "points[0].x" in route.invalid({"points": [{"x": "no"}]})


def test_options() -> None:
    @tool(name="send-mail", description="Sends.", repeatable=True, parallel=True, effect="external")
    def send(to: str) -> None: ...

    assert (send.spec.name, send.spec.description, send.repeatable, send.parallel) == (
        "send-mail",
        "Sends.",
        True,
        True,
    )
    assert send.effect({"to": "a@b"}) == Effect("external", 'send-mail {"to":"a@b"}')
    assert send.preview({"to": "a@b"}) == "a@b"
    assert (forecast.repeatable, forecast.parallel, forecast.effect({"city": "x"})) == (False, False, Effect())


async def test_what_it_raises_is_for_the_caller(here: Workplace) -> None:
    @tool
    def fail() -> None:
        raise LookupError("no such thing")

    with pytest.raises(LookupError):
        await fail.run({}, here)


async def test_an_async_function_is_cancelled(here: Workplace) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    running = asyncio.ensure_future(wait.run({}, here))
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended.is_set()


def untyped(x) -> None: ...  # type: ignore[no-untyped-def]
def many(*x: int) -> None: ...
def keywords(**x: int) -> None: ...
def positional(x: int, /) -> None: ...
def odd(x: threading.Thread) -> None: ...
def unknown(x: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (untyped, "untyped: the parameter x has no type"),
        (many, "takes no \\*"),
        (keywords, "takes no \\*"),
        (positional, "positional-only"),
        (odd, r"^odd: type <class 'threading.Thread'> is not supported; take one that JSON has"),
        (unknown, "unknown: name 'Missing' is not defined"),
        (lambda: None, "cannot name a tool"),
    ],
)
def test_functions_that_cannot_be_tools_are_refused_where_they_are_made(function: Any, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        tool(function)


def test_an_effect_that_there_is_not_is_refused() -> None:
    """A misspelt `external` would run without asking."""
    misspelt: Any = "exernal"
    with pytest.raises(TypeError, match="send: effect is one of none, write, external; found 'exernal'"):

        @tool(effect=misspelt)
        def send(text: str) -> None: ...


def test_importing_the_package_stays_cheap() -> None:
    code = "import sys, tailrace; print('msgspec' in sys.modules); from tailrace import tool; print(tool.__module__)"
    said = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert said == ["False", "tailrace.tools.function"]
    with pytest.raises(AttributeError):
        tailrace.nothing  # type: ignore[attr-defined] # noqa: B018
    assert isinstance(forecast, FunctionTool)
