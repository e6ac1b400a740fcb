"""Scripts of sed, awk and jq in the arguments of a command: whether they do no more than read and print.

Pure. Each function returns why a script is not known to be harmless, or "". They are readers of a part of each
language: what they do not understand is not known.
"""

from __future__ import annotations

import re

# A bracket holds no delimiter: versions of sed differ about one.
_SED_COMMAND = re.compile(
    r"""
    \s*
    (?: ADDRESS (?: ,ADDRESS )? \s*!?\s* )?
    (?: [dDgGhHnNpPxz={}] | [qQ]\d*
      | s(?P<d>[/|,\#:@!])
        (?: (?!(?P=d))[^\\\n\[] | \\. | \[\^?\]? (?: \[:\w+:\] | (?!(?P=d))[^]\n\[] )* \] )*
        (?P=d) (?: (?!(?P=d))[^\\\n] | \\. )* (?P=d) [gpiI0-9]*
    )
    \s* (?: [;\n]\s* | (?=\}) | (?<=\{) | $ )
    """.replace(
        "ADDRESS",
        r"(?: \d+(?:~\d+)? | \$ | [+~]\d+ | /(?: [^/\\\n\[] | \\. | \[\^?\]? (?: \[:\w+:\] | [^]/\n\[] )* \] )*/I? )",
    ),
    re.DOTALL | re.VERBOSE,
)
# A pipe and a redirection stand behind `print`; ARGV names further files.
_AWK_ACTS = re.compile(r"\bgetline\b|\bsystem\b|@|\bARG[VC]\b|\bENVIRON\b")
_JQ_READS = re.compile(r"\b(?:import|include|env|input_filename)\b|\$ENV\b|\$__prog")


def sed_reason(script: str) -> str:
    at = 0
    while at < len(script):
        found = _SED_COMMAND.match(script, at)
        if found is None or found.end() == at:
            return "has a script that may write or start programs"
        at = found.end()
    return ""


def awk_reason(code: str) -> str:
    printing = code.replace("||", "").partition("print")[2]
    acts = _AWK_ACTS.search(code) or re.search(r"[|>]", printing)
    return "has code that may write or start programs" if acts else ""


def jq_reason(code: str) -> str:
    return "has code that reads more than its input" if _JQ_READS.search(code) else ""
