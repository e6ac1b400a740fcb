"""The programs that a command line may start without a question: those that only read, and those that build and test.

The rows are in `tables.toml`. A program that is in neither table asks, and so does a known one with an option that
makes it write elsewhere, start a program or send something. A program that builds or tests runs the project's own code,
which is not judged here. So none that fetches packages, deploys, or takes code from the command line is in the table.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from tailrace.agent.safety.words import names


class Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the arguments of one program are read. Options are named as they are written, with blanks between them."""

    deny: str = ""  # options that make it unknown again; an abbreviation of a long one counts
    only: str | None = None  # where given, the only options that are known
    values: str = ""  # letters of options whose value is text
    paths: str = ""  # letters of options whose value is a place
    texts: int = 0  # how many of the first operands are text, not places
    no_text: str = ""  # options with which no operand is text
    any_text: bool = False  # no argument is a place
    operand: str = ""  # the pattern that each operand matches
    least: int = 0  # operands
    most: int | None = None
    rest: bool = False  # what follows `--` is for the project's script

    @property
    def is_plain(self) -> bool:
        """Whether it is known with any option and any number of operands."""
        return not self.deny and self.only is None and self.most is None


class Wrapper(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A program that starts the one in its arguments, which is judged as if it stood alone."""

    flags: str = ""
    values: str = ""  # letters of options with a value, which is no place
    operands: int = 0  # of its own, before the program
    builds: bool = False  # only a program that builds or tests may stand behind it


class _Row(Known, frozen=True, forbid_unknown_fields=True, kw_only=True):
    programs: str
    tools: tuple[str, ...] = ("",)


class _Tables(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    target: tuple[str, ...]
    suffix: str
    reports_version: str
    version_lines: frozenset[str]
    variables: str
    lists_names: dict[str, frozenset[str]]
    keeps_lines: dict[str, str]
    wrappers: dict[str, Wrapper]
    reads: tuple[_Row, ...]
    builds: tuple[_Row, ...]


_TABLES = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=_Tables)


_SUFFIX = f"(?:[-_:.](?:{'|'.join(_TABLES.suffix.split())}))"
_TARGET = f"(?:{'|'.join(_TABLES.target).replace('<suffix>', _SUFFIX)})"


def _by_program(rows: tuple[_Row, ...]) -> dict[str, Known]:
    return {
        f"{tool} {program}".lstrip(): msgspec.structs.replace(row, operand=row.operand.replace("<target>", _TARGET))
        for row in rows
        for tool in row.tools
        for program in row.programs.split()
    }


READS = _by_program(_TABLES.reads)
BUILDS = _by_program(_TABLES.builds)

WRAPPERS = _TABLES.wrappers
REPORTS_VERSION = names(_TABLES.reports_version)
VERSION_LINES = _TABLES.version_lines
LISTS_NAMES = _TABLES.lists_names
KEEPS_LINES = _TABLES.keeps_lines
VARIABLES = names(_TABLES.variables)
PATH_VARIABLES = frozenset({"PYTHONPATH"})  # directories that hold the project's code
PAGERS = frozenset({"PAGER", "GIT_PAGER"})  # may be `cat`
SETS_VARIABLES = frozenset({"export", "local", "declare", "typeset", "readonly", "unset", "read"})
# Programs that print nothing: what they are redirected to is emptied.
SILENT = frozenset({"", ":", "true", "false", "test", "[", "sleep", "cd", "set", "mkdir", "touch", *SETS_VARIABLES})
