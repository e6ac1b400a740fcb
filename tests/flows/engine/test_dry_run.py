"""A dry run calls nobody; what it is given it looks at as a real run does."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.stages import sequence, stage, step
from tailrace.messages import JsonObject

GIVEN: JsonObject = {"name": "Ada", "user": {"id": 7}, "list": [1, 2]}


def asks(template: str) -> JsonObject:
    return step("a", {"x": template})


def nested(given: JsonObject, template: str) -> JsonObject:
    return {"type": "sub_sequence", "id": "n", "input": given, "blocks": [step("b", {"x": template})]}


def each(collection: str | list[str]) -> JsonObject:
    return {"type": "for_each", "id": "each", "collection": collection, "body": [step("b", {"x": "{{item}}"})]}


async def ends(tmp_path: Path, *blocks: JsonObject) -> list[str]:
    """What a real run and a dry run of these blocks say in the end."""
    async with stage(tmp_path) as st:
        runs = [await st.flows.start(sequence(*blocks), GIVEN, dry_run=dry) for dry in (False, True)]
        finished = [await st.flows.finished(run.id) for run in runs]
    return [end.error.message if end.error is not None else end.status for end in finished]


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (asks("{{input.nobody}}"), "a: there is no input.nobody"),
        (asks("Greet {{input.user.name}}."), "a: there is no input.user.name"),
        (each("input.nobody"), "each: there is no input.nobody"),
        (each(["{{input.nobody}}"]), "each: there is no input.nobody"),
        (each("input.list"), "completed"),
        (nested({"x": "{{input.nobody}}"}, "{{input.x}}"), "n: there is no input.nobody"),
        (nested({"x": "{{input.name}}"}, "{{input.y}}"), "n.b: there is no input.y"),
        (nested({"x": "{{input.name}}"}, "{{input.x}}"), "completed"),
        (asks("{{input.nobody ?? 'x'}} {{input.list[1]}}"), "completed"),
    ],
)
async def test_an_input_that_is_missing_fails_a_dry_run_with_the_words_of_a_real_one(
    tmp_path: Path, block: JsonObject, said: str
) -> None:
    assert await ends(tmp_path, block) == [said, said]


async def test_what_only_a_call_would_give_is_not_missed(tmp_path: Path) -> None:
    first = step("first", {"deep": {"er": 1}})
    blocks = (
        first,
        asks("{{steps.first.output.deep.er}} {{steps.first.output.deep.er ?? input.name}}"),
        nested({"x": "{{steps.first.output}}"}, "{{input.x.deep.er}}"),
    )
    assert await ends(tmp_path, *blocks) == ["completed", "completed"]
