"""What it may cost to check a value by a JSON schema, known before any value is checked (L140).

Pure, linear in the schema, without recursion. Knows no keyword but `$ref`, `$defs` and `definitions`: every object,
list and scalar in a schema counts, and a reference counts as what it names, written out in its place. Doubled
references grow exponentially that way, as the work of a validator does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

MAX_COST: Final = 1 << 40  # sizes saturate here
_APART: Final = frozenset({"$defs", "definitions"})  # they count where they are referred to
_CHARS: Final = 64  # of a text that count as one part


class SchemaCost(NamedTuple):
    """`parts`: with each reference written out, each cycle once. `recursive`: a cycle of references goes around once
    for each level of the value, so that `parts` bounds nothing; also where a reference cannot be followed."""

    parts: int
    recursive: bool


def schema_cost(schema: Any, root: Any = None, prefix: str = "") -> SchemaCost:
    """Of a schema within `root` (or of its own root). References are `<prefix>#/…`."""
    root = schema if root is None else root
    done: dict[int, int] = {}
    open_nodes: set[int] = set()
    recursive = False
    stack: list[tuple[Any, list[Any] | None]] = [(schema, None)]
    while stack:
        node, children = stack.pop()
        key = id(node)
        if children is not None:  # all its children are measured
            open_nodes.discard(key)
            done[key] = min(MAX_COST, 1 + sum(_size(child, done) for child in children))
            continue
        if key in done or not isinstance(node, dict | list | tuple):
            continue
        if key in open_nodes:
            recursive = True
            continue
        open_nodes.add(key)
        children, followed = _children(node, root, prefix)
        recursive = recursive or not followed
        stack.append((node, children))
        stack.extend((child, None) for child in children)
    return SchemaCost(_size(schema, done), recursive)


def value_size(value: Any, limit: int) -> int:
    """How many parts a JSON value has, counted no further than past `limit`."""
    size = 0
    pending = [value]
    while pending and size <= limit:
        part = pending.pop()
        size += 1
        if isinstance(part, str):
            size += len(part) // _CHARS
        elif isinstance(part, dict):
            size += len(part)
            pending.extend(part.values())
        elif isinstance(part, list | tuple):
            pending.extend(part)
    return size


def _size(node: Any, done: Mapping[int, int]) -> int:
    if isinstance(node, str):
        return 1 + len(node) // _CHARS
    return done.get(id(node), 1) if isinstance(node, dict | list | tuple) else 1


def _children(node: Any, root: Any, prefix: str) -> tuple[list[Any], bool]:
    """The parts of a node, and whether its reference could be followed."""
    if not isinstance(node, dict):
        return list(node), True
    children = [value for name, value in node.items() if name not in _APART]
    reference = node.get("$ref")
    if isinstance(reference, str):
        found = _resolved(reference.removeprefix(prefix), root)
        return ([*children, found], True) if found is not None else (children, False)
    return children, "$dynamicRef" not in node and "$recursiveRef" not in node


def _resolved(reference: str, root: Any) -> Any:
    """What `#/a/b` names; None where it leads nowhere or outside."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    found = root
    for part in reference.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and len(key) < 9 and int(key) < len(found):
            found = found[int(key)]
        else:
            return None
    return found
