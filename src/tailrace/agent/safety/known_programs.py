"""Whether one program start is known: its program stands in a table, and its arguments keep it harmless.

Pure. Each function returns why a person must be asked, or "". That is the answer wherever a start cannot be read for
certain: a word that only the run decides, a place outside, an option that is not expected.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from typing import NamedTuple

from tailrace.agent.safety import tables
from tailrace.agent.safety.arguments import DYNAMIC, arguments_reason, place_reason
from tailrace.agent.safety.places import Places, is_harmless_device
from tailrace.agent.safety.words import Redirect, SimpleCommand, Word

_SYSTEM_PROGRAMS = ("", "/bin", "/usr/bin", "/usr/local/bin")
_PROJECT_PROGRAMS = re.compile(r"(?:\./)?(?:\.?venv/bin|node_modules/\.bin|vendor/bin)")
_ACTIVATE = re.compile(r"(?:\./)?\.?venv/bin/activate")
_SET_OPTION = re.compile(r"-[eux]*o?|\+[eux]|pipefail|errexit|nounset")
_LINE_VARIABLE = re.compile(r"(?!npm_|.*_proxy$)[a-z_]\w*|[A-Z]")
_WRAPPING = frozenset(key.split()[0] for key in tables.WRAPPERS)
_CHANGES_NAMES = ("-exec", "-printf", "-ls", "--format", "--path", "--replace", "-r")
FOUND_NAME = Word("found", dynamic=True, listed=True)  # a name below the directory that find and its like print


class ProgramStart(NamedTuple):
    """One program with its arguments, and the command of the line that starts it."""

    words: Sequence[Word]
    command: SimpleCommand
    places: Places


def unknown_reason(start: ProgramStart, *, only_builds: bool = False) -> str:
    """Why a person must be asked about this start; "" where it is known to be harmless. `only_builds`: only a program
    that builds or tests counts as known here."""
    first, *words = start.words
    if first.dynamic or first.globbed:
        return "the program's name is known only when it runs"
    name, is_installed = _program_name(first.text)
    only_builds |= not is_installed
    if not only_builds and name in _SPECIAL:
        return _SPECIAL[name](words, start)
    if len(words) == 1 and not only_builds and _reports_version(name, words[0].text):
        return ""
    if name == "python" and len(words) > 1 and words[0].text == "-m":
        module = words[1].text
        name = f"python -m {module}" if f"python -m {module}" in tables.BUILDS else module
        words, only_builds = words[2:], True
    if name not in tables.BUILDS and name not in tables.READS and words:
        name, words = f"{name} {words[0].text}", words[1:]
    if (known := tables.BUILDS.get(name)) is not None:
        return arguments_reason(name, known, words, start.places, writes=True)
    if (known := tables.READS.get(name)) is None or only_builds:
        return f"{name if name in tables.READS else first.text} is not known to only read, build or test"
    return arguments_reason(name, known, words, start.places)


def _program_name(text: str) -> tuple[str, bool]:
    """The name by which the tables have a program, and whether it is installed and no tool of the project. A path to
    any other program is a name that no table has."""
    directory, name = posixpath.split(text)
    name = re.sub(r"(?<=^python)[23](\.\d+)?$|(?<=^pip)3$", "", name)
    if directory in _SYSTEM_PROGRAMS:
        return name, True
    return name if _PROJECT_PROGRAMS.fullmatch(directory) or text in ("./gradlew", "./mvnw") else text, False


def _reports_version(name: str, option: str) -> bool:
    return (name in tables.REPORTS_VERSION and option == "--version") or f"{name} {option}" in tables.VERSION_LINES


# ── programs with a way of their own ─────────────────────────────────────────────────────────────────────────


def _git_reason(words: Sequence[Word], start: ProgramStart) -> str:
    places, rest = start.places, list(words)
    if _reports_version("git", " ".join(_texts(words))):
        return ""
    while rest and rest[0].text in ("--no-pager", "-P", "-C", "--no-optional-locks"):
        if rest.pop(0).text == "-C" and rest:
            if reason := place_reason(rest[0], places):
                return f"git {reason}"
            places = places.after_cd(rest.pop(0).text)
    key = f"git {rest[0].text}" if rest and not rest[0].dynamic else "git"
    if (known := tables.READS.get(key)) is None:
        return f"{key} is not known to only read"
    return arguments_reason(key, known, rest[1:], places)


def _find_reason(words: Sequence[Word], start: ProgramStart) -> str:
    """Each `-exec` is a program start of its own."""
    kept: list[Word] = []
    following = iter(words)
    for word in following:
        if word.text not in ("-exec", "-execdir"):
            kept.append(word)
            continue
        inner: list[Word] = []
        for part in following:
            if part.text in (";", "+"):
                break
            inner.append(FOUND_NAME if part.text == "{}" else part)
        if not inner or inner[0].text == "find":
            return "find runs a program that is not known"
        if reason := unknown_reason(start._replace(words=inner)):
            return reason
    return arguments_reason("find", tables.READS["find"], kept, start.places)


def _tee_reason(words: Sequence[Word], start: ProgramStart) -> str:
    """tee writes what it reads. What it is fed must be known to print something: an empty input empties the file."""
    command = start.command
    reason = arguments_reason("tee", tables.Known(only="-a --append -i"), words, start.places, writes=True)
    if reason or any(word.text in ("-a", "--append") for word in words):
        return reason
    fed = [redirect.target.text for redirect in command.redirects if redirect.operator.startswith("<")]
    has_input = command.name == "tee" and not {"", "/dev/null"} & set(fed)
    prints = bool(fed) or (bool(command.upstream) and not prints_nothing(command.upstream[-1]))
    return "" if has_input and prints else "tee may empty a file"


def _source_reason(words: Sequence[Word], _start: ProgramStart) -> str:
    activates = len(words) == 1 and _ACTIVATE.fullmatch(words[0].text) and not words[0].dynamic
    return "" if activates else "reads commands from a file"


def _set_variables_reason(words: Sequence[Word], start: ProgramStart) -> str:
    """`export`, `read` and their like. `export x=1` has the variable among the command's assignments."""
    name = start.words[0].text
    if not words and not start.command.assignments:
        return f"{name} prints the environment"
    for word in words:
        variable = word.text.partition("=")[0]
        if word.dynamic:
            return f"{name} {DYNAMIC}"
        if word.text not in ("-r", "-a", "-A", "-g") and not _LINE_VARIABLE.fullmatch(variable):
            return f"{name} {variable} sets what programs may read"
    return ""


def _set_reason(words: Sequence[Word], _start: ProgramStart) -> str:
    known = words and all(_SET_OPTION.fullmatch(word.text) and not word.dynamic for word in words)
    return "" if known else "set is used for more than to stop at errors or to trace"


_SPECIAL = {
    "set": _set_reason,
    "git": _git_reason,
    "find": _find_reason,
    "tee": _tee_reason,
    "source": _source_reason,
    ".": _source_reason,
    **dict.fromkeys(tables.SETS_VARIABLES, _set_variables_reason),
}


# ── redirections and variables ───────────────────────────────────────────────────────────────────────────────


def redirect_reason(redirect: Redirect, command: SimpleCommand, places: Places) -> str:
    """A redirection into the working directory writes a file as `write_file` does, and is known; one that empties a
    file is not."""
    operator, target = redirect
    if operator in ("<<", "<<<") or target.text == "-" or (target.text.isdigit() and "&" in operator):
        return ""
    writes = ">" in operator
    if reason := place_reason(target, places, writes=writes):
        return f"a redirection {reason}"
    if is_harmless_device(target.text) or not writes or ">>" in operator:
        return ""
    read = [word.text for each in (command, *command.upstream[-3:]) for word in each.words[1:]]
    read += [other.target.text for other in command.redirects if other.operator == "<"]
    return f"empties {target.text}" if prints_nothing(command) or target.text in read else ""


def prints_nothing(command: SimpleCommand) -> bool:
    """Whether the output of this command is empty for certain, or made of what is: `cat /dev/null | tee x`."""
    return any(map(_is_silent, (command, *command.upstream[:1], *command.upstream[-1:])))


def _is_silent(command: SimpleCommand) -> bool:
    name, texts = command.name, _texts(command.words[1:])
    starts_other = bool(wrapper_of(command.words)) or name in ("bash", "sh")
    if starts_other and any(text.split(" ")[0] in tables.SILENT for text in texts):
        return True
    read = [redirect.target.text for redirect in command.redirects if redirect.operator == "<"]
    if name in tables.SILENT or "/dev/null" in (*texts, *read):
        return True
    says_nothing = not any(text for text in texts if text != "-n") and not any(word.dynamic for word in command.words)
    return name in ("echo", "printf") and says_nothing


def variable_reason(name: str, value: Word, places: Places, *, exported: bool) -> str:
    """Why setting this variable is not known to be harmless: other programs may read it."""
    if name in tables.VARIABLES or (name in tables.PAGERS and value == Word("cat")):
        return ""
    if name in tables.PATH_VARIABLES:
        outside = value.dynamic or any(places.leads_outside(part or ".") for part in value.text.split(":"))
        return f"sets {name} to a place outside" if outside else ""
    if not exported and _LINE_VARIABLE.fullmatch(name):
        return ""
    return f"sets {name}, which programs may read"


# ── programs that take what another one prints or is given ───────────────────────────────────────────────────


def lists_names(upstream: Sequence[SimpleCommand]) -> bool:
    """Whether what these commands print, one behind the other, are names below the directory."""
    if not upstream:
        return False
    first, *filters = upstream
    texts = _texts(first.words)
    wanted = tables.LISTS_NAMES.get(" ".join(texts[:2]), tables.LISTS_NAMES.get(first.name))
    lists = wanted is not None and (not wanted or not wanted.isdisjoint(texts))
    return lists and not any(text.startswith(_CHANGES_NAMES) for text in texts[1:]) and all(map(_keeps_lines, filters))


def _keeps_lines(command: SimpleCommand) -> bool:
    letters = tables.KEEPS_LINES.get(command.name)
    if letters is None:
        return False
    options = [text for text in _texts(command.words[1:]) if text.startswith("-")]
    others = [text for text in _texts(command.words[1:]) if not text.startswith("-")]
    known = all(set(option[1:]) <= set(letters) for option in options)
    return known and (len(others) <= 1 if command.name == "grep" else all(text.isdigit() for text in others))


def wrapper_of(words: Sequence[Word]) -> str:
    """The name of the wrapper that these words begin with, at most three words; "" where there is none."""
    if not words or words[0].text not in _WRAPPING:
        return ""
    names = _texts(words[:3])
    for key in (" ".join(names), " ".join(names[:2]), *names[:1]):
        if key in tables.WRAPPERS:
            return key
    return ""


def _texts(words: Sequence[Word]) -> list[str]:
    return [word.text for word in words]
