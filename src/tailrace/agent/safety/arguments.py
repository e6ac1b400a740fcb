"""Whether the arguments of a known program keep it harmless: its options, the texts that it takes, the places it uses.

Pure. Each function returns why that is not certain, or "". Scripts of sed, awk and jq are read in a part of each
language: what is not understood is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tailrace.agent.safety.places import Places, is_harmless_device
from tailrace.agent.safety.tables import Known
from tailrace.agent.safety.words import Word

_JOINT = re.compile(r"[=:@,](?=[/~]|\.\.)")  # behind one, a path may begin within a word
MAX_JOINTS = 20
DYNAMIC = "has an argument that is known only when it runs"

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


_CODE = {"sed": sed_reason, "jq": jq_reason, **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), awk_reason)}


class _Arguments(NamedTuple):
    """`options` by their names, `operands`, those for a script behind `--`, and the texts and places of options."""

    options: list[str]
    operands: list[Word]
    rest: list[Word]
    texts: list[Word]
    places: list[Word]


def arguments_reason(key: str, known: Known, words: Sequence[Word], places: Places, *, writes: bool = False) -> str:
    """Why these arguments may do more than the table says of the program. `writes`: it may write to its places."""
    if writes and places.read_only:
        return f"{key} may change files"
    if known.any_text:
        return _text_reason(key, known, words, places)
    found = _read_arguments(known, words)
    if denied := next((option for option in found.options if _is_denied(option, known)), ""):
        return f"{key} with {denied} is not known to be harmless"
    if any(word.dynamic and not word.listed for word in words):
        return f"{key} {DYNAMIC}"
    if not known.is_plain and any(w.globbed and (known.most is not None or w.text[0] in "*?[") for w in words):
        return f"{key} with a wildcard that may stand for an option or for many files"
    # A long option may take the next word as its value, so that each operand may be a place.
    long_value = key not in _CODE and any(re.fullmatch(r"--[^=]+", word.text) for word in words)
    no_text = long_value or not set(known.no_text.split()).isdisjoint(found.options)
    texts = 0 if no_text else known.texts
    operands = found.operands[texts:]
    if known.operand and not all(re.fullmatch(known.operand, word.text, re.DOTALL) for word in operands):
        return f"{key} with these arguments is not known to only read, build or test"
    if not known.least <= len(operands) <= (len(operands) if known.most is None else known.most):
        return f"{key} with {len(operands)} arguments is not known to only read"
    if reason := _code_reason(key, texts, found):
        return reason
    used = (*operands, *found.rest, *found.places)
    reason = next(filter(None, (place_reason(word, places, writes=writes) for word in used)), "")
    return f"{key} {reason}" if reason else ""


def _code_reason(key: str, texts: int, found: _Arguments) -> str:
    """For sed, awk and jq. Options of jq take one or two of the words before its code: each operand may be the code."""
    if key not in _CODE:
        return ""
    scripts = found.operands if key == "jq" else found.operands[:texts] or found.texts
    reason = next(filter(None, (_CODE[key](script.text) for script in scripts)), "")
    return f"{key} {reason}" if reason else ""


def place_reason(word: Word, places: Places, *, writes: bool = False) -> str:
    """Why this place may not be read or written without a question."""
    text = word.text
    if word.dynamic and not word.listed:
        return "uses a place that is known only when it runs"
    joints = [found.end() for found in _JOINT.finditer(text)]
    outside = len(joints) > MAX_JOINTS or any(places.leads_outside(text[at:]) for at in (0, *joints))
    if outside or (word.globbed and re.search(r"(^|/)\.[*?\[]", text)):
        return f"leads to {text}, outside the working directory"
    if writes and places.read_only and not is_harmless_device(text):
        return f"writes to {text}"
    if writes and places.sensitive(text):
        return f"changes {text}, on which other programs or git depend"
    return ""


def _text_reason(key: str, known: Known, words: Sequence[Word], places: Places) -> str:
    """For a program that only prints or compares its arguments. The shell itself reads what a wildcard names."""
    if known.deny and words and (words[0].dynamic or words[0].text.startswith(tuple(known.deny.split()))):
        return f"{key} {DYNAMIC}"
    outside = any(word.globbed and place_reason(word._replace(dynamic=False), places) for word in words)
    return f"{key} lists files outside the working directory" if outside else ""


def _read_arguments(known: Known, words: Sequence[Word]) -> _Arguments:
    found = _Arguments([], [], [], [], [])
    named = [name for name in f"{known.deny} {known.only}".split() if name[1:] not in [*known.values, *known.paths]]
    following = iter(words)
    for word in following:
        if word.text == "--":
            found.options.extend(["--"] if known.only is not None and not known.rest else [])
            (found.rest if known.rest else found.operands).extend(following)
        elif not re.match(r"-[^-\d]|--.", word.text):
            found.operands.append(word)
        elif word.text.startswith("--") or word.text.partition("=")[0] in named:
            name, sign, value = word.text.partition("=")
            found.options.append(name)
            found.places.extend([word._replace(text=value)] if sign else [])
        else:
            _read_letters(known, word, following, found)
    return found


def _read_letters(known: Known, word: Word, following: Iterator[Word], found: _Arguments) -> None:
    """`-rn5`: letters until one that takes a value, which is the rest of the word or the next word. What is joined to
    another letter may be a place."""
    if word.text[1] not in known.values:
        found.places.append(word._replace(text=word.text[2:]))
    for at, letter in enumerate(word.text[1:], 1):
        if not letter.isalnum():
            found.places.append(word._replace(text=word.text[at:].lstrip("=")))
            return
        if not letter.isdigit():
            found.options.append(f"-{letter}")
        if letter in known.values + known.paths:
            value = word._replace(text=word.text[at + 1 :]) if word.text[at + 1 :] else next(following, Word(""))
            (found.texts if letter in known.values else found.places).append(value)
            return


def _is_denied(option: str, known: Known) -> bool:
    """Whether the option makes the program unknown. A long option may be abbreviated, and written with one dash."""
    if known.only is not None and option not in known.only.split():
        return True
    denied = known.deny.split()
    if option in denied or (option.startswith("--") and option[1:] in denied):
        return True
    return len(option) > 2 and any(name.startswith(option) for name in denied if name.startswith("--"))
