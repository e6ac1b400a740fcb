"""Templates in a command line: each value becomes one word of the command, never shell code.

Pure. A value is quoted for the shell where its template stands. That holds only where the template stands by itself: in
quotes, in a comment, in backticks or in a here-document the quotes that are added would mean something else, so a
template there is refused. So is one in arithmetic, where bash runs the `$(…)` in a value such as `a[$(id)]`.
"""

from __future__ import annotations

import re
import shlex

from tailrace.flows.language.expressions import ExpressionError, Scope, evaluate
from tailrace.flows.language.templates import as_text, parts_of

# `eval x {{y}}`, `sh -c {{y}}`, `let {{y}}`: the word is read once more, without its quotes.
_READS_CODE = re.compile(
    r"\b(eval|trap|alias|ssh|su|watch|let|declare|typeset|unset|read)\s[^;&|\n]*$"
    r"|(\b(printf|test)|\[)\s+-v[ \t]*$"
    r"|\s-[a-zA-Z]*[ceE][ \t]*$"
)
# Where the next word is the program: at the start of a command, after assignments, or behind a program that starts one.
_AT_PROGRAM = re.compile(
    r"(?:^|[;&|({\n])\s*"
    r"(?:(?:then|do|else|elif|if|while|until|exec|command|builtin|env|nohup|nice|time|sudo|doas|xargs|!)\s+"
    r"|\w+=[^\s$(`]*\s+)*$"
)
# A here-document, arithmetic, and what evaluates its operands as arithmetic. Where they end is not looked for.
_NO_WORDS_AFTER = ("<<", "((", "[[", "$[", "${")
_PLAIN_VARIABLE = re.compile(r"\$\{\w+\}")
ALONE = "a template cannot choose the program: write the program, then templates for its arguments"


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
        if _AT_PROGRAM.search(before):
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
        part if isinstance(part, str) else shlex.quote(as_text(evaluate(part, scope, strict=strict)).replace("\0", ""))
        for part in parts_of(command)
    )
    return "".join(values)


def _unquotable(text: str) -> str:
    """Where the end of this text is, if quotes that are added there mean something else than quotes."""
    quote = ""  # its last character closes it
    at = 0
    while at < len(text):
        char = text[at]
        if char == "\\" and quote != "'":
            at += 1
            if at == len(text):
                return "after a backslash"
        elif quote:
            nested = quote == '"' and text.startswith(("$(", "`", "${"), at)
            if nested and not _PLAIN_VARIABLE.match(text, at):  # quotes in there begin anew
                return "after a substitution in quotes"
            quote = "" if char == quote[-1] else quote
        elif text.startswith("$'", at):
            quote = "$'"  # a backslash escapes in it
            at += 1
        elif char in "'\"`":
            quote = char
        elif char == "#" and (at == 0 or text[at - 1] in " \t\n;&|("):
            end = text.find("\n", at)
            if end < 0:
                return "in a comment"
            at = end
        elif text.startswith(_NO_WORDS_AFTER, at) and not _PLAIN_VARIABLE.match(text, at):
            return f"after {text[at : at + 2]}"
        at += 1
    if quote:
        return "in backticks" if quote == "`" else "in quotes"
    return "after a $" if text.endswith("$") else ""
