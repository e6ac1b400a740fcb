"""Definitions from JSON and YAML: what is read, and where a mistake is said to be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tailrace.errors import ConfigError
from tailrace.flows.definition.definition import (
    Definition,
    DefinitionError,
    ForEach,
    Retry,
    Step,
    parsed,
    seconds_of,
    walk,
)
from tailrace.flows.definition.source import INLINE_CHARS, Source, parse_source, parse_yaml
from tailrace.flows.definition.validate import mistakes_in
from tailrace.messages import JsonObject
from tailrace.system.extras import install_command


class Anything:
    """A handler that takes whatever it is given, but for a parameter named `bad`."""

    def mistakes(self, params: JsonObject) -> Iterator[tuple[str, str]]:
        if "bad" in params:
            yield ".bad", "is bad"

    def unknown_models(self, _params: JsonObject) -> Iterator[tuple[str, str]]:
        return iter(())


HANDLERS = {"do": Anything()}
YAML = """\
name: greet
blocks:
  - type: step
    id: hello
    handler: do
    params: {text: "Hi {{input.name}}", n: 3, deep: [{x: "{{env.HOME}}"}]}
    retry: {max_attempts: 2, initial_backoff: 10ms}
  - type: for_each
    id: each
    collection: "{{input.cities}}"
    body:
      - {type: step, id: say, handler: do, params: {city: "{{item.name}}", before: "{{steps.hello.output}}"}}
"""


def step(name: str = "a", **fields: Any) -> JsonObject:
    return {"type": "step", "id": name, "handler": "do", **fields}


def checked(*blocks: JsonObject, **fields: Any) -> Definition:
    definition = parsed({"name": "n", "blocks": list(blocks), **fields})
    for mistake in mistakes_in(definition, HANDLERS, env_allow=["HOME"]):
        raise mistake
    return definition


def test_yaml_and_json_say_the_same() -> None:
    definition = parse_source(YAML).definition()
    assert parse_source(json.dumps(parse_source(YAML).value)).definition() == definition
    assert parse_source(json.dumps(parse_source(YAML).value, indent="\t")).definition() == definition
    assert isinstance(definition.blocks[0], Step)
    assert definition.blocks[0].retry == Retry(max_attempts=2, initial_backoff="10ms")
    assert isinstance(definition.blocks[1], ForEach)
    assert [(path, block.id) for path, block in walk(definition.blocks)] == [
        ("$.blocks[0]", "hello"),
        ("$.blocks[1]", "each"),
        ("$.blocks[1].body[0]", "say"),
    ]
    for mistake in mistakes_in(definition, HANDLERS, env_allow=["HOME"]):
        raise mistake


def test_a_definition_survives_its_own_json() -> None:
    definition = parse_source(YAML).definition()
    assert parsed(msgspec.json.decode(msgspec.json.encode(definition))) == definition


def test_durations() -> None:
    assert [seconds_of(value) for value in (2, 0.5, "250ms", "2s", "1.5 m", "1h", "2d")] == [
        *(2.0, 0.5, 0.25, 2.0, 90.0, 3600.0, 172_800.0)
    ]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("name: x\nblocks:\n  - type: stepp\n    id: a\n", 3, "blocks[0].type: cannot be 'stepp'; did you mean step?"),
        ("name: x\nblocks:\n  - type: step\n    id: a\n", 3, "blocks[0].handler: is missing"),
        ("name: x\nblocks:\n  - type: step\n    id: a\n    handler: do\n    when: x\n", 3, "there is no field 'when'"),
        ("name: x\nblocks: []\n", 2, "blocks: must not be empty"),
        ("name: x\nblocks:\n  - {type: step, id: 'a b', handler: do}\n", 3, "blocks[0].id"),
        ("name: x\nname: y\n", 2, "given twice"),
        ("name: [x\n", 2, "not YAML"),
        ("name: 2024-01-01\n", 1, "has no JSON form"),
        ("", 0, "must be an object, not null"),
        ('{"name": "x",\n "blocks": [\n  {"type": "step", "id": 5}]}', 3, "blocks[0].id"),
        ('{"name": "x",\n "blocks": [,]}', 2, "not JSON"),
        ('{"name": "x", "name": "y"}', 0, "'name' is given twice"),
    ],
)
def test_a_mistake_is_named_with_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(ConfigError) as mistake:
        parse_source(text, "flow.yaml").definition()
    assert mistake.value.line == line
    assert words.lower() in str(mistake.value).lower()
    assert str(mistake.value).startswith(f"flow.yaml:{line}" if line else "flow.yaml")


def test_aliases_cannot_grow_without_end() -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{name}: &{name} [{','.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdef", "bcdefg", strict=True)
    )
    with pytest.raises(ConfigError, match="more than 100000 values"):
        parse_source(bomb)


@pytest.mark.parametrize(
    ("blocks", "path", "words"),
    [
        ([step(), step()], "$.blocks[1].id", "used twice, first at $.blocks[0]"),
        ([step(handler="dp")], "$.blocks[0].handler", "there are: do"),
        ([step(params={"bad": 1})], "$.blocks[0].params.bad", "is bad"),
        ([step(params={"x": ["{{steps.b.output}}"]})], "$.blocks[0].params.x[0]", "no block 'b'"),
        ([step(params={"x": "{{steps.a}}"})], "$.blocks[0].params.x", "steps.a.output"),
        ([step(params={"x": "{{inputs.a}}"})], "$.blocks[0].params.x", "did you mean input?"),
        ([step(params={"x": "{{item}}"})], "$.blocks[0].params.x", "no name 'item'"),
        ([step(params={"x": "{{input.a"})], "$.blocks[0].params.x", "never closed"),
        ([step(params={"x": "{{env.SECRET}}"})], "$.blocks[0].params.x", "SECRET is not listed in flows.env_allow"),
        ([step(retry={"retry_if": "error.kind ="})], "$.blocks[0].retry.retry_if", "makes no sense"),
        ([step(retry={"initial_backoff": "1m"})], "$.blocks[0].retry.initial_backoff", "longer than max_backoff"),
        (
            [{"type": "loop", "id": "l", "condition": "env.HOME == 'x'", "body": [step()]}],
            "$.blocks[0].condition",
            "env can be used in params alone",
        ),
        (
            [{"type": "router", "id": "r", "routes": [{"condition": "nobody"}]}],
            "$.blocks[0].routes[0].condition",
            "no name 'nobody'",
        ),
        ([{"type": "sub_sequence", "id": "s"}], "$.blocks[0]", "which sequence?"),
        (
            [step("x"), {"type": "sub_sequence", "id": "s", "blocks": [step(params={"y": "{{steps.x.output}}"})]}],
            "$.blocks[1].blocks[0].params.y",
            "no block 'x'",
        ),
    ],
)
def test_what_leads_nowhere_is_named_with_its_place(blocks: list[JsonObject], path: str, words: str) -> None:
    with pytest.raises(DefinitionError) as mistake:
        checked(*blocks)
    assert mistake.value.path == path
    assert words in str(mistake.value)


BROKEN = """\
name: broken
blocks:
  - {type: step, id: a, handler: do}
  - type: step
    id: b
    handler: dp
    params: {x: "{{steps.aa.output}}", y: "{{inputs.z}}", z: "{{input.q"}
  - type: for_each
    id: each
    collection: "{{steps.c.output}}"
    body:
      - {type: step, id: b, handler: do}
"""


@pytest.mark.parametrize("as_json", [False, True])
def test_every_mistake_is_told_with_its_line(as_json: bool) -> None:
    text = json.dumps(parse_source(BROKEN).value, indent=1) if as_json else BROKEN
    found = parse_source(text, "f").mistakes(lambda definition: mistakes_in(definition, HANDLERS))
    assert {mistake.key: mistake.message for mistake in found} == {
        "blocks[1].handler": "there is no handler 'dp'; there are: do",
        "blocks[1].params.x": "there is no block 'aa'; did you mean a?",
        "blocks[1].params.y": "there is no name 'inputs'; did you mean input?",
        "blocks[1].params.z": "'{{' is never closed",
        "blocks[2].collection": "there is no block 'c'; there are: a, b, each",
        "blocks[2].body[0].id": "'b' is used twice, first at $.blocks[1]",
    }
    lines = [mistake.line for mistake in found]
    assert lines == sorted(lines)
    if not as_json:
        assert lines == [6, 7, 7, 7, 10, 12]


@pytest.mark.parametrize(
    ("change", "line", "words"),
    [
        (("handler: dp", "handlr: dp"), 4, "there is no field 'handlr'; did you mean handler?"),
        (("type: for_each", "type: foreach"), 8, "did you mean for_each?"),
        (("name: broken", "nam: broken"), 1, "there is no field 'nam'"),
    ],
)
def test_what_is_no_definition_is_told_with_its_line(change: tuple[str, str], line: int, words: str) -> None:
    (mistake,) = parse_source(BROKEN.replace(*change), "f").mistakes(lambda _: ())
    assert mistake.line == line
    assert words in mistake.message


@pytest.mark.parametrize("value", [None, [], "x", {}, {"name": 3, "blocks": {}}, {"name": "x", "blocks": [None, 3]}])
def test_whatever_is_no_definition_has_a_mistake(value: Any) -> None:
    assert parse_source(json.dumps({"": value})).mistakes(lambda _: ())
    assert Source(value, {}, "f").mistakes(lambda _: ())


def test_a_definition_without_mistakes_has_none() -> None:
    assert parse_source(YAML).mistakes(lambda d: mistakes_in(d, HANDLERS, env_allow=["HOME"])) == []


def test_names_are_known_where_they_mean_something() -> None:
    checked(
        step("x", retry={"retry_if": "attempt < 3 and error.code == 'timeout'"}),
        {
            "type": "try_catch",
            "id": "t",
            "try_block": [step("y")],
            "catch_block": [step("z", params={"why": "{{error.message}}"})],
        },
        {"type": "loop", "id": "l", "condition": "index < 3", "body": [step("w", params={"n": "{{index}}"})]},
        {"type": "sub_sequence", "id": "s", "input": {"a": "{{steps.x.output}}"}, "blocks": [step("x")]},
    )
    with pytest.raises(DefinitionError, match="no name 'error'"):
        checked(step(params={"x": "{{error.message}}"}))


def test_a_budget_in_dollars_needs_prices() -> None:
    def found(**budget: int) -> list[str]:
        definition = parsed({"name": "x", "blocks": [step()], "budget": budget})
        return [str(mistake) for mistake in mistakes_in(definition, HANDLERS, prices=False)]

    checked(step(), budget={"max_cost_usd": 1})
    assert found(max_tokens=1) == []
    [mistake] = found(max_cost_usd=1)
    assert "budget.max_cost_usd" in mistake
    assert "providers.NAME.prices" in mistake
    assert install_command("prices") in mistake


def test_a_schema_of_the_input_that_cannot_be_checked_is_a_mistake() -> None:
    with pytest.raises(DefinitionError, match="input_schema"):
        checked(step(), input_schema={"type": "nothing"})


# ── from outside ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_L142_long_yaml_is_parsed_elsewhere_and_means_the_same() -> None:
    long = YAML + "".join(f"  - {{type: step, id: s{n}, handler: do, params: {{n: {n}}}}}\n" for n in range(200))
    assert len(long) > INLINE_CHARS
    assert await parse_yaml(long) == parse_source(long).definition()
    assert await parse_yaml(YAML) == parse_source(YAML).definition()
    with pytest.raises(ConfigError, match="handler: is missing") as missing:
        await parse_yaml(long + "  - {type: step, id: x}\n")
    assert (missing.value.line, missing.value.key) == (213, "blocks[202].handler")
    with pytest.raises(ConfigError, match="not YAML"):
        await parse_yaml(long + "  - {type: step\n")


def test_L140_a_check_counts_before_it_works() -> None:
    with pytest.raises(DefinitionError, match="more than 5000 blocks"):
        checked(*(step(f"a{number}") for number in range(5001)))
    many = [step(f"{'x' * 90}{number}") for number in range(4000)]
    with pytest.raises(DefinitionError, match="there is no block"):
        checked(*many, step("b", params={"t": "{{steps." + "y" * 5000 + ".output}}"}))


def test_L140_the_blocks_of_sub_sequences_are_looked_at_once() -> None:
    """Each of these has names of its own; the time is linear in their number."""
    inner = [step("a", params={"t": "{{input.x}}"})]
    checked(*({"type": "sub_sequence", "id": f"s{number}", "blocks": inner} for number in range(2400)))
