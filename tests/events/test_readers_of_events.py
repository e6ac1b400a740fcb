"""Which modules read a log by its events. Every other one maps the changes of `runs.view`.

A new event then touches `events`, the journal's fold and the view, and one module more where it decides something.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from tailrace import events
from tailrace.agent import fork
from tailrace.events import AnyEvent

SOURCE = Path(events.__file__).parents[1]
NAMES = frozenset(kind.__name__ for kind in get_args(AnyEvent))
MANY = 3  # events that one function tells apart: one or two are a fact that it looks for
EVERY_EVENT = {
    "runs/view/run_view.py": "the view itself",
    "journal/fold.py": "the state that is stored, and what compaction keeps",
    "agent/turn.py": "what is due in a turn",
    "flows/engine/plan.py": "what is due in an instance",
    "agent/fork.py": "what a fork copies",
}
SOME_EVENTS = {
    "providers/open_attempt.py": "what an attempt that was under way has on record",
    "calls/call_log.py": "what an earlier process has logged, and whether its answer can be continued",
    "runs/delta_log.py": "what a resumed answer has on record; it writes the log",
    "journal/viewed_lines.py": "which stored lines a viewer may have",
    "app/timeline/run_overview.py": "sums over the facts of a run",
}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def events_named_by(module: ast.Module) -> dict[str, str]:
    """The module's own names of events, as its imports have them."""
    imports = [node for node in ast.walk(module) if isinstance(node, ast.ImportFrom)]
    taken = [each for node in imports if (node.module or "").startswith("tailrace.events") for each in node.names]
    return {name.asname or name.name: name.name for name in taken if name.name in NAMES}


def classes_tested(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.MatchClass(cls=cls):
            yield cls
        case ast.Call(func=ast.Name("isinstance"), args=[_, cls]):
            yield cls
        case ast.Compare(ops=[ast.Is() | ast.IsNot()], comparators=[cls]):
            yield cls
        case _:
            pass


def events_told_apart(function: ast.AST, known: dict[str, str]) -> set[str]:
    found: set[str] = set()
    for cls in (cls for node in ast.walk(function) for cls in classes_tested(node)):
        for node in ast.walk(cls):
            match node:
                case ast.Name(name) if name in known:
                    found.add(known[name])
                case ast.Attribute(value=ast.Name("events"), attr=name) if name in NAMES:
                    found.add(name)
                case _:
                    pass
    return found


def test_only_these_modules_read_a_log_by_its_events() -> None:
    readers = set()
    for name, module in modules():
        known = events_named_by(module)
        functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        if any(len(events_told_apart(function, known)) >= MANY for function in functions):
            readers.add(name)
    assert readers == {*EVERY_EVENT, *SOME_EVENTS}


def test_a_new_event_fails_the_type_check_wherever_it_is_forgotten() -> None:
    """Every `match` of these modules over three events or more ends in `assert_never`."""
    checked = set()
    for name, module in modules():
        known = events_named_by(module)
        for node in ast.walk(module) if name in EVERY_EVENT else ():
            if isinstance(node, ast.Match) and len(events_told_apart(node, known)) >= MANY:
                checked.add(name)
                assert "assert_never(" in ast.unparse(node.cases[-1]), f"{name}:{node.lineno}"
    assert checked == EVERY_EVENT.keys()


def test_a_fork_ignores_a_kind_of_events_whole_or_not_at_all() -> None:
    """Where a reader takes some of a kind and ignores the kind, the next event of it passes the type check unseen."""
    module = ast.parse(Path(fork.__file__).read_text(encoding="utf-8"))
    known = events_named_by(module)
    ignored: set[str] = set()
    taken: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Match) and "assert_never(" in ast.unparse(node.cases[-1]):
            for case in node.cases:
                taken |= events_told_apart(case.pattern, known)
                match case.guard:
                    case ast.Call(func=ast.Name("isinstance"), args=[_, ast.Name(alias)]):
                        ignored |= {kind.__name__ for kind in get_args(vars(fork)[alias])}
                    case _:
                        pass
    assert ignored
    assert not ignored & taken
    assert ignored | taken == NAMES
