"""Whether a definition can be run: ids, references, conditions, handlers and their parameters.

Pure: it is told which handlers there are and which variables of the environment may be used. Whatever it lets pass can
still fail, but not by a word that is misspelt.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, Protocol, TypeAlias

from tailrace.flows.definition.definition import (
    MAX_BLOCKS,
    Block,
    Definition,
    DefinitionError,
    ForEach,
    Loop,
    Parallel,
    Race,
    Router,
    Step,
    SubSequence,
    TryCatch,
    bodies_of,
    seconds_of,
    walk,
)
from tailrace.flows.definition.signals import WAIT_SIGNAL
from tailrace.flows.definition.spelling import did_you_mean, no_such
from tailrace.flows.language.expressions import Expression, ExpressionError, parse_condition, paths_in
from tailrace.flows.language.templates import Misplaced, expressions_in
from tailrace.flows.schema.schema import Schema, SchemaError
from tailrace.messages import JsonObject
from tailrace.system.extras import install_command

MAX_DEPTH: Final = 64
MAX_BACKOFF_S: Final = 3600
MAX_BARE_BACKOFF_S: Final = 600  # of a number without a unit: others mean milliseconds by 1000
_NEAR_INPUT: Final = 0.75  # difflib's ratio: "topik" is near "topic"
MAX_TIMEOUT_S: Final = 86_400  # of what does not wait for a person
Mistakes: TypeAlias = Iterator[DefinitionError]


class ParamsCheck(Protocol):
    """What the check needs of a handler."""

    def mistakes(self, params: JsonObject) -> Iterable[tuple[str, str]]:
        """Each place within `params` and what is wrong there, as far as it can be told before templates are filled
        in."""

    def unknown_models(self, params: JsonObject) -> Iterable[tuple[str, str]]:
        """Each place within `params` that names a model which no provider has, and what is wrong there."""


def mistakes_in(
    definition: Definition, handlers: Mapping[str, ParamsCheck], *, env_allow: Collection[str] = (), prices: bool = True
) -> Mistakes:
    """Every mistake, found as it is asked for: the first costs no more than it takes to find it. `prices`: money can be
    counted."""
    if sum(1 for _ in islice(walk(definition.blocks), MAX_BLOCKS + 1)) > MAX_BLOCKS:
        yield DefinitionError("$.blocks", f"more than {MAX_BLOCKS} blocks")
        return
    check = _Check(handlers, frozenset(env_allow), definition.input_schema or {})
    yield from check.sequence(definition.blocks, "$.blocks", depth=0)
    priced = definition.budget is not None and definition.budget.max_cost_usd is not None
    if priced and not prices:
        message = f"no model has a price; set providers.NAME.prices, or {install_command('prices')}"
        yield DefinitionError("$.budget.max_cost_usd", message)
    if definition.input_schema is not None:
        try:
            Schema(definition.input_schema)
        except SchemaError as exc:
            yield DefinitionError("$.input_schema", str(exc))


def unknown_models(definition: Definition, handlers: Mapping[str, ParamsCheck]) -> Mistakes:
    """Models that no provider of this process has. No mistake of the definition: a process that is configured otherwise
    may run it."""
    for path, block in walk(definition.blocks):
        if isinstance(block, Step) and (handler := handlers.get(block.handler)) is not None:
            for where, problem in handler.unknown_models(block.params):
                yield DefinitionError(f"{path}.params{where}", f"step {block.id}: {problem}")


class _Check:
    def __init__(
        self, handlers: Mapping[str, ParamsCheck], env_allow: frozenset[str], input_schema: Mapping[str, Any]
    ) -> None:
        self._handlers = handlers
        self._input_schema = input_schema
        self._env_allow = env_allow
        self._count = 0

    def sequence(self, blocks: tuple[Block, ...], path: str, *, depth: int) -> Mistakes:
        """One sequence: a sub-sequence has names of its own."""
        ids: dict[str, str] = {}
        for here, block in own_blocks(blocks, path):
            if block.id in ids:
                yield DefinitionError(f"{here}.id", f"{block.id!r} is used twice, first at {ids[block.id]}")
            ids.setdefault(block.id, here)
        yield from self._blocks(blocks, path, frozenset(ids), frozenset({"input", "steps"}), depth)

    def _blocks(
        self, blocks: tuple[Block, ...], path: str, ids: frozenset[str], names: frozenset[str], depth: int
    ) -> Mistakes:
        if depth > MAX_DEPTH:
            yield DefinitionError(path, f"nested more than {MAX_DEPTH} deep")
            return
        for number, block in enumerate(blocks):
            self._count += 1
            if self._count > MAX_BLOCKS:
                yield DefinitionError(path, f"more than {MAX_BLOCKS} blocks")
                return
            yield from self._block(block, f"{path}[{number}]", ids, names, depth + 1)

    def _block(self, block: Block, here: str, ids: frozenset[str], names: frozenset[str], depth: int) -> Mistakes:
        match block:
            case Step():
                yield from self._step(block, here, ids, names)
            case Parallel(branches=branches) | Race(branches=branches):
                for number, branch in enumerate(branches):
                    yield from self._blocks(branch, f"{here}.branches[{number}]", ids, names, depth)
            case Loop(body=body, condition=condition):
                yield from self._condition(condition, f"{here}.condition", ids, names | {"index"})
                yield from self._blocks(body, f"{here}.body", ids, names | {"index"}, depth)
            case ForEach(body=body, collection=collection, item_var=item):
                yield from self._collection(collection, f"{here}.collection", ids, names)
                yield from self._blocks(body, f"{here}.body", ids, names | {"index", item}, depth)
            case Router(routes=routes, default=default):
                for number, case in enumerate(routes):
                    yield from self._condition(case.condition, f"{here}.routes[{number}].condition", ids, names)
                    yield from self._blocks(case.blocks, f"{here}.routes[{number}].blocks", ids, names, depth)
                yield from self._blocks(default, f"{here}.default", ids, names, depth)
            case TryCatch(try_block=tried, catch_block=caught, finally_block=last):
                yield from self._blocks(tried, f"{here}.try_block", ids, names, depth)
                yield from self._blocks(caught, f"{here}.catch_block", ids, names | {"error"}, depth)
                yield from self._blocks(last, f"{here}.finally_block", ids, names, depth)
            case SubSequence():
                yield from self._sub_sequence(block, here, ids, names, depth)

    def _step(self, step: Step, here: str, ids: frozenset[str], names: frozenset[str]) -> Mistakes:
        handler = self._handlers.get(step.handler)
        if handler is None:
            yield DefinitionError(f"{here}.handler", no_such("handler", step.handler, self._handlers))
        for name, value in step.params.items():
            yield from self._templates(value, f"{here}.params.{name}", ids, names | {"env"})
        if handler is not None:
            for place, problem in handler.mistakes(step.params):
                yield DefinitionError(f"{here}.params{place}", problem)
        if step.timeout_secs is not None and step.timeout_secs > MAX_TIMEOUT_S and step.handler != WAIT_SIGNAL:
            yield DefinitionError(f"{here}.timeout_secs", f"{step.timeout_secs:g} seconds is more than a day")
        if step.retry is not None:
            if isinstance(step.retry.retry_if, str):
                yield from self._condition(
                    step.retry.retry_if, f"{here}.retry.retry_if", ids, names | {"error", "attempt"}
                )
            for name in ("initial_backoff", "max_backoff"):
                if problem := _backoff_problem(getattr(step.retry, name)):
                    yield DefinitionError(f"{here}.retry.{name}", problem)
            if seconds_of(step.retry.initial_backoff) > seconds_of(step.retry.max_backoff):
                yield DefinitionError(f"{here}.retry.initial_backoff", "is longer than max_backoff")

    def _sub_sequence(
        self, block: SubSequence, here: str, ids: frozenset[str], names: frozenset[str], depth: int
    ) -> Mistakes:
        named = [name for name in ("blocks", "sequence_name", "sequence_id") if getattr(block, name)]
        if not named:
            yield DefinitionError(here, "which sequence? give sequence_name, sequence_id or blocks")
        if "sequence_name" in named and "sequence_id" in named:
            yield DefinitionError(here, "give sequence_name or sequence_id, not both")
        yield from self._templates(block.input, f"{here}.input", ids, names)
        if block.blocks:
            if depth > MAX_DEPTH:
                yield DefinitionError(here, f"nested more than {MAX_DEPTH} deep")
                return
            outer, self._input_schema = self._input_schema, {}  # it has an input of its own
            yield from self.sequence(block.blocks, f"{here}.blocks", depth=depth)
            self._input_schema = outer

    def _collection(self, value: object, here: str, ids: frozenset[str], names: frozenset[str]) -> Mistakes:
        if isinstance(value, str):
            yield from self._condition(value, here, ids, names)
        else:
            yield from self._templates(value, here, ids, names)

    def _condition(self, text: str, here: str, ids: frozenset[str], names: frozenset[str]) -> Mistakes:
        """The environment has no say in which way a sequence goes: it may have changed by the time of a replay."""
        try:
            yield from self._references(parse_condition(text), here, ids, names)
        except ExpressionError as exc:
            yield DefinitionError(here, str(exc))

    def _templates(self, value: object, here: str, ids: frozenset[str], names: frozenset[str]) -> Mistakes:
        try:
            for place, expression in expressions_in(value, here):
                yield from self._references(expression, place, ids, names)
        except Misplaced as exc:
            yield DefinitionError(exc.path, str(exc))

    def _references(self, expression: Expression, here: str, ids: frozenset[str], names: frozenset[str]) -> Mistakes:
        for path in paths_in(expression):
            root, *rest = path.parts
            if root not in names:
                at_env = "env can be used in params alone"
                yield DefinitionError(here, at_env if root == "env" else no_such("name", str(root), names))
            elif root == "steps":
                if not rest or str(rest[0]) not in ids:
                    yield DefinitionError(here, no_such("block", str(rest[0]) if rest else "", ids))
                elif len(rest) < 2 or rest[1] != "output":
                    yield DefinitionError(here, f"a step has an output: steps.{rest[0]}.output")
            elif root == "input" and rest and (problem := self._misspelt_input(str(rest[0]))):
                yield DefinitionError(here, problem)
            elif root == "env" and (not rest or str(rest[0]) not in self._env_allow):
                name = str(rest[0]) if rest else ""
                yield DefinitionError(here, f"{name} is not listed in flows.env_allow")

    def _misspelt_input(self, name: str) -> str:
        """What an input may be called that the schema does not name: anything, unless it forbids others or has a name
        that is near."""
        known = self._input_schema.get("properties")
        if not isinstance(known, dict) or name in known:
            return ""
        is_closed = self._input_schema.get("additionalProperties") is False
        is_misspelt = did_you_mean(name, known, near=_NEAR_INPUT)[1] is not None
        return no_such("input", name, known) if is_closed or is_misspelt else ""


def _backoff_problem(written: float | str) -> str:
    if isinstance(written, str):
        return f"{written} is more than an hour" if seconds_of(written) > MAX_BACKOFF_S else ""
    if written <= MAX_BARE_BACKOFF_S:
        return ""
    return f"{written:g} is a number of seconds here, {written / 60:.0f} minutes; with a unit: {written:g}ms"


def own_blocks(blocks: tuple[Block, ...], path: str) -> list[tuple[str, Block]]:
    """The blocks of this sequence, without those of its sub-sequences."""
    found: list[tuple[str, Block]] = []
    for number, block in enumerate(blocks):
        here = f"{path}[{number}]"
        found.append((here, block))
        if not isinstance(block, SubSequence):
            for inner, body in bodies_of(block):
                found += own_blocks(body, here + inner)
    return found
