"""A sequence as a value: its blocks, and the retries, limits and budgets that they name.

Owns names, types, ranges and defaults. What a handler's `params` mean is the handler's; how a file becomes this is
`source`'s; whether its references lead anywhere is `check`'s.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Final, TypeAlias, dataclass_transform, get_args

import msgspec
from msgspec import Meta

from tailrace.errors import TailraceError
from tailrace.flows.definition.spelling import did_you_mean
from tailrace.messages import JsonObject
from tailrace.values.validation_words import validation_mistake

_INVALID_VALUE = re.compile(r"Invalid value '(.*)' - at ", re.DOTALL)
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `([^`]*)`")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}

PRINTED: Final = r"^[^\x00-\x1f\x7f]*$"  # the pattern of a name: not every store takes control characters

BlockId = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$",
        max_length=100,
        description="letters, digits, _ and -, with a letter or _ in front",
    ),
]
Count = Annotated[int, Meta(ge=1, le=100_000)]
Seconds = Annotated[float, Meta(gt=0)]
Duration: TypeAlias = (
    Annotated[float, Meta(ge=0)]
    | Annotated[
        str,
        Meta(
            pattern=r"^\s*\d+(\.\d+)?\s*(ms|s|m|h|d)\s*$", description="a number of seconds, or one with a unit as 1.5h"
        ),
    ]
)


class DefinitionError(TailraceError):
    """A definition that cannot be run. `path` is the place of the mistake: `$.blocks[2].retry.max_attempts`."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path.removeprefix('$').lstrip('.')}: {message}" if path not in ("", "$") else message)
        self.path = path
        self.message = message


def seconds_of(duration: float | str) -> float:
    """A number of seconds, or a text such as "500ms", "2s", "5m"."""
    if isinstance(duration, str):
        found = _DURATION.fullmatch(duration.strip())
        if found is None:
            raise ValueError(duration)
        return float(found[1]) * _UNITS_S[found[2]]
    return float(duration)


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))  # what mypy must know of the subclasses
class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of everything in a definition. A misspelt key is a mistake, not a wish that is ignored."""


class Retry(_Part):
    """`max_attempts` counts the first one. `retry_if`: kinds or codes of errors, or a condition over `error` and
    `attempt`; without it, whatever may go better next time."""

    max_attempts: Annotated[int, Meta(ge=1, le=1000)] = 3
    initial_backoff: Duration = 0.5
    max_backoff: Duration = 30.0
    backoff_multiplier: Annotated[float, Meta(ge=1, le=100)] = 2.0
    retry_if: tuple[str, ...] | str | None = None


class Budget(_Part):
    """Of the whole instance; once it is spent no model is asked again."""

    max_tokens: Count | None = None
    max_cost_usd: Annotated[float, Meta(gt=0)] | None = None


class Step(_Part, tag="step", tag_field="type"):
    """Runs one handler. `timeout_secs` is for each try."""

    id: BlockId
    handler: str
    params: JsonObject = {}
    retry: Retry | None = None
    timeout_secs: Seconds | None = None


class Parallel(_Part, tag="parallel", tag_field="type"):
    """All branches; the first failure fails the block and cancels the others. Output: theirs, in order."""

    id: BlockId
    branches: Annotated[tuple[tuple[Block, ...], ...], Meta(min_length=1, max_length=256)]
    max_concurrency: Count | None = None


class Race(_Part, tag="race", tag_field="type"):
    """The first branch to succeed; the others are cancelled. It fails when all of them have. Output: the winner's."""

    id: BlockId
    branches: Annotated[tuple[tuple[Block, ...], ...], Meta(min_length=1, max_length=256)]


class Loop(_Part, tag="loop", tag_field="type"):
    """While the condition holds; `index` counts from 0. Output: the last iteration's."""

    id: BlockId
    body: Annotated[tuple[Block, ...], Meta(min_length=1)]
    condition: str = "true"
    max_iterations: Count = 1000


class ForEach(_Part, tag="for_each", tag_field="type"):
    """For every item of a list. Inside, `item` (or what `item_var` says) and `index`. Output: theirs, in order."""

    id: BlockId
    collection: str | list[Any]
    body: Annotated[tuple[Block, ...], Meta(min_length=1)]
    item_var: BlockId = "item"
    max_concurrency: Count = 8


class Case(_Part):
    condition: str
    blocks: tuple[Block, ...] = ()


class Router(_Part, tag="router", tag_field="type"):
    """The first route whose condition holds, else `default`. Output: that route's."""

    id: BlockId
    routes: Annotated[tuple[Case, ...], Meta(min_length=1)]
    default: tuple[Block, ...] = ()


class TryCatch(_Part, tag="try_catch", tag_field="type"):
    """Where `try_block` fails, `catch_block` runs with `error`; `finally_block` runs after either."""

    id: BlockId
    try_block: Annotated[tuple[Block, ...], Meta(min_length=1)]
    catch_block: tuple[Block, ...] = ()
    finally_block: tuple[Block, ...] = ()


class SubSequence(_Part, tag="sub_sequence", tag_field="type"):
    """Another sequence as one block, with an input of its own. Named by `sequence_name` (and `version`; the newest
    without) or `sequence_id`, or written out in `blocks`: an instance always carries it written out."""

    id: BlockId
    input: JsonObject = {}
    blocks: tuple[Block, ...] = ()
    sequence_name: str = ""
    version: Count | None = None
    sequence_id: str = ""


Block: TypeAlias = Step | Parallel | Race | Loop | ForEach | Router | TryCatch | SubSequence
MAX_BLOCKS: Final = 5000  # of a sequence with those that it names written out
BLOCK_TYPES: Final = tuple(str(block.__struct_config__.tag) for block in get_args(Block))


_KEYS: Final = frozenset(name for part in (*get_args(Block), Retry, Budget, Case) for name in part.__struct_fields__)


class Definition(_Part):
    """`input_schema` is a JSON schema that every instance's input must satisfy."""

    name: Annotated[str, Meta(min_length=1, max_length=200, pattern=PRINTED)]
    blocks: Annotated[tuple[Block, ...], Meta(min_length=1)]
    description: str = ""
    input_schema: JsonObject | None = None
    budget: Budget | None = None


def parsed(value: Any) -> Definition:
    """The definition that a JSON value is. Raises `DefinitionError` with the place of the mistake."""
    try:
        return msgspec.convert(value, Definition)
    except msgspec.ValidationError as exc:
        place, message = validation_mistake(exc, Definition)
        if place.endswith(".type") and (written := _INVALID_VALUE.match(str(exc))):
            message += did_you_mean(written[1], BLOCK_TYPES)[0]
        elif (unknown := _UNKNOWN_FIELD.match(str(exc))) and (near := did_you_mean(unknown[1], _KEYS)[1]):
            message += f"; did you mean {near}?"
        raise DefinitionError(f"${place}", message) from exc
    except RecursionError as exc:
        raise DefinitionError("$", "nested too deeply") from exc


def bodies_of(block: Block) -> Iterator[tuple[str, tuple[Block, ...]]]:
    """The lists of blocks inside a block, each with its place in it."""
    match block:
        case Step():
            pass
        case Parallel(branches=branches) | Race(branches=branches):
            yield from ((f".branches[{number}]", branch) for number, branch in enumerate(branches))
        case Loop(body=body) | ForEach(body=body):
            yield ".body", body
        case Router(routes=routes, default=default):
            yield from ((f".routes[{number}].blocks", case.blocks) for number, case in enumerate(routes))
            yield ".default", default
        case TryCatch(try_block=tried, catch_block=caught, finally_block=last):
            yield from ((".try_block", tried), (".catch_block", caught), (".finally_block", last))
        case SubSequence(blocks=blocks):
            yield ".blocks", blocks


def walk(blocks: tuple[Block, ...], path: str = "$.blocks") -> Iterator[tuple[str, Block]]:
    """Every block with its place, outer ones first."""
    for number, block in enumerate(blocks):
        here = f"{path}[{number}]"
        yield here, block
        for inner, body in bodies_of(block):
            yield from walk(body, here + inner)
