"""Templates in a command line: each value becomes one word of the command, never shell code.

Pure. A value is quoted for the shell where its template stands. That holds only where the template stands by itself: in
quotes, in a comment, in backticks or in a here-document the quotes that are added would mean something else, so a
template there is refused.
"""

from __future__ import annotations

import re
import shlex

from tailrace.flows.language.expressions import ExpressionError, Scope, evaluate
from tailrace.flows.language.templates import as_text, parts_of

# `eval x {{y}}`, `sh -c {{y}}`: the word is read once more, without its quotes.
_READS_CODE = re.compile(r"\b(eval|trap|alias|ssh|su|watch)\s[^;&|\n]*$|\s-[a-zA-Z]*[ceE][ \t]*$")
ALONE = "a command cannot be a template alone: write the program, then templates for its arguments"


def invalid_template(command: str) -> str:
    """Why the templates of this command cannot be filled in; empty where they can. Raises `ExpressionError`."""
    parts = parts_of(command)
    if len(parts) == 1 and not isinstance(parts[0], str):
        return ALONE
    before = ""
    for part in parts:
        if isinstance(part, str):
            before += part
            continue
        if not before.strip():
            return ALONE
        if _READS_CODE.search(before):
            return "a template that a shell would read as code: put it into a command of its own"
        if where := _unquotable(before):
            return f"a template {where}: write it without, since its value is quoted as one word of the command"
        before += "x"
    return ""


def fill_command(command: str, scope: Scope, *, strict: bool) -> str:
    """The command line with each value quoted. Raises `ExpressionError`."""
    if problem := invalid_template(command):
        raise ExpressionError(problem)
    values = (
        part if isinstance(part, str) else _word(evaluate(part, scope, strict=strict)) for part in parts_of(command)
    )
    return "".join(values)


def _word(value: object) -> str:
    return shlex.quote(as_text(value).replace("\0", ""))


def _unquotable(text: str) -> str:
    """Where the end of this text is, if quotes that are added there mean something else than quotes."""
    quote = ""
    at = 0
    while at < len(text):
        char = text[at]
        if char == "\\" and quote != "'":
            at += 1
            if at == len(text):
                return "after a backslash"
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"`":
            quote = char
        elif char == "#" and (at == 0 or text[at - 1] in " \t\n;&|("):
            end = text.find("\n", at)
            if end < 0:
                return "in a comment"
            at = end
        elif text.startswith("<<", at):
            return "after <<"
        at += 1
    if quote:
        return "in backticks" if quote == "`" else "in quotes"
    return "after a $" if text.endswith("$") else ""
