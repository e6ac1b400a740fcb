"""Whole values are checked where they cannot hold anything up: the sizes decide before the work begins (L140)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tailrace.flows.schema.incremental import MAX_WORK, PartialAnswer
from tailrace.flows.schema.schema import Schema, SchemaError
from tailrace.flows.schema.whole_value import NotChecked, answer_in, is_cheap, value_errors
from tailrace.values.schema_cost import schema_cost, value_size

TREE = {"type": "object", "properties": {"next": {"$ref": "#"}, "name": {"type": "string"}}, "required": ["name"]}
BRANCH: dict[str, Any] = {"properties": {"a": {"$ref": "#"}}, "required": ["x"]}
DOUBLED = {"anyOf": [BRANCH, dict(BRANCH)]}


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def test_L140_what_is_small_is_checked_at_once() -> None:
    schema = Schema({"type": "object", "properties": {"city": {"type": "string"}}})
    assert is_cheap(schema, {"city": "Paris"})
    assert not is_cheap(schema, {"city": ["x"] * 100_000})
    assert not is_cheap(schema, {"city": "x" * 10_000_000})


def test_L140_what_refers_to_itself_is_never_checked_on_the_loop() -> None:
    assert not is_cheap(Schema(TREE), {"name": "a"})
    assert not is_cheap(Schema(DOUBLED), nested(1))
    assert is_cheap(Schema({"properties": {"a": {"$ref": "#"}}}), "a text has no levels")


async def test_L140_the_verdict_is_the_same_in_a_process_of_its_own() -> None:
    schema = Schema(TREE)
    good, bad = {"name": "a", "next": {"name": "b"}}, {"name": "a", "next": {"name": 3}}
    assert await value_errors(schema, good) == schema.errors(good) == []
    assert await value_errors(schema, bad) == schema.errors(bad) != []
    assert await value_errors(schema, {"name": "\ud800"}) == schema.errors({"name": "\ud800"})
    assert await value_errors(Schema({"maxProperties": 1}), {str(n): 10**30 for n in range(60_000)})
    long = {"name": "x" * 100_000}
    assert await answer_in(f"Here: {json.dumps(long)}", schema) == (long, [])
    assert (await answer_in(json.dumps({"name": 3, "pad": "x" * 100_000}), schema))[1]


async def test_L140_a_check_that_does_not_end_is_ended_and_the_loop_goes_on() -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.ensure_future(tick())
    with pytest.raises(NotChecked, match=r"it takes more than 0.7 s"):
        await value_errors(Schema(DOUBLED), nested(60), timeout_s=0.7)
    ticking.cancel()
    assert ticks >= 10


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"anyOf": [{"$ref": "#"}]}, "refers to itself"),
        ({"allOf": [{"not": {"$ref": "#"}}]}, "refers to itself"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "refers to itself"),
        ({"enum": list(range(100_000))}, "more than 20000 parts"),
        ({"properties": {f"p{n}": {"pattern": "^[a-z]+$"} for n in range(500)}}, "2500 characters"),
        ({"pattern": "(a{0,1000}){0,1000}"}, "pattern"),
        (
            {"$ref": "#/$defs/d0", "$defs": {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(3000)}},
            "references one behind the other",
        ),
    ],
)
def test_L140_a_schema_that_costs_too_much_is_refused_when_it_is_read(schema: Any, says: str) -> None:
    with pytest.raises(SchemaError, match=says):
        Schema(schema)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "object", "patternProperties": {f"^{n}": {} for n in range(99)}}, {str(n): n for n in range(9000)}),
        (DOUBLED, nested(150)),
        ({"items": {"enum": [{"a": n} for n in range(4000)]}}, [{"a": 3999}] * 2000),
        ({"enum": [f"x{n}" for n in range(9000)]}, "x8999"),
    ],
)
def test_L140_reading_along_gives_up_before_it_costs_too_much(schema: Any, text: Any) -> None:
    partial = PartialAnswer(Schema(schema))
    for piece in _pieces(json.dumps(text), 3):
        assert not partial.feed(piece)
    assert partial._work <= MAX_WORK + 20_000


def _pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


# ── the measure ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_reference_counts_as_what_it_names() -> None:
    one = schema_cost({"$ref": "#/$defs/a", "$defs": {"a": {"enum": [1, 2, 3]}}})
    two = schema_cost({"allOf": [{"$ref": "#/$defs/a"}] * 2, "$defs": {"a": {"enum": [1, 2, 3]}}})
    assert not one.recursive
    assert two.parts > 2 * (one.parts - 2)
    doubled: dict[str, Any] = {"d0": {}}
    for level in range(1, 60):
        doubled[f"d{level}"] = {"anyOf": [{"$ref": f"#/$defs/d{level - 1}"}, {"$ref": f"#/$defs/d{level - 1}"}]}
    assert schema_cost({"$ref": "#/$defs/d59", "$defs": doubled}).parts > 10**9


@pytest.mark.parametrize("schema", [TREE, {"$ref": "#/nowhere"}, {"$ref": "other.json"}, {"$dynamicRef": "#a"}])
def test_what_cannot_be_bounded_is_recursive(schema: Any) -> None:
    assert schema_cost(schema).recursive


def test_a_deep_schema_and_a_deep_value_are_measured_without_recursion() -> None:
    deep: Any = {}
    for _ in range(50_000):
        deep = {"not": deep}
    assert schema_cost(deep).parts == 50_001
    assert value_size(deep, 10**9) == 100_001
    assert value_size(deep, 10) <= 12
