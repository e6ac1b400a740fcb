"""A graph as text: Mermaid for a page or a document, a tree for a terminal.

Pure. What comes from a definition is data here: in Mermaid it stands in quotes, with every character that Mermaid
reads as code written as an entity.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tailrace.events import StepState
from tailrace.flows.definition.graph import Graph, Lane, Node, NodeStates

MAX_LABEL: Final = 80  # characters
_CLASSES: dict[StepState, str] = {
    "finished": "fill:#d9f2e3,stroke:#1a7f4b,color:#0b3d24",
    "running": "fill:#dbeafe,stroke:#2563eb,color:#12306b",
    "failed": "fill:#fde2e1,stroke:#c0362c,color:#6b1610",
    "cancelled": "fill:#eeeeee,stroke:#888888,color:#444444",
}
MARKS: dict[StepState, str] = {"finished": "✓", "running": "●", "failed": "✗", "cancelled": "–"}
_CODE = frozenset('"#`<>&\\;{}[]()|%')


def mermaid(graph: Graph, states: NodeStates | None = None) -> str:
    """A flowchart. `states` colours the nodes."""
    return "\n".join(_Mermaid(graph, states or {}).lines()) + "\n"


class _Mermaid:
    def __init__(self, graph: Graph, states: NodeStates) -> None:
        self._graph = graph
        self._states = states
        self._nodes = {node.id: node for node in graph.nodes}
        # Numbers, since a block may be called `end` or `style`.
        self._names = {node.id: f"b{number}" for number, node in enumerate(graph.nodes)}

    def lines(self) -> Iterator[str]:
        yield "flowchart TD"
        yield f"  start([{_quoted(self._graph.name)}])"
        for node in self._graph.top:
            yield from self._block(self._nodes[node], "  ")
        if self._graph.top:
            yield f"  start --> {self._names[self._graph.top[0]]}"
        for edge in self._graph.edges:
            yield f"  {self._names[edge.source]} --> {self._names[edge.target]}"
        yield from self._colours()

    def _block(self, node: Node, indent: str) -> Iterator[str]:
        name = self._names[node.id]
        if node.type == "step":
            yield f"{indent}{name}[{_quoted(node.name, node.title)}]"
            return
        lanes = [(number, lane) for number, lane in enumerate(node.lanes) if lane.nodes]
        if not lanes:  # a sub-sequence that is not written out
            yield f"{indent}{name}[[{_quoted(node.name, node.title)}]]"
            return
        yield from _opened(name, f"{node.name}: {node.title}", indent)
        for number, lane in lanes:
            yield from self._lane(f"{name}_{number}", lane, f"{indent}  ", framed=len(node.lanes) > 1)
        if node.type == "try_catch":
            yield from _ways(name, [number for number, _ in lanes], f"{indent}  ")
        yield f"{indent}end"

    def _lane(self, name: str, lane: Lane, indent: str, *, framed: bool) -> Iterator[str]:
        framed = framed and (bool(lane.title) or len(lane.nodes) > 1)
        if framed:
            yield from _opened(name, lane.title or " ", indent)
        for node in lane.nodes:
            yield from self._block(self._nodes[node], f"{indent}  " if framed else indent)
        if framed:
            yield f"{indent}end"

    def _colours(self) -> Iterator[str]:
        for state, style in _CLASSES.items():
            if names := [self._names[node] for node, now in self._states.items() if now == state]:
                yield f"  classDef {state} {style}"
                yield f"  class {','.join(names)} {state}"


def _opened(name: str, title: str, indent: str) -> Iterator[str]:
    yield f"{indent}subgraph {name}[{_quoted(title)}]"
    yield f"{indent}  direction TB"  # Mermaid turns what is inside by 90° otherwise


def _ways(name: str, lanes: list[int], indent: str) -> Iterator[str]:
    """From `try` to `catch` where it fails, and to `finally` from whichever came last."""
    tried, caught, last = 0, 1, 2
    if {tried, caught} <= set(lanes):
        yield f'{indent}{name}_{tried} -. "on error" .-> {name}_{caught}'
    if last in lanes:
        yield from (f"{indent}{name}_{lane} --> {name}_{last}" for lane in lanes if lane != last)


def _quoted(*rows: str) -> str:
    return '"' + "<br/>".join("".join(map(_escaped, _brief(row))) for row in rows if row) + '"'


def _brief(text: str) -> str:
    text = " ".join(text.split()) or text[:1]
    return text if len(text) <= MAX_LABEL else text[: MAX_LABEL - 1] + "…"


def _escaped(character: str) -> str:
    if character in _CODE or not character.isprintable():
        return f"#{ord(character)};"
    return character


# ── a tree ───────────────────────────────────────────────────────────────────────────────────────────────────


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
