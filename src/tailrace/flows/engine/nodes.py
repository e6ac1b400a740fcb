"""The blocks of one instance while it runs: which of them are open, and what follows when one has settled.

Pure. A node is a block at a place; it is made when its turn comes. Leaves settle by facts, the others by what is inside
them, at once and in the order of the facts: so a replay takes the same way. `advance` moves a node as far as it can
go; it never recurses into itself, so a thousand blocks that settle at once are a loop and not a stack.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Generic, Literal, TypeVar, assert_never

import msgspec

from tailrace.events import RunFailure
from tailrace.flows.definition.definition import (
    Block,
    ForEach,
    Loop,
    Parallel,
    Race,
    Router,
    Step,
    SubSequence,
    TryCatch,
)
from tailrace.flows.language.expressions import ExpressionError, evaluate, is_true, parse_condition
from tailrace.flows.language.scope import BlockScope, Outputs, check_input, check_inputs
from tailrace.flows.language.templates import resolved

Settled = Literal["open", "done", "failed", "cancelled"]
B = TypeVar("B", bound=Block)


class Failure(msgspec.Struct, frozen=True):
    """Which block failed, and why."""

    block_id: str
    error: RunFailure

    def names(self) -> dict[str, Any]:
        """As `error` in a `catch_block`."""
        return {"block_id": self.block_id, **msgspec.to_builtins(self.error), "code": self.error.code}


class Board:
    """What all nodes of an instance share."""

    def __init__(self, *, dry_run: bool) -> None:
        self.dry_run = dry_run
        self.outputs = Outputs()
        self.ready: dict[str, Leaf] = {}  # to be started, now or at its time
        self.started: dict[str, Leaf] = {}
        self.withdrawn: list[str] = []  # were started, and are no longer wanted

    def node(self, block: Block, parent: Node, frame: BlockScope) -> Node:
        match block:
            case Step():
                return Leaf(self, parent, block, frame)
            case Parallel() | Race() | ForEach():
                return Fan(self, parent, block, frame)
            case Loop():
                return Again(self, parent, block, frame)
            case Router():
                return Choice(self, parent, block, frame)
            case TryCatch():
                return Guarded(self, parent, block, frame)
            case SubSequence():
                return Nested(self, parent, block, frame)
            case _:
                assert_never(block)


class Node:
    """Something that is open until it settles. `path` is its block's place; empty for a list of blocks."""

    def __init__(self, board: Board, parent: Node | None, frame: BlockScope, path: str = "") -> None:
        self.board = board
        self.parent = parent
        self.frame = frame
        self.path = path
        self.state: Settled = "open"
        self.output: Any = None
        self.failure: Failure | None = None
        self.inner: Node | None = None  # the last one that began inside
        self._advancing = False

    @property
    def settled(self) -> bool:
        return self.state != "open"

    def begin(self) -> None:
        self.wake()

    def wake(self) -> None:
        """Something inside has settled."""
        if self._advancing or self.settled:
            return
        self._advancing = True
        try:
            self.advance()
        except ExpressionError as exc:
            self.fail(Failure(self.path, RunFailure("permanent", str(exc), "template")))
        finally:
            self._advancing = False

    def advance(self) -> None:
        """Takes the next step that what has settled inside allows. With nothing inside there is none."""

    def inside(self) -> Collection[Node]:
        return () if self.inner is None else (self.inner,)

    def begin_inside(self, node: Node) -> Node:
        self.inner = node
        node.begin()
        return node

    def begin_row(self, blocks: tuple[Block, ...], frame: BlockScope) -> Node:
        return self.begin_inside(Row(self.board, self, blocks, frame))

    def cancel(self) -> None:
        if not self.settled:
            self._end("cancelled")

    def settle(self, output: Any) -> None:
        self._end("done")
        self.output = output
        if self.path:
            self.board.outputs[self.path] = output
        if self.parent is not None:
            self.parent.wake()

    def fail(self, failure: Failure) -> None:
        self._end("failed")
        self.failure = failure
        if self.parent is not None:
            self.parent.wake()

    def adopt(self, node: Node) -> None:
        """Settles as the node inside did, once it has."""
        if node.state == "done":
            self.settle(node.output)
        elif node.failure is not None:
            self.fail(node.failure)

    def _end(self, state: Settled) -> None:
        """Cancels what is still open inside."""
        self.state = state
        for node in self.inside():
            node.cancel()


class BlockNode(Node, Generic[B]):
    """The node of one block."""

    def __init__(self, board: Board, parent: Node, block: B, frame: BlockScope) -> None:
        super().__init__(board, parent, frame, frame.prefix + block.id)
        self.block = block


class Leaf(BlockNode[Step]):
    """A step. It settles by facts alone."""

    number = 1
    retry_at: float | None = None
    started_at: float | None = None  # of this try, the first time it began
    interrupted = False  # it had begun and is not executed now
    attempts = 0  # of its model, over all tries
    open_attempt = 0  # one whose end is not on record

    def begin(self) -> None:
        self.board.ready[self.path] = self

    def _end(self, state: Settled) -> None:
        self.state = state
        self.board.ready.pop(self.path, None)
        if self.board.started.pop(self.path, None) is not None and state == "cancelled":
            self.board.withdrawn.append(self.path)

    def start(self, number: int, at: float) -> None:
        if number != self.number or self.started_at is None:
            self.number, self.started_at = number, at
        self.retry_at, self.interrupted = None, False
        self.board.ready.pop(self.path, None)
        self.board.started[self.path] = self

    def interrupt(self) -> None:
        self.interrupted = True
        if self.board.started.pop(self.path, None) is not None:
            self.board.ready[self.path] = self

    def again(self, retry_at: float) -> None:
        """This try failed; the next one has its time."""
        self.number += 1
        self.retry_at, self.started_at, self.interrupted = retry_at, None, False
        self.board.started.pop(self.path, None)
        self.board.ready[self.path] = self


class Row(Node):
    """Blocks one after another. Output: the last one's."""

    def __init__(self, board: Board, parent: Node | None, blocks: tuple[Block, ...], frame: BlockScope) -> None:
        super().__init__(board, parent, frame)
        self._blocks = iter(blocks)

    def advance(self) -> None:
        while self.inner is None or self.inner.state == "done":
            block = next(self._blocks, None)
            if block is None:
                self.settle(self.inner.output if self.inner is not None else None)
                return
            self.begin_inside(self.board.node(block, self, self.frame))
        self.adopt(self.inner)


class Fan(BlockNode[Parallel | Race | ForEach]):
    """Several rows side by side, at most so many at once: `parallel`, `race` and `for_each`."""

    _rows: Iterator[tuple[int, Row]] | None = None
    _failures = 0

    def __init__(self, board: Board, parent: Node, block: Parallel | Race | ForEach, frame: BlockScope) -> None:
        super().__init__(board, parent, block, frame)
        self._limit = getattr(block, "max_concurrency", None)
        self._open: dict[int, Row] = {}
        self._results: list[Any] = []

    def inside(self) -> Collection[Node]:
        return tuple(self._open.values())

    def _make_rows(self) -> Iterator[tuple[int, Row]]:
        block, frame = self.block, self.frame
        if isinstance(block, ForEach):
            rows = [
                (block.body, frame.inner(f"{self.path}[{index}].", {block.item_var: item, "index": index}))
                for index, item in enumerate(self._items(block))
            ]
        else:
            rows = [(branch, frame) for branch in block.branches]
        self._results = [None] * len(rows)
        return enumerate(Row(self.board, self, *row) for row in rows)

    def _items(self, block: ForEach) -> list[Any]:
        dry = self.board.dry_run
        if isinstance(block.collection, str):
            expression = parse_condition(block.collection)
            if dry:
                check_input(expression, self.frame)
            items = evaluate(expression, self.frame, strict=not dry)
        else:
            if dry:
                check_inputs(block.collection, self.frame)
            items = resolved(block.collection, self.frame, strict=not dry)
        if not isinstance(items, list):
            if dry:
                return []
            raise ExpressionError(f"{block.collection} is not a list")
        return items

    def advance(self) -> None:
        rows = self._rows = self._rows if self._rows is not None else self._make_rows()
        while self.state == "open":
            self._collect()
            if self.settled or (self._limit is not None and len(self._open) >= self._limit):
                return
            index, row = next(rows, (-1, None))
            if row is None:
                if not self._open:
                    self.settle(self._results)
                return
            self._open[index] = row
            row.begin()

    def _collect(self) -> None:
        for index, row in [(index, row) for index, row in self._open.items() if row.settled]:
            if self.settled:
                return
            del self._open[index]
            if isinstance(self.block, Race):
                self._failures += row.state == "failed"
                if row.state == "done" or self._failures == len(self._results):
                    self.adopt(row)
            elif row.state == "failed":
                self.adopt(row)
            else:
                self._results[index] = row.output


class Again(BlockNode[Loop]):
    """A body while its condition holds. Output: the last iteration's."""

    _index = 0
    _before: str | None = None  # the prefix of the iteration before

    def advance(self) -> None:
        while (row := self.inner) is None or row.state == "done":
            if row is not None:
                self._before = row.frame.prefix
                self._index += 1
            if self._index >= self.block.max_iterations or not self._holds():
                self._show_last()
                self.settle(row.output if row is not None else None)
                return
            prefix = f"{self.path}[{self._index}]."
            self.begin_row(self.block.body, self.frame.inner(prefix, {"index": self._index}, before=self._before))
        self.adopt(row)

    def _holds(self) -> bool:
        """Before each iteration, over what the one before it gave."""
        frame = self.frame.inner(self._before or self.frame.prefix, {"index": self._index})
        return is_true(evaluate(parse_condition(self.block.condition), frame, strict=False))

    def _show_last(self) -> None:
        """After the loop its steps are known by what they gave the last time."""
        if self._before is not None:
            last = {path: output for path, output in self.board.outputs.items() if path.startswith(self._before)}
            for path, output in last.items():
                self.board.outputs[self.frame.prefix + path.removeprefix(self._before)] = output


class Choice(BlockNode[Router]):
    """The first route whose condition holds."""

    def advance(self) -> None:
        self.adopt(self.inner or self.begin_row(self._chosen(), self.frame))

    def _chosen(self) -> tuple[Block, ...]:
        for case in self.block.routes:
            if is_true(evaluate(parse_condition(case.condition), self.frame, strict=False)):
                return case.blocks
        return self.block.default


class Guarded(BlockNode[TryCatch]):
    """Try, catch, finally. Output: of whichever of the first two came to its end."""

    _caught = False
    _decided: Node | None = None  # how it ends, once the `finally_block` is through

    def advance(self) -> None:
        row = self.inner or self.begin_row(self.block.try_block, self.frame)
        while row.settled and not self.settled:
            if self._decided is not None:
                self.adopt(row if row.state == "failed" else self._decided)
            elif row.failure is not None and not self._caught and self.block.catch_block:
                self._caught = True
                frame = self.frame.inner(self.frame.prefix, {"error": row.failure.names()})
                row = self.begin_row(self.block.catch_block, frame)
            else:
                self._decided = row
                row = self.begin_row(self.block.finally_block, self.frame)


class Nested(BlockNode[SubSequence]):
    """A sub-sequence: a row with an input of its own."""

    def advance(self) -> None:
        self.adopt(self.inner or self._begin())

    def _begin(self) -> Node:
        if self.board.dry_run:
            check_inputs(self.block.input, self.frame)
        given = resolved(self.block.input, self.frame, strict=not self.board.dry_run)
        return self.begin_row(self.block.blocks, self.frame.apart(f"{self.path}.", given))
