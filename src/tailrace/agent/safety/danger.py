"""Which command lines ask first, which are refused always, and why.

Pure. Works on the programs that `shell.parse_shell` finds, not on the text. A deny-list is no sandbox: it keeps an
honest model from an accident, and an attacker will find a way around it. The confinement to the working directory, an
allow-list or a container is the real boundary.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from tailrace.agent.safety.rules.assessment import (
    HARMLESS,
    Assessment,
    ProgramStart,
    Verdict,
    ask,
    graver,
    judge_target,
    refuse,
)
from tailrace.agent.safety.rules.code import INTERPRETERS, judge_interpreter, reads_stdin
from tailrace.agent.safety.rules.options import Options
from tailrace.agent.safety.rules.places import Places
from tailrace.agent.safety.rules.programs import RISKY_VARIABLES, judge_program
from tailrace.agent.safety.rules.wrappers import (
    ELEVATED,
    LAUNCHERS,
    RUN_SUBCOMMANDS,
    WRAPPERS,
    Unwrapped,
    replaced,
    unwrap,
)
from tailrace.agent.safety.shell import parse_shell
from tailrace.agent.safety.words import Redirect, SimpleCommand, Word

__all__ = ["HARMLESS", "Assessment", "Places", "Verdict", "assess"]

_SHELLS = frozenset(
    {"sh", "bash", "zsh", "dash", "ksh", "fish", "ash", "csh", "tcsh", "rbash", "mksh", "yash", "busybox-sh"}
)
_SHELL_OPTIONS = Options(
    "abefhiklmnprstuvxBCDEHPTcqVLN", "oO",
    "login norc noprofile posix restricted verbose version help debugger noediting rcfile= init-file= dump-strings",
)  # fmt: skip
_FIND_RUNS = frozenset({"-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"})
_FIND_FILTERS = re.compile(
    r"-(i?name|i?path|i?regex|i?wholename|[acm]?newer\S*|[acm](time|min)|size|user|group|empty|perm|links|inum|samefile)"
)
# bash evaluates the subscript in a variable's name, and a value once more where it is a number: `let 'a[$(rm x)]'`.
_SUBSCRIPT = re.compile(r"\[[^\]]*(?:\$\(|`)")
_TAKES_NAMES = frozenset(
    {"let", "test", "[", "printf", "read", "unset", "declare", "typeset", "local", "export", "readonly", "mapfile"}
)
MAX_NESTED_CHARS = 1_000_000  # of a line and of all lines in it: `bash -c`, `eval`
MAX_DEPTH = 12
MAX_SUFFIXES = 30
MAX_PROGRAMS = 3000  # in all: a program can start one that starts others


def assess(line: str, places: Places = Places()) -> Assessment:  # noqa: B008 - immutable
    """The gravest thing that this line would do in these places."""
    return _Assessor(places).assess_line(line, 0)


class _Assessor:
    """One line with all that it nests. The total that it reads is bounded: a nested line can hold others (L140)."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._unread_chars = MAX_NESTED_CHARS
        self._programs_left = MAX_PROGRAMS
        self._documents: list[Word] = []  # here-documents and here-strings not yet judged as lines

    def assess_line(self, line: str, depth: int) -> Assessment:
        self._unread_chars -= len(line)
        if self._unread_chars < 0:
            return ask("cannot be read: it is too long")
        if depth > MAX_DEPTH:
            return ask("nested too deeply")
        parsed = parse_shell(line)
        if parsed.fork_bomb:
            return refuse("a fork bomb")
        worst = ask(f"cannot be read: {parsed.unclear}") if parsed.unclear else HARMLESS
        self._documents += [document for command in parsed.commands for document in _documents(command)]
        for at, command in enumerate(parsed.commands):
            if command.name == "exec" and len(command.words) == 1 and command.fed:  # what follows reads it
                for later in parsed.commands[at:]:
                    later.piped = True
            found = [self._assess_redirect(redirect, command) for redirect in command.redirects]
            found += [_assess_variable(name, value) for name, value in command.assignments]
            found.append(_assess_subscripts(command))
            worst = graver(worst, *found, self._assess_words(command.words, command, depth))
        return worst

    def _assess_redirect(self, redirect: Redirect, command: SimpleCommand) -> Assessment:
        target = redirect.target
        if redirect.operator not in ("<<", "<<<") and re.match(r"/+dev/+(tcp|udp)(/|$)", target.text):
            return ask("opens a raw connection")
        if ">" not in redirect.operator or target.text.isdigit() or target.text == "-":
            return HARMLESS
        found = judge_target(target, self._places)
        empties = redirect.operator in (">", ">|", "&>") and _prints_nothing(command)
        if found.verdict == "allow" and empties and not target.text.startswith("/dev/"):
            return ask(f"empties {target.text}")
        return found

    def _assess_words(self, words: Sequence[Word], command: SimpleCommand, depth: int) -> Assessment:
        if not words:
            return HARMLESS
        first = words[0]
        self._programs_left -= 1
        if depth > MAX_DEPTH or self._programs_left < 0:
            return ask("nested too deeply")
        if first.dynamic or first.globbed:
            return ask("the program's name is known only when it runs")
        name = posixpath.basename(first.text).removesuffix(".exe")
        args = words[1:]
        start = ProgramStart(name, args, self._places, _documents(command))
        if name in ELEVATED:
            return self._assess_elevated(start, command, depth)
        if name in WRAPPERS and args:
            return self._assess_wrapped(name, args, command, depth)
        if name in _SHELLS or name in ("eval", "source", ".", "trap", "alias"):
            return self._assess_shell(name, args, command, depth)
        if INTERPRETERS.fullmatch(name):
            return graver(judge_interpreter(start, fed=command.fed), judge_program(start))
        if name in ("find", "fd", "fdfind"):
            return self._assess_find(args, depth)
        if name in LAUNCHERS:
            return graver(judge_program(start), self._assess_launched(start, command, depth))
        if name in ("cd", "pushd", "popd"):
            self._change_directory(name, args)
            return HARMLESS
        return judge_program(start)

    def _change_directory(self, name: str, args: Sequence[Word]) -> None:
        operands = [word for word in args if not re.fullmatch(r"-[LPe@n]+|--", word.text)]
        target = operands[0] if operands else Word("~")
        unknown = (
            name == "popd" or target.globbed or (target.dynamic and not target.text) or target.text[:1] in ("-", "+")
        )
        self._places = self._places.after_cd(None if unknown else target.text)

    # ── programs that start others ───────────────────────────────────────────────────────────────────────────

    def _assess_elevated(self, start: ProgramStart, command: SimpleCommand, depth: int) -> Assessment:
        """Always asks. Refused for what may stand behind its options, whatever they are."""
        if start.name == "ip" and "exec" not in start.args and "-batch" not in start.args:
            return judge_program(start)
        reason = f"runs with other rights, later or elsewhere ({start.name})"
        if start.name in ("ssh", "mosh", "rsh", "sshpass", "ip"):
            return ask(reason)
        worst = self._assess_documents(reason, depth)
        return self._refused_suffix(start.words, command, depth, worst)

    def _refused_suffix(
        self, words: Sequence[Word], command: SimpleCommand, depth: int, worst: Assessment
    ) -> Assessment:
        """This assessment, or a refusal for a program that may begin at one of these words."""
        for inner in self._assess_suffixes(words, command, depth):
            if inner.verdict == "refuse":
                return inner
        return worst

    def _assess_launched(self, start: ProgramStart, command: SimpleCommand, depth: int) -> Assessment:
        """For programs with options of many kinds: any word behind the subcommand may be the one that is started."""
        subcommands = LAUNCHERS[start.name]
        begin = next((at for at, arg in enumerate(start.args, 1) if arg in subcommands), len(start.args))
        words = start.words[begin if subcommands else 0 :]
        return graver(*self._assess_suffixes(words, command, depth))

    def _assess_suffixes(self, words: Sequence[Word], command: SimpleCommand, depth: int) -> Iterator[Assessment]:
        """Each program that may begin at one of these words."""
        for at, word in enumerate(words[:MAX_SUFFIXES]):
            if word.dynamic or word.text.startswith("-"):
                continue
            before = words[at - 1].text if at else ""
            is_line = re.fullmatch(r"-[a-z]*c|--command|--session-command", before) or " " in word.text
            places = self._places
            yield (
                self.assess_line(word.text, depth + 1)
                if is_line
                else self._assess_words(words[at:], command, depth + 6)
            )
            self._places = places

    def _assess_wrapped(self, name: str, args: Sequence[Word], command: SimpleCommand, depth: int) -> Assessment:
        inner = unwrap(name, args)
        if name == "command" and inner.parsed.has("v", "V"):
            return HARMLESS
        if name == "env":
            return self._assess_env(inner, args, command, depth)
        if inner.unclear:
            return self._refused_suffix(args, command, depth, ask(f"{name} with options that cannot be read"))
        words = inner.words
        if name in RUN_SUBCOMMANDS:
            if not words or words[0].text not in RUN_SUBCOMMANDS[name]:
                return judge_program(ProgramStart(name, args, self._places))
            again = unwrap(name, words[1:])
            words = again.words
            if again.unclear:
                return ask(f"{name} with options that cannot be read")
        worst = HARMLESS
        if name in ("time", "strace", "ltrace", "script"):
            outputs = [*inner.parsed.values("o", "output", "O", "log-out", "log-io", "T", "B")]
            worst = graver(*(judge_target(output, self._places) for output in outputs))
        for line in inner.lines:
            found = (
                ask("runs text that is known only when it runs")
                if line.dynamic
                else self.assess_line(line.text, depth + 1)
            )
            worst = graver(worst, found)
        return graver(worst, self._assess_words(words, command, depth + 1))

    def _assess_env(self, inner: Unwrapped, args: Sequence[Word], command: SimpleCommand, depth: int) -> Assessment:
        if inner.unclear:
            return self._refused_suffix(args, command, depth, ask("env with options that cannot be read"))
        variables = [word.text.partition("=") for word in args if re.match(r"[A-Za-z_]\w*=", word.text)]
        worst = graver(*(_assess_variable(name, Word(value)) for name, _, value in variables))
        if directories := inner.parsed.values("C", "chdir"):
            self._places = self._places.after_cd(None if directories[0].dynamic else directories[0].text)
        if split := inner.parsed.values("S", "split-string"):
            if any(word.dynamic for word in split):
                return ask("runs text that is known only when it runs")
            line = " ".join(word.text for word in (*split, *inner.words))
            return graver(worst, self.assess_line(re.sub(r"^\s*([A-Za-z_]\w*=\S*\s+|-\S+\s+)+", "", line), depth + 1))
        return graver(worst, self._assess_words(inner.words, command, depth + 1))

    def _assess_shell(self, name: str, args: Sequence[Word], command: SimpleCommand, depth: int) -> Assessment:
        if name in ("eval", "trap", "alias"):
            return self._assess_builtin(name, args, depth)
        if name in ("source", "."):
            parsed = Options().parse(args, permuted=False)
        else:
            parsed = _SHELL_OPTIONS.parse(_shell_words(args), permuted=False)
        operands = parsed.operands
        if parsed.unknown:
            return self._assess_documents(f"{name} with options that cannot be read", depth)
        if parsed.has("c") and name in _SHELLS:
            if not operands or operands[0].dynamic:  # options may stand between -c and its script
                return self._assess_documents("runs text that is known only when it runs", depth)
            return self._assess_nested(operands[0].text, depth)
        if parsed.has("n") and name in _SHELLS:  # reads without running
            return HARMLESS
        if any(word.dynamic and not word.text for word in args):
            return self._assess_documents("runs a script that is known only when it runs", depth)
        if (command.fed or self._documents) and (parsed.has("s") or reads_stdin(operands)):
            return self._assess_documents(f"feeds text to {name}", depth)
        return HARMLESS

    def _assess_builtin(self, name: str, args: Sequence[Word], depth: int) -> Assessment:
        if name == "alias":
            lines = [word._replace(text=word.text.partition("=")[2]) for word in args if "=" in word.text]
        elif name == "trap":
            lines = [word for word in args if word.text not in ("--", "-", "-p", "-l")][:1]
        else:
            lines = [
                Word(" ".join(word.text for word in args if word.text != "--"), any(word.dynamic for word in args))
            ]
        if any(line.dynamic for line in lines):
            return self._assess_documents("evaluates text that is known only when it runs", depth)
        return graver(*(self.assess_line(line.text, depth + 1) for line in lines))

    def _assess_nested(self, line: str, depth: int) -> Assessment:
        """A line for a shell of its own: its `cd` does not last."""
        places = self._places
        found = self.assess_line(line, depth + 1)
        self._places = places
        return found

    def _assess_documents(self, reason: str, depth: int) -> Assessment:
        """For a shell that reads its commands: pipes, groups and files can bring it any document of the line."""
        worst = ask(reason)
        while self._documents:
            worst = graver(worst, self._assess_nested(self._documents.pop().text, depth))
        return worst

    def _assess_find(self, words: Sequence[Word], depth: int) -> Assessment:
        args = [word.text for word in words]
        roots = words[: next((i for i, a in enumerate(args) if a.startswith("-")), len(args))]
        filtered = any(map(_FIND_FILTERS.match, args))
        whole = not filtered and any(self._places.whole_system(root.text) for root in roots)
        worst = HARMLESS
        if "-delete" in args:
            worst = refuse("deletes the system or a whole home directory") if whole else ask("deletes what it finds")
        at = 0
        while at < len(args):
            arg = args[at]
            at += 1
            if arg in _FIND_RUNS or arg.startswith(("--exec=", "--exec-batch=")):
                end = next((i for i in range(at, len(args)) if args[i] in (";", "+")), len(args))
                inner = [*([Word(arg.partition("=")[2])] if "=" in arg else []), *words[at:end]]
                worst = graver(worst, self._assess_found(inner, roots if whole else (), depth))
                at = end
            elif re.fullmatch(r"-fprint[0f]?|-fls", arg):
                worst = graver(worst, *(judge_target(word, self._places) for word in words[at : at + 1]))
        return worst

    def _assess_found(self, words: list[Word], roots: Sequence[Word], depth: int) -> Assessment:
        """What `find -exec` runs, for what it finds; for its `roots` too, where it finds everything below them."""
        places = self._places
        run = words if any("{}" in word.text for word in words) else [*words, Word("{}")]
        unknown = SimpleCommand([], [])
        worst = self._assess_words([replaced(word, "{}") for word in run], unknown, depth + 1)
        if roots and worst.verdict == "ask":
            named = [word for word in words if word.text != "{}"]
            worst = graver(worst, self._assess_words([*named, *roots], unknown, depth + 1))
        self._places = places
        return worst


def _prints_nothing(command: SimpleCommand) -> bool:
    args = [word.text for word in command.words[1:] if not word.dynamic]
    if command.fed or len(args) + 1 < len(command.words):
        return False
    if command.name in ("echo", "printf"):
        return not any(arg for arg in args if arg != "-n")
    return command.name in ("", ":", "true") or (command.name == "cat" and args == ["/dev/null"])


def _assess_subscripts(command: SimpleCommand) -> Assessment:
    texts = [value.text for _, value in command.assignments]
    if command.name in _TAKES_NAMES:
        texts += [word.text for word in command.words[1:]]
    return ask("holds a subscript that bash may evaluate") if any(map(_SUBSCRIPT.search, texts)) else HARMLESS


def _shell_words(args: Sequence[Word]) -> list[Word]:
    """`+x` switches an option off and stands among the options."""
    return [
        word._replace(text="-" + word.text[1:]) if re.fullmatch(r"\+[a-zA-Z]", word.text) else word for word in args
    ]


def _documents(command: SimpleCommand) -> list[Word]:
    return [redirect.target for redirect in command.redirects if redirect.operator in ("<<", "<<<")]


def _assess_variable(name: str, value: Word) -> Assessment:
    """Setting some variables makes programs start others."""
    if not RISKY_VARIABLES.fullmatch(name) or value.text in (
        "",
        "cat",
        "true",
        ":",
        "less",
        "more",
        "vi",
        "vim",
        "nano",
    ):
        return (
            HARMLESS if value.text or not value.dynamic or not RISKY_VARIABLES.fullmatch(name) else ask(f"sets {name}")
        )
    return ask(f"sets {name}, which makes programs start others")
