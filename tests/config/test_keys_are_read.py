"""Every key that the config accepts is read by some code (M155)."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import msgspec

import tailrace
from tailrace.config import sections
from tailrace.plugins.installed import platforms

SOURCE = Path(tailrace.__file__).parent


def unread(names: set[str]) -> set[str]:
    """Those that are no attribute which any code outside the declarations reads, by name, in a pattern or by a literal
    name. A module that holds none of the rest need not be parsed."""
    left = set(names)
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path != Path(inspect.getfile(sections)) and any(name in text for name in left):
            left -= names_read_in(text)
    return left


def names_read_in(text: str) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Attribute(attr=name, ctx=ast.Load()):
                names.add(name)
            case ast.MatchClass(kwd_attrs=given):
                names.update(given)
            case ast.Constant(value=str(name)):
                names.add(name)
            case _:
                pass
    return names


def test_every_key_of_the_config_is_read_by_some_code_M155() -> None:
    """A name that another struct has as well passes for it: the test finds what nothing reads, not who reads it."""
    kinds = [
        *(kind for kind in vars(sections).values() if inspect.isclass(kind) and kind.__module__ == sections.__name__),
        *(found.integration.settings for found in platforms().values()),
    ]
    declared = [
        (kind.__name__, field.name)
        for kind in kinds
        if kind is not None and issubclass(kind, msgspec.Struct)
        for field in msgspec.structs.fields(kind)
    ]
    assert len(declared) > 60
    not_read = unread({name for _, name in declared})
    assert [key for key in declared if key[1] in not_read] == []


def test_a_name_that_nothing_reads_is_found() -> None:
    assert unread({"model", "no_such_key"}) == {"no_such_key"}
