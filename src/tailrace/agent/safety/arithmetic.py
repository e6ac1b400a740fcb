"""Whether bash may evaluate a value as arithmetic that the line does not show: `n=$(cat f); echo $((n))`.

Pure. bash expands the subscripts in such a value, so that a file with `a[$(rm x)]` starts a program. Evaluated are
`((…))`, numeric comparisons in `[[…]]`, subscripts, `${x:offset}`, and the names behind `-v` and in `${!x}`. A variable
is untrusted where the line sets it to anything but a number; its place in the line does not count, as lines loop.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tailrace.agent.safety.words import SimpleCommand, names

if TYPE_CHECKING:
    from tree_sitter import Node

_SETS_NAMED = names("read declare typeset local export readonly")
_NUMBER = re.compile(r"""["'(]?(?:[\d.:\s{},-]|\$[?#]|\$\{#\w+(?:\[[@*]\])?\})*["')]?""")
_EVALUATES = re.compile(rb"[$`\[]|\(\(")  # no other line evaluates a value
_NAME = re.compile(r"[A-Za-z_]\w*")
_SET_BY_BASH = re.compile(r"_|REPLY|PWD|OLDPWD|DIRSTACK|MAPFILE|BASH\w*")
# Quotes, escapes and a lone $ can hide a substitution from the grammar.
_HIDES = re.compile(r"['\\`]|\$(?![\w{(#?@*$])")
_COMPARES = re.compile(r"-(?:eq|ne|lt|le|gt|ge|v|R)\b")
# `test` has no arithmetic. Its `-v` evaluates a name, and an expansion may become that operator: `n="-v x"; [ $n ]`.
_TESTS = re.compile(r"(?:^|\s)(?:test|\[)\s")
_MAY_TEST_NAME = re.compile(r"""-["'\\]*[vR]|\$\S+\s+["']?\$""")
_QUOTED = re.compile(r"""'[^']*'|"[^"\\]*\"""")
_OFFSET = re.compile(r"\$\{[\w@*]+(?:\[[^]]*\])?:(?![-=+?])")
_INDIRECT = re.compile(r"\$\{!\w+(?:\[[^]@*].*)?(?![\w@*\[])")


def arithmetic_reason(root: Node, source: bytes, commands: Sequence[SimpleCommand]) -> str:
    """Why the line may evaluate a value that it does not show; "" where it does not."""
    if not _EVALUATES.search(source):
        return ""
    setting = [command.words for command in commands if any(word.text in _SETS_NAMED for word in command.words)]
    untrusted = {word.text.partition("=")[0] for words in setting for word in words}
    nodes = list(_below(root))
    untrusted.update(name for node in nodes for name in _set_untrusted(node, source))
    for node in nodes:
        evaluated = _evaluated(node, source)
        if evaluated is not None and (
            _HIDES.search(evaluated)
            or any(name in untrusted or _SET_BY_BASH.fullmatch(name) for name in _NAME.findall(evaluated))
            or any(below.type == "command_substitution" for below in _below(node))
        ):
            return "it evaluates a value that is known only when it runs as arithmetic or as a name"
    return ""


def _below(node: Node) -> Iterator[Node]:
    waiting = [node]
    while waiting:
        yield (found := waiting.pop())
        waiting += found.children


def _text(node: Node, source: bytes) -> str:
    return source[node.start_byte : node.end_byte].decode("utf-8", "replace")


def _set_untrusted(node: Node, source: bytes) -> list[str]:
    """The names that this node sets to anything but numbers."""
    match node.type:
        case "variable_assignment":
            name, values = node.child_by_field_name("name"), node.children_by_field_name("value")
        case "for_statement":
            name, values = node.child_by_field_name("variable"), node.children_by_field_name("value")
        case "expansion" if any(child.type in (":=", "=") for child in node.children):
            return _NAME.findall(_text(node, source))[:1]
        case _:
            return []
    trusted = all(value.type == "arithmetic_expansion" or _NUMBER.fullmatch(_text(value, source)) for value in values)
    return [] if trusted or name is None else _NAME.findall(_text(name, source))[:1]


def _evaluated(node: Node, source: bytes) -> str | None:
    """The part of this node that bash evaluates as arithmetic or as a name; None where there is none."""
    text = _text(node, source)
    match node.type:
        case "arithmetic_expansion":
            return text
        case "compound_statement":
            return text if text.startswith("((") else None
        case "c_style_for_statement":
            body = node.child_by_field_name("body")
            return text[: body.start_byte - node.start_byte] if body else text
        case "test_command" if text.startswith(("[[", "((")):
            return text if text.startswith("((") or _COMPARES.search(text) else None
        case "test_command" | "command":
            is_test = _TESTS.search(re.sub(r"[\"'\\]", "", text))
            splits = re.search(r"[$\\`]", _QUOTED.sub("", text))
            return text if is_test and (splits or _MAY_TEST_NAME.search(text)) else None
        case "subscript":
            return text.partition("[")[2]
        case "array":
            return text if "]=" in text else None
        case "expansion":
            offset = _OFFSET.match(text)
            return "_" if _INDIRECT.match(text) else text[offset.end() :] if offset else None
        case _:
            return None
