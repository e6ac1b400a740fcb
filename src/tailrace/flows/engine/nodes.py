"""The blocks of one instance while it runs: which of them are open, and what follows when one has settled.

Pure. A node is a block at a place; it is made when its turn comes. Leaves settle by facts, the others by what is inside
them, at once and in the order of the facts: so a replay takes the same way. `advance` moves a node as far as it can
go; it never recurses into itself, so a thousand blocks that settle at once are a loop and not a stack.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Literal, assert_never

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
from tailrace.flows.language.scope import BlockScope, Outputs
from tailrace.flows.language.templates import resolved

Settled = Literal["open", "done", "failed", "cancelled"]


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
        self.withdrawn: list[str] = []  # were started, and nobody wants them any more

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
        self._advancing = False

    @property
    def settled(self) -> bool:
        return self.state != "open"

    def begin(self) -> None:
        self.wake()

    def wake(self) -> None:
        """Something inside has settled."""
        if self._advancing or self.state != "open":
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

    def cancel(self) -> None:
        if self.state == "open":
            self.state = "cancelled"
            for node in self.inside():
                node.cancel()

    def inside(self) -> Collection[Node]:
        return ()

    def settle(self, output: Any) -> None:
        self.state, self.output = "done", output
        if self.path:
            self.board.outputs[self.path] = output
        if self.parent is not None:
            self.parent.wake()

    def fail(self, failure: Failure) -> None:
        self.state, self.failure = "failed", failure
        for node in self.inside():
            node.cancel()
        if self.parent is not None:
            self.parent.wake()

    def adopt(self, node: Node) -> None:
        """Settles as the node inside did, once it has."""
        if node.state == "done":
            self.settle(node.output)
        elif node.state == "failed" and node.failure is not None:
            self.fail(node.failure)


class Leaf(Node):
    """A step. It settles by facts alone."""

    def __init__(self, board: Board, parent: Node, step: Step, frame: BlockScope) -> None:
        super().__init__(board, parent, frame, frame.prefix + step.id)
        self.step = step
        self.number = 1
        self.retry_at: float | None = None
        self.started_at: float | None = None  # of this try, the first time it began
        self.interrupted = False  # it had begun and nobody executes it
        self.attempts = 0  # of its model, over all tries
        self.open_attempt = 0  # one whose end is not on record

    def begin(self) -> None:
        self.board.ready[self.path] = self

    def cancel(self) -> None:
        if self.state == "open":
            self.state = "cancelled"
            self._leave()

    def settle(self, output: Any) -> None:
        self._leave()
        super().settle(output)

    def fail(self, failure: Failure) -> None:
        self._leave()
        super().fail(failure)

    def _leave(self) -> None:
        self.board.ready.pop(self.path, None)
        if self.board.started.pop(self.path, None) is not None and self.state == "cancelled":
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
        self._current: Node | None = None

    def inside(self) -> Collection[Node]:
        return () if self._current is None else (self._current,)

    def advance(self) -> None:
        output = None
        while self.state == "open":
            if self._current is not None:
                if self._current.state == "open":
                    return
                if self._current.state == "failed":
                    self.adopt(self._current)
                    return
                output = self._current.output
            block = next(self._blocks, None)
            if block is None:
                self.settle(output)
                return
            self._current = self.board.node(block, self, self.frame)
            self._current.begin()


class Fan(Node):
    """Several rows side by side, at most so many at once: `parallel`, `race` and `for_each`."""

    def __init__(self, board: Board, parent: Node, block: Parallel | Race | ForEach, frame: BlockScope) -> None:
        super().__init__(board, parent, frame, frame.prefix + block.id)
        self._block = block
        self._limit = getattr(block, "max_concurrency", None)
        self._rows: Iterator[Row] | None = None
        self._open: dict[int, Row] = {}
        self._results: list[Any] = []
        self._begun = 0
        self._failures = 0

    def inside(self) -> Collection[Node]:
        return tuple(self._open.values())

    def _make_rows(self) -> Iterator[Row]:
        block = self._block
        if not isinstance(block, ForEach):
            rows = [Row(self.board, self, branch, self.frame) for branch in block.branches]
            self._results = [None] * len(rows)
            return iter(rows)
        items = self._items(block)
        self._results = [None] * len(items)
        return (
            Row(
                self.board,
                self,
                block.body,
                self.frame.inner(f"{self.path}[{index}].", {block.item_var: item, "index": index}),
            )
            for index, item in enumerate(items)
        )

    def _items(self, block: ForEach) -> list[Any]:
        strict = not self.board.dry_run
        if isinstance(block.collection, str):
            items = evaluate(parse_condition(block.collection), self.frame, strict=strict)
        else:
            items = resolved(block.collection, self.frame, strict=strict)
        if not isinstance(items, list):
            if self.board.dry_run:
                return []
            raise ExpressionError(f"{block.collection} is not a list")
        return items

    def advance(self) -> None:
        rows = self._rows = self._rows if self._rows is not None else self._make_rows()
        while self.state == "open":
            self._collect()
            if self.settled or (self._limit is not None and len(self._open) >= self._limit):
                return
            row = next(rows, None)
            if row is None:
                if not self._open:
                    self.settle(self._results)
                return
            self._open[self._begun] = row
            self._begun += 1
            row.begin()

    def _collect(self) -> None:
        for index, row in [(index, row) for index, row in self._open.items() if row.state != "open"]:
            if self.settled:
                return
            del self._open[index]
            if isinstance(self._block, Race):
                self._raced(row)
            elif row.state == "failed":
                self.adopt(row)
            else:
                self._results[index] = row.output

    def _raced(self, row: Row) -> None:
        if row.state == "done":
            for loser in self.inside():
                loser.cancel()
            self._open.clear()
            self.settle(row.output)
            return
        self._failures += 1
        if self._failures == len(self._results):
            self.adopt(row)


class Again(Node):
    """A body while its condition holds. Output: the last iteration's."""

    def __init__(self, board: Board, parent: Node, block: Loop, frame: BlockScope) -> None:
        super().__init__(board, parent, frame, frame.prefix + block.id)
        self._block = block
        self._index = 0
        self._row: Row | None = None
        self._before: str | None = None

    def inside(self) -> Collection[Node]:
        return () if self._row is None else (self._row,)

    def advance(self) -> None:
        while self.state == "open":
            if self._row is not None:
                if self._row.state != "done":
                    self.adopt(self._row)
                    return
                self._before = self._row.frame.prefix
                self._index += 1
            if self._index >= self._block.max_iterations or not self._holds():
                self._show_last()
                self.settle(self._row.output if self._row is not None else None)
                return
            prefix = f"{self.path}[{self._index}]."
            frame = self.frame.inner(prefix, {"index": self._index}, before=self._before)
            self._row = Row(self.board, self, self._block.body, frame)
            self._row.begin()

    def _holds(self) -> bool:
        """Before each iteration, over what the one before it gave."""
        frame = self.frame.inner(self._before or self.frame.prefix, {"index": self._index})
        return is_true(evaluate(parse_condition(self._block.condition), frame, strict=False))

    def _show_last(self) -> None:
        """After the loop its steps are known by what they gave the last time."""
        if self._before is not None:
            last = {path: output for path, output in self.board.outputs.items() if path.startswith(self._before)}
            for path, output in last.items():
                self.board.outputs[self.frame.prefix + path.removeprefix(self._before)] = output


class Choice(Node):
    """The first route whose condition holds."""

    def __init__(self, board: Board, parent: Node, block: Router, frame: BlockScope) -> None:
        super().__init__(board, parent, frame, frame.prefix + block.id)
        self._block = block
        self._row: Row | None = None

    def inside(self) -> Collection[Node]:
        return () if self._row is None else (self._row,)

    def advance(self) -> None:
        if self._row is None:
            self._row = Row(self.board, self, self._chosen(), self.frame)
            self._row.begin()
        self.adopt(self._row)

    def _chosen(self) -> tuple[Block, ...]:
        for case in self._block.routes:
            if is_true(evaluate(parse_condition(case.condition), self.frame, strict=False)):
                return case.blocks
        return self._block.default


class Guarded(Node):
    """Try, catch, finally. Output: of whichever of the first two came to its end."""

    def __init__(self, board: Board, parent: Node, block: TryCatch, frame: BlockScope) -> None:
        super().__init__(board, parent, frame, frame.prefix + block.id)
        self._block = block
        self._rows: list[Row] = []
        self._decided: Row | None = None  # how it ends, once the `finally_block` is through

    def inside(self) -> Collection[Node]:
        return self._rows[-1:]

    def advance(self) -> None:
        if not self._rows:
            self._open(self._block.try_block, self.frame)
        while self.state == "open" and (row := self._rows[-1]).state != "open":
            if self._decided is not None:
                self.adopt(row if row.state == "failed" else self._decided)
            elif row.state == "failed" and row.failure is not None and len(self._rows) == 1 and self._block.catch_block:
                self._open(self._block.catch_block, self.frame.inner(self.frame.prefix, {"error": row.failure.names()}))
            else:
                self._decided = row
                self._open(self._block.finally_block, self.frame)

    def _open(self, blocks: tuple[Block, ...], frame: BlockScope) -> None:
        self._rows.append(Row(self.board, self, blocks, frame))
        self._rows[-1].begin()


class Nested(Node):
    """A sub-sequence: a row with an input of its own."""

    def __init__(self, board: Board, parent: Node, block: SubSequence, frame: BlockScope) -> None:
        super().__init__(board, parent, frame, frame.prefix + block.id)
        self._block = block
        self._row: Row | None = None

    def inside(self) -> Collection[Node]:
        return () if self._row is None else (self._row,)

    def advance(self) -> None:
        if self._row is None:
            given = resolved(self._block.input, self.frame, strict=not self.board.dry_run)
            self._row = Row(self.board, self, self._block.blocks, self.frame.apart(f"{self.path}.", given))
            self._row.begin()
        self.adopt(self._row)
