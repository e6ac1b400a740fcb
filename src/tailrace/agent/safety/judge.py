"""Which command lines run at once, which ask a person first, and which are refused always.

Pure. Works on the programs that `shell.parse_shell` finds, not on the text. A line runs at once only if every command
in it is known (`tables`) or allowed by a pattern of the config, and if it uses no place outside the working directory.
Everything else asks: what is not understood is not known. The tables are no sandbox: a container is the real boundary.
"""

from __future__ import annotations

import fnmatch
import re
import shlex
from collections.abc import Sequence
from typing import Literal, NamedTuple

from tailrace.agent.safety.arguments import place_reason
from tailrace.agent.safety.hard_list import (
    argument_lines,
    feeds_a_shell,
    hard_reason,
    printed_text,
    redirect_hard_reason,
    suffix_starts,
)
from tailrace.agent.safety.known_programs import (
    FOUND_NAME,
    ProgramStart,
    lists_names,
    redirect_reason,
    unknown_reason,
    variable_reason,
    wrapper_of,
)
from tailrace.agent.safety.places import Places
from tailrace.agent.safety.shell import parse_shell
from tailrace.agent.safety.tables import SETS_VARIABLES, WRAPPERS
from tailrace.agent.safety.words import SimpleCommand, Word

Verdict = Literal["allow", "ask", "refuse"]
# bash evaluates the subscript in a variable's name, and a value once more where it is a number: `let 'a[$(rm x)]'`.
_SUBSCRIPT = re.compile(r"\[[^\]]*(?:\$\(|`)")
_TAKES_NAMES = frozenset({"test", "[", "printf", "read", "unset", "declare", "typeset", "local", "export", "readonly"})
_SHELL_LINE = frozenset({"-c", "-ec", "-euc"})
MAX_NESTED_CHARS = 1_000_000  # of a line and of all lines in it: `bash -c`, `eval`
MAX_DEPTH = 12
MAX_WRAPPERS = 8

_MORE_THAN_WORDS = re.compile(r"[\n\r;&|<>()$`\\{}#!]")
_WILDCARDS = ("*", "?", "[")


def is_allowed(words: Sequence[Word], patterns: Sequence[str]) -> bool:
    """Whether a pattern of `approvals.allow` matches this command, word by word: `rm -rf build*` has three words, and
    so has each command that it allows. Other commands of the line, redirections and variables are judged apart, and
    a word that only the run decides is not matched (M152)."""
    return not any(word.dynamic for word in words) and any(_matches(words, pattern) for pattern in patterns)


def check_patterns(patterns: Sequence[str]) -> None:
    """Raises `ValueError` for a pattern that no line can match."""
    for pattern in patterns:
        if _MORE_THAN_WORDS.search(pattern):
            raise ValueError(f"{pattern!r} is more than one command in words and wildcards; it would match nothing")
        if not _plain_words(pattern):
            raise ValueError(f"{pattern!r} has no words, or a quote that is not closed")


def _plain_words(pattern: str) -> list[str] | None:
    """The words of a pattern; None where a quote is not closed."""
    try:
        return shlex.split(pattern)
    except ValueError:
        return None


def _matches(words: Sequence[Word], pattern: str) -> bool:
    wanted = _plain_words(pattern)
    if wanted is None or len(wanted) != len(words):
        return False
    return all(_word_matches(word, part) for word, part in zip(words, wanted, strict=True))


def _word_matches(word: Word, pattern: str) -> bool:
    """A wildcard stands for part of one word. It never stands for an option, for a home, for an absolute path or for a
    way out by `..`, and a glob of the line matches only where the pattern has the same: what it becomes is known only
    when it runs."""
    if word.text == pattern:
        return True
    if word.globbed or (word.text.startswith(("-", "~", "/")) and pattern.startswith(_WILDCARDS)):
        return False
    if ".." in word.text.split("/"):
        return False
    return fnmatch.fnmatchcase(word.text, pattern)


class Assessment(NamedTuple):
    verdict: Verdict
    reason: str = ""


def assess(line: str, places: Places = Places(), allow: Sequence[str] = ()) -> Assessment:  # noqa: B008 - immutable
    """What is to be done about this line, which would run in these places. `allow` are the patterns of the config."""
    judge = _Judge(places, allow)
    judge.judge_line(line, 0)
    if judge.refusal:
        return Assessment("refuse", judge.refusal)
    return Assessment("ask", judge.question) if judge.question else Assessment("allow")


class _Judge:
    """One line with all that it nests. The total that it reads is bounded: a nested line can hold others (L140).
    `question` and `refusal` are the first reasons found; a refusal counts more."""

    def __init__(self, places: Places, allow: Sequence[str]) -> None:
        self._places, self._allow = places, allow
        self._unread_chars = MAX_NESTED_CHARS
        self.question = "it runs outside the working directory" if places.leads_outside(".") else ""
        self.refusal = ""

    def judge_line(self, line: str, depth: int) -> None:
        self._unread_chars -= len(line)
        if self._unread_chars < 0 or depth > MAX_DEPTH:
            self._ask("cannot be judged: it is too long or nested too deeply")
            return
        parsed = parse_shell(line)
        if parsed.fork_bomb:
            self.refusal = self.refusal or "a fork bomb"
        if parsed.unclear:
            self._ask(f"cannot be judged: {parsed.unclear}")
        for command in parsed.commands:
            self._judge_command(command, depth)
        if any(feeds_a_shell(command.words) for command in parsed.commands):
            self._refuse_documents(parsed.commands, depth)

    def _ask(self, reason: str) -> None:
        self.question = self.question or reason

    def _judge_command(self, command: SimpleCommand, depth: int) -> None:
        for redirect in command.redirects:
            self.refusal = self.refusal or redirect_hard_reason(redirect, self._places)
            self._ask(redirect_reason(redirect, command, self._places))
        exported = bool(command.words) and (command.name == "export" or command.name not in SETS_VARIABLES)
        for name, value in command.assignments:
            self._ask(variable_reason(name, value, self._places, exported=exported))
        self._ask(_subscript_reason(command))
        if command.words:
            self._judge_start(command.words, command, depth)

    # ── the hard list ────────────────────────────────────────────────────────────────────────────────────────

    def _judge_start(self, words: Sequence[Word], command: SimpleCommand, depth: int) -> None:
        for start in (words, *suffix_starts(words)):
            self.refusal = self.refusal or hard_reason(start, self._places)
        nested = _shell_line(words)
        if nested is None:
            for line in argument_lines(words):
                self._refuse_line(line, depth)
        if not self.refusal and nested is None:
            self._ask(self._question_about(words, command))
        elif nested is not None:
            places = self._places
            self.judge_line(nested, depth + 1)
            self._places = places

    def _refuse_line(self, line: str, depth: int) -> None:
        """For text that may be a line: it counts where it must be refused."""
        places, question = self._places, self.question
        self.judge_line(line, depth + 1)
        self._places, self.question = places, question

    def _refuse_documents(self, commands: Sequence[SimpleCommand], depth: int) -> None:
        """For a shell that reads its commands: pipes, groups and files can bring it any document of the line, and any
        text that the line prints."""
        for command in commands:
            if printed := printed_text(command.words):
                self._refuse_line(printed, depth)
            for redirect in command.redirects:
                if redirect.operator in ("<<", "<<<"):
                    self._refuse_line(redirect.target.text, depth)

    # ── the tables ───────────────────────────────────────────────────────────────────────────────────────────

    def _question_about(self, words: Sequence[Word], command: SimpleCommand) -> str:
        """Why a person must be asked about this program start; "" where it is known or allowed."""
        allowed = is_allowed(words, self._allow)
        if words[0].text == "cd":
            return "" if (reason := self._change_directory(words[1:])) and allowed else reason
        if allowed:
            return ""
        only_builds = False
        for _ in range(MAX_WRAPPERS):
            if not (name := wrapper_of(words)) or words[0].dynamic:
                break
            if name == "command" and len(words) > 2 and words[1].text in ("-v", "-V"):
                return ""
            inner = _unwrap(name, words)
            if not inner:
                return f"{name} is used in a way that is not known"
            if name == "xargs" and not lists_names(command.upstream):
                return "xargs takes arguments that are known only when it runs"
            if name == "env" and (reason := self._environment_reason(words)):
                return reason
            words, only_builds = inner, only_builds or WRAPPERS[name].builds
        return unknown_reason(ProgramStart(words, command, self._places), only_builds=only_builds)

    def _environment_reason(self, words: Sequence[Word]) -> str:
        for word in words[1:]:
            name, sign, value = word.text.partition("=")
            if not sign:
                break
            if reason := variable_reason(name, word._replace(text=value), self._places, exported=True):
                return reason
        return ""

    def _change_directory(self, words: Sequence[Word]) -> str:
        operands = [word for word in words if word.text not in ("--", "-P", "-L")]
        target = operands[0] if operands else Word("~")
        unknown = (target.dynamic and not target.listed) or target.text[:1] in ("-", "+")
        self._places = self._places.after_cd(None if unknown else target.text)
        if unknown or len(operands) > 1:
            return "changes to a directory that is known only when it runs"
        return f"cd {reason}" if (reason := place_reason(target, self._places)) else ""


def _shell_line(words: Sequence[Word]) -> str | None:
    """The line of `bash -c '…'`, where that is all and known."""
    if len(words) == 3 and words[0].text in ("bash", "sh") and words[1].text in _SHELL_LINE and not words[2].dynamic:
        return words[2].text
    return None


def _unwrap(name: str, words: Sequence[Word]) -> list[Word]:
    """The program start behind a wrapper; empty where there is none, or where an option is not known."""
    wrapper = WRAPPERS[name]
    rest = list(words[len(name.split()) :])
    mark = ""
    while rest and rest[0].text.startswith("-"):
        option = rest.pop(0).text
        if option in wrapper.flags.split():
            continue
        if len(option) < 2 or option[1] not in wrapper.values:
            return []
        value = option[2:] or (rest.pop(0).text if rest else "")
        mark = value if option[1] == "I" else mark
    while name == "env" and rest and re.match(r"[A-Za-z_]\w*=", rest[0].text):
        rest.pop(0)
    own, rest = rest[: wrapper.operands], rest[wrapper.operands :]
    if any(word.dynamic for word in own) or not rest:
        return []
    if name != "xargs":
        return rest
    if not mark:
        return [*rest, FOUND_NAME]
    return [FOUND_NAME if word.text == mark else _marked(word, mark) for word in rest]


def _marked(word: Word, mark: str) -> Word:
    return word._replace(dynamic=True, listed=False) if mark in word.text else word


def _subscript_reason(command: SimpleCommand) -> str:
    texts = [value.text for _, value in command.assignments]
    texts += [redirect.target.text for redirect in command.redirects if redirect.operator == "<<<"]
    if command.name in _TAKES_NAMES:
        texts += [word.text for word in command.words[1:]]
    return "holds a subscript that bash may evaluate" if any(map(_SUBSCRIPT.search, texts)) else ""
