"""What lets a definition pass its check and fail every run of it in this process all the same: a template that reads
the output of a block that comes later, a model of a provider that is not there.

Pure but for the handlers, which look at the configuration. A sequence with either can be kept: it may be run by a
process that is configured otherwise, and where a block never gets its turn, what it reads does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

import msgspec

from tailrace.flows.definition.definition import (
    Block,
    Definition,
    DefinitionError,
    ForEach,
    Loop,
    Step,
    SubSequence,
    bodies_of,
)
from tailrace.flows.definition.validate import MAX_DEPTH, own_blocks
from tailrace.flows.language.expressions import Expression, ExpressionError, evaluate, parse_condition, paths_in
from tailrace.flows.language.scope import BlockScope, Outputs
from tailrace.flows.language.templates import expressions_in
from tailrace.messages import JsonObject

_NOTHING_HAS_RUN = BlockScope(Outputs(), {})


class ModelsCheck(Protocol):
    """What is needed of a handler."""

    def unknown_models(self, params: JsonObject) -> Iterable[tuple[str, str]]:
        """Each place within `params` that names a model which no provider has, and what is wrong there."""


class _Place(msgspec.Struct, frozen=True):
    """A block, where it is, and which blocks cannot have ended when its turn comes."""

    path: str
    block: Block
    later: frozenset[str]


def unready_places(definition: Definition, handlers: Mapping[str, ModelsCheck]) -> Iterator[DefinitionError]:
    for place in _places(definition.blocks, "$.blocks", frozenset(), repeats=False, depth=0):
        yield from _early_reads(place)
        if isinstance(step := place.block, Step) and (handler := handlers.get(step.handler)) is not None:
            for where, problem in handler.unknown_models(step.params):
                yield DefinitionError(f"{place.path}.params{where}", f"step {step.id}: {problem}")


def _places(
    blocks: tuple[Block, ...], path: str, outer: frozenset[str], *, repeats: bool, depth: int
) -> Iterator[_Place]:
    """`repeats`: the blocks are in a loop, where those that come later may have run the time before."""
    if depth > MAX_DEPTH:
        return
    for number, block in enumerate(blocks):
        here = f"{path}[{number}]"
        later = outer
        if not repeats:
            later |= {block.id, *(after.id for _, after in own_blocks(blocks[number + 1 :], path))}
        yield _Place(here, block, later)
        apart = isinstance(block, SubSequence)
        for inner, body in bodies_of(block):
            yield from _places(
                body,
                here + inner,
                frozenset() if apart else later,
                repeats=not apart and (repeats or isinstance(block, Loop)),
                depth=depth + 1,
            )


def _early_reads(place: _Place) -> Iterator[DefinitionError]:
    for here, expression in _expressions(place):
        asked = [path.parts for path in paths_in(expression)]
        read = [str(parts[1]) for parts in asked if parts[0] == "steps" and len(parts) > 1]
        if not read or len(read) < len(asked) or not place.later.issuperset(read):
            continue  # what else it asks for may be there
        try:
            evaluate(expression, _NOTHING_HAS_RUN)
        except ExpressionError as exc:
            kind = "step" if isinstance(place.block, Step) else place.block.__struct_config__.tag
            yield DefinitionError(here, f"{kind} {place.block.id}: {exc} yet: {read[0]} has not ended by then")


def _expressions(place: _Place) -> Iterator[tuple[str, Expression]]:
    """Those without which the block cannot begin. A condition may ask for what is not there."""
    try:
        match place.block:
            case Step(params=params):
                yield from expressions_in(params, f"{place.path}.params")
            case ForEach(collection=str(collection)):
                yield f"{place.path}.collection", parse_condition(collection)
            case ForEach(collection=collection):
                yield from expressions_in(collection, f"{place.path}.collection")
            case SubSequence(input=given):
                yield from expressions_in(given, f"{place.path}.input")
            case _:
                pass
    except ExpressionError:
        return  # the check of all templates says so
