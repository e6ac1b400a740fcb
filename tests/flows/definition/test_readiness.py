"""What every run would fail by, although the definition is without a mistake."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flows.stages import sequence, step
from tailrace.flows.definition.readiness import unready_places
from tailrace.messages import JsonObject


class Handler:
    """Knows one model."""

    def unknown_models(self, params: JsonObject) -> Iterator[tuple[str, str]]:
        if params.get("model", "known") != "known":
            yield ".model", "no such model"


def found(*blocks: JsonObject) -> list[str]:
    handlers = {"do": Handler()}
    return [f"{each.path}: {each.message}" for each in unready_places(sequence(*blocks), handlers)]


def reads(name: str, other: str, *, default: bool = False) -> JsonObject:
    return step(name, {"x": f"as {{{{steps.{other}.output.y{' ?? 1' if default else ''}}}}}"})


def loop(*body: JsonObject) -> JsonObject:
    return {"type": "loop", "id": "l", "condition": "index < 2", "max_iterations": 3, "body": list(body)}


def each(*body: JsonObject, collection: object = "input.x") -> JsonObject:
    return {"type": "for_each", "id": "e", "collection": collection, "body": list(body)}


def parallel(*branches: list[JsonObject]) -> JsonObject:
    return {"type": "parallel", "id": "p", "branches": list(branches)}


def nested(*blocks: JsonObject, **given: str) -> JsonObject:
    return {"type": "sub_sequence", "id": "n", "input": given, "blocks": list(blocks)}


EARLY = "there is no steps.b.output.y yet: b has not ended by then"


@pytest.mark.parametrize(
    ("blocks", "mistakes"),
    [
        ([reads("a", "b"), step("b")], [f"$.blocks[0].params.x: step a: {EARLY}"]),
        ([reads("b", "b")], [f"$.blocks[0].params.x: step b: {EARLY}"]),
        (
            [parallel([reads("a", "b")], [step("c")]), step("b")],
            [f"$.blocks[0].branches[0][0].params.x: step a: {EARLY}"],
        ),
        ([reads("a", "b"), parallel([step("b")])], [f"$.blocks[0].params.x: step a: {EARLY}"]),
        ([each(reads("a", "b"), step("b"))], [f"$.blocks[0].body[0].params.x: step a: {EARLY}"]),
        ([each(step("c"), collection="steps.b.output.y"), step("b")], [f"$.blocks[0].collection: for_each e: {EARLY}"]),
        (
            [each(step("c"), collection=["{{steps.b.output.y}}"]), step("b")],
            [f"$.blocks[0].collection[0]: for_each e: {EARLY}"],
        ),
        ([nested(step("c"), x="{{steps.b.output.y}}"), step("b")], [f"$.blocks[0].input.x: sub_sequence n: {EARLY}"]),
        ([nested(reads("a", "b"), step("b"))], [f"$.blocks[0].blocks[0].params.x: step a: {EARLY}"]),
        ([loop(reads("a", "b")), step("b")], [f"$.blocks[0].body[0].params.x: step a: {EARLY}"]),
        ([step("a", {"model": "other"})], ["$.blocks[0].params.model: step a: no such model"]),
        ([nested(step("a", {"model": "other"}))], ["$.blocks[0].blocks[0].params.model: step a: no such model"]),
    ],
)
def test_what_cannot_be_there_yet_and_a_model_of_nobody_are_found(
    blocks: list[JsonObject], mistakes: list[str]
) -> None:
    assert found(*blocks) == mistakes


@pytest.mark.parametrize(
    "blocks",
    [
        [step("b"), reads("a", "b")],
        [reads("a", "b", default=True), step("b")],
        [loop(reads("a", "b"), step("b"))],  # the time before
        [loop(each(reads("a", "b")), step("b"))],
        [parallel([reads("a", "b")], [step("b")])],  # whichever is first
        [step("a", {"x": "{{steps.b.output.y == 1}}"}), step("b")],
        [step("b"), nested(reads("a", "a1", default=True), step("a1"), x="{{steps.b.output.y}}")],
        [step("a", {"model": "known"}), step("c", {"model": "other"}, handler="other")],
    ],
)
def test_what_may_be_there_is_no_mistake(blocks: list[JsonObject]) -> None:
    assert found(*blocks) == []
