"""A sequence as a picture: every block as a node, the blocks that hold others with their lanes, and what follows what.

Pure: values that the page draws, and a tree for a terminal. A node's id is the id that the log has for the block
without the numbers of iterations: `each[2].summarise` is drawn at `each.summarise`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Final, Literal, TypeAlias, assert_never

import msgspec

from tailrace.events import StepState
from tailrace.flows.definition.definition import (
    Block,
    Definition,
    ForEach,
    Loop,
    Parallel,
    Race,
    Router,
    Step,
    SubSequence,
    TryCatch,
    bodies_of,
)

NodeType = Literal["step", "parallel", "race", "loop", "for_each", "router", "try_catch", "sub_sequence"]
NodeStates: TypeAlias = Mapping[str, StepState]
_ITERATION = re.compile(r"\[\d+\]")
_WORST_FIRST: tuple[StepState, ...] = ("failed", "running", "cancelled", "finished")


class Lane(msgspec.Struct, frozen=True):
    """One list of blocks inside a block. `title`: the condition of a route; `try`, `catch`, `finally`; else empty."""

    title: str
    nodes: tuple[str, ...]  # their ids, in order; those inside them are not among these


class Node(msgspec.Struct, frozen=True):
    """One block. `parent` is the block that holds it, empty at the top. `title` says in words what the block does.
    A step has a handler and no lanes, and where it asks a model its prompt, as written; the other blocks have lanes."""

    id: str
    type: NodeType
    name: str  # the block's own id
    title: str
    parent: str = ""
    handler: str = ""
    lanes: tuple[Lane, ...] = ()
    prompt: str = ""


class Edge(msgspec.Struct, frozen=True):
    """The block `target` begins when `source` has ended. Both are in the same lane."""

    source: str
    target: str


class Graph(msgspec.Struct, frozen=True):
    """`nodes` are in the order of the definition, outer ones first; `top` are the ids of those that no block holds."""

    name: str
    top: tuple[str, ...]
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def graph_of(definition: Definition) -> Graph:
    nodes = tuple(_nodes(definition.blocks, "", ""))
    top = tuple(node.id for node in nodes if not node.parent)
    lanes = (top, *(lane.nodes for node in nodes for lane in node.lanes))
    edges = tuple(Edge(*pair) for lane in lanes for pair in pairwise(lane))
    return Graph(definition.name, top, nodes, edges)


def node_id(block_id: str) -> str:
    """Where the graph shows what the log says of this block."""
    return _ITERATION.sub("", block_id)


def node_states(steps: Iterable[tuple[str, StepState]]) -> dict[str, StepState]:
    """The state of each node from those of the steps by block id. Of several iterations the one that needs attention
    most counts: one that failed, one that runs."""
    states: dict[str, StepState] = {}
    for block_id, state in steps:
        node = node_id(block_id)
        states[node] = min(state, states.get(node, state), key=_WORST_FIRST.index)
    return states


def _nodes(blocks: tuple[Block, ...], prefix: str, parent: str) -> Iterator[Node]:
    for block in blocks:
        here = prefix + block.id
        inside = f"{here}." if isinstance(block, Loop | ForEach | SubSequence) else prefix
        yield Node(
            here,
            _type_of(block),
            block.id,
            title_of(block),
            parent,
            block.handler if isinstance(block, Step) else "",
            tuple(
                Lane(title, tuple(inside + inner.id for inner in body))
                for title, (_, body) in zip(_lane_titles(block), bodies_of(block), strict=True)
            ),
            str(block.params.get("prompt") or "") if isinstance(block, Step) else "",
        )
        for _, body in bodies_of(block):
            yield from _nodes(body, inside, here)


def _type_of(block: Block) -> NodeType:
    tag: NodeType = msgspec.convert(type(block).__struct_config__.tag, NodeType)
    return tag


def title_of(block: Block) -> str:
    """What the block does, in a few words."""
    match block:
        case Step(handler=handler, params=params):
            asked = "/".join(str(params[key]) for key in ("provider", "model", "signal") if params.get(key))
            return f"{handler} {asked}".rstrip()
        case Parallel(max_concurrency=limit):
            return "parallel" + (f", {limit} at once" if limit is not None else "")
        case Race():
            return "race: the first that succeeds"
        case Loop(condition=condition):
            return "loop" if condition == "true" else f"while {_bare(condition)}"
        case ForEach(collection=collection, item_var=item):
            many = _bare(collection) if isinstance(collection, str) else f"{len(collection)} items"
            return f"for each {item} of {many}"
        case Router():
            return "the first route that holds"
        case TryCatch():
            return "try"
        case SubSequence(sequence_name=name, version=version):
            return f"sequence {name}".rstrip() + (f" version {version}" if version is not None else "")
        case _:
            assert_never(block)


def _bare(expression: str) -> str:
    """A condition without the braces around it."""
    text = " ".join(expression.split())
    inner = text.removeprefix("{{").removesuffix("}}")
    return inner.strip() if len(inner) == len(text) - 4 and "{{" not in inner else text


def _lane_titles(block: Block) -> tuple[str, ...]:
    """One for each of `bodies_of`."""
    match block:
        case Router(routes=routes):
            return (*(_bare(case.condition) for case in routes), "default")
        case TryCatch():
            return ("try", "catch", "finally")
        case Parallel(branches=branches) | Race(branches=branches):
            return ("",) * len(branches)
        case Step():
            return ()
        case Loop() | ForEach() | SubSequence():
            return ("",)
        case _:
            assert_never(block)


# ── a tree for a terminal ──────────────────────────────────────────────────────────────────────────────────

MAX_LABEL: Final = 80  # characters
MARKS: dict[StepState, str] = {"finished": "✓", "running": "●", "failed": "✗", "cancelled": "–"}


def tree(graph: Graph, states: NodeStates | None = None) -> str:
    """One line for each block, indented below the block that holds it. With `states`, each step has its mark."""
    drawn = _Tree(graph, states)
    return "\n".join([_brief(graph.name), *drawn.row(graph.top, "")]) + "\n"


class _Tree:
    def __init__(self, graph: Graph, states: NodeStates | None) -> None:
        self._nodes = {node.id: node for node in graph.nodes}
        self._states = states

    def row(self, ids: tuple[str, ...], indent: str) -> Iterator[str]:
        for number, node in enumerate(map(self._nodes.__getitem__, ids)):
            last = number == len(ids) - 1
            yield f"{indent}{'└─' if last else '├─'} {self._mark(node)}{node.name}  {_brief(node.title)}".rstrip()
            below = indent + ("   " if last else "│  ")
            lanes = [lane for lane in node.lanes if lane.nodes]
            for at, lane in enumerate(lanes):
                yield from self._lane(node, lane, at, below, last=at == len(lanes) - 1)

    def _lane(self, node: Node, lane: Lane, number: int, indent: str, *, last: bool) -> Iterator[str]:
        if len(node.lanes) == 1:
            yield from self.row(lane.nodes, indent)
            return
        yield f"{indent}{'└─' if last else '├─'} [{_brief(lane.title or str(number + 1))}]"
        yield from self.row(lane.nodes, indent + ("   " if last else "│  "))

    def _mark(self, node: Node) -> str:
        if self._states is None or node.lanes:
            return ""
        state = self._states.get(node.id)
        return f"{MARKS[state] if state is not None else '○'} "


def _brief(text: str) -> str:
    """A definition's text on one line of a terminal, which reads no escape sequence in it."""
    text = "".join(char for char in " ".join(text.split()) if char.isprintable())
    return text if len(text) <= MAX_LABEL else text[: MAX_LABEL - 1] + "…"
