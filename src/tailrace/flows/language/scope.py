"""What names stand for at one place in a sequence: its input, what its steps gave, the item of an iteration.

Pure. A frame is one stretch of a sequence with names of its own: the sequence itself, one iteration, a `catch_block`,
a sub-sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tailrace.flows.language.expressions import Expression, ExpressionError, Path, Scope, evaluate, paths_in
from tailrace.flows.language.templates import expressions_in


class Outputs(dict[str, Any]):
    """What settled blocks gave, by the block's place (`each[2].summarise`)."""


class BlockScope:
    """`prefix` stands before the ids of the blocks inside. What is not known here is asked of `parent`; a sub-sequence
    has none: it sees its own input and its own steps."""

    __slots__ = ("_before", "_names", "_outputs", "_parent", "prefix")

    def __init__(
        self,
        outputs: Outputs,
        names: Mapping[str, Any],
        *,
        prefix: str = "",
        parent: BlockScope | None = None,
        before: str | None = None,
    ) -> None:
        self._outputs = outputs
        self._names = names
        self._parent = parent
        self._before = before  # the prefix of the iteration before this one
        self.prefix = prefix

    def inner(self, prefix: str, names: Mapping[str, Any], *, before: str | None = None) -> BlockScope:
        """A stretch inside this one."""
        return BlockScope(self._outputs, names, prefix=prefix, parent=self, before=before)

    def apart(self, prefix: str, given: Any) -> BlockScope:
        """A sub-sequence: nothing of this one is known there but what it is given."""
        return BlockScope(self._outputs, {"input": given}, prefix=prefix)

    @property
    def has_own_input(self) -> bool:
        """Whether `input` is what the instance was given, and not that of a sub-sequence."""
        return self._parent.has_own_input if self._parent is not None else not self.prefix

    def root(self, name: str) -> Any:
        if name == "steps":
            return _Steps(self)
        frame: BlockScope | None = self
        while frame is not None:
            if name in frame._names:
                return frame._names[name]
            frame = frame._parent
        raise KeyError(name)

    def output_of(self, block_id: str) -> Any:
        """What the block of that id gave, in the innermost stretch that has it; in a loop, what it gave the last
        time where it has not run this time. Raises `KeyError`."""
        frame: BlockScope | None = self
        while frame is not None:
            for prefix in (frame.prefix, frame._before):
                if prefix is not None and prefix + block_id in self._outputs:
                    return self._outputs[prefix + block_id]
            frame = frame._parent
        raise KeyError(block_id)


class _Steps(Mapping[str, Any]):
    """`steps` in an expression."""

    def __init__(self, frame: BlockScope) -> None:
        self._frame = frame

    def __getitem__(self, block_id: str) -> dict[str, Any]:
        return {"output": self._frame.output_of(block_id)}

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def check_input(expression: Expression, scope: BlockScope) -> None:
    """Raises `ExpressionError` for an expression that asks for nothing but an input that is not there: as `evaluate`
    does, for a dry run, in which other things are not there because nothing was called. The values of a sub-sequence's
    input may be such things: there it is the name of the value that has to be known."""
    asked = [path.parts for path in paths_in(expression)]
    if any(parts[0] != "input" for parts in asked):
        return
    known = (Path(parts if scope.has_own_input else parts[:2]) for parts in asked)
    if not any(_leads_somewhere(path, scope) for path in known):
        evaluate(expression, scope)


def check_inputs(value: Any, scope: BlockScope) -> None:
    """`check_input` for every template in a JSON value."""
    for _, expression in expressions_in(value):
        check_input(expression, scope)


def _leads_somewhere(path: Path, scope: Scope) -> bool:
    try:
        evaluate(path, scope)
    except ExpressionError:
        return False
    return True


class WithNames:
    """A scope with a few more names: the environment, an error."""

    def __init__(self, scope: Scope, names: Mapping[str, Any]) -> None:
        self._scope = scope
        self._names = names

    def root(self, name: str) -> Any:
        return self._names[name] if name in self._names else self._scope.root(name)
