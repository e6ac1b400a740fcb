"""Which command lines ask first, which are refused always, and why.

Pure. Works on the programs that `shell.parse_shell` finds, not on the text. A deny-list is no sandbox: it keeps an
honest model from an accident, and an attacker will find a way around it. The confinement to the working directory, an
allow-list or a container is the real boundary.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from itertools import pairwise

from tailrace.agent.safety.rules import HARMLESS, Assessment, Verdict, graver, judge_program, judge_target
from tailrace.agent.safety.shell import Redirect, SimpleCommand, Word, parse_shell

__all__ = ["HARMLESS", "Assessment", "Verdict", "assess"]

_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "fish", "ash", "csh", "tcsh", "rbash"})
_INTERPRETERS = re.compile(
    r"(python|pypy|perl|ruby|node|deno|bun|php|lua|tclsh|osascript|pwsh|powershell)[\d.]*(\.exe)?"
)
# Programs that start another one: how many of their own operands come before it.
_WRAPPERS = {
    "env": 0, "nohup": 0, "nice": 0, "ionice": 0, "time": 0, "timeout": 1, "stdbuf": 0, "setsid": 0, "command": 0,
    "builtin": 0, "exec": 0, "busybox": 0, "toybox": 0, "xargs": 0, "parallel": 0, "watch": 0, "strace": 0, "ltrace": 0,
    "chrt": 1, "taskset": 1, "unshare": 0, "caffeinate": 0, "flock": 1, "script": 0, "coproc": 0,
}  # fmt: skip
_WRAPPER_OPTIONS_WITH_VALUE = {
    "env": "uSC", "nice": "n", "ionice": "cnp", "timeout": "ks", "stdbuf": "ioe", "xargs": "InPLsdEa", "watch": "n",
    "strace": "eopsu", "flock": "wE", "parallel": "jNS",
}  # fmt: skip
_ELEVATED = frozenset({"sudo", "doas", "su", "pkexec", "runuser", "gosu", "chroot", "nsenter"})
_DESTRUCTIVE_CODE = re.compile(
    r"rmtree|os\.(remove|unlink|rmdir|removedirs|system|popen|exec|spawn|kill|chmod|chown)|subprocess|shutil\.(move|rmtree)"
    r"|\.unlink\(|\.rmdir\(|pty\.spawn|ctypes|__import__|\beval\b|\bexec\b|\bsystem\b|child_process|rmSync|unlinkSync"
    r"|fs\.(rm|unlink|rmdir|write)|File\.(delete|unlink)|FileUtils|\bunlink\b|`[^`]+`|base64|urlopen|socket"
    r"|open\([^)]*['\"][wax]\+?b?['\"]"
)
_INLINE_CODE = re.compile(r"-[a-zA-Z]*[ceEr]|--eval|-Command|--print|-p")
MAX_NESTED_CHARS = 1_000_000  # of a line and of all lines in it: `bash -c`, `eval`
MAX_DEPTH = 12


def assess(line: str) -> Assessment:
    """The gravest thing that this line would do."""
    return _Assessor().assess_line(line, 0)


class _Assessor:
    """One line with all that it nests. The total that it reads is bounded: a nested line can hold others (L140)."""

    def __init__(self) -> None:
        self._unread_chars = MAX_NESTED_CHARS
        self._documents: list[Word] = []  # here-documents and here-strings not yet judged as lines

    def assess_line(self, line: str, depth: int) -> Assessment:
        self._unread_chars -= len(line)
        if self._unread_chars < 0:
            return Assessment("ask", "cannot be read: it is too long")
        parsed = parse_shell(line)
        if parsed.fork_bomb:
            return Assessment("refuse", "a fork bomb")
        worst = Assessment("ask", f"cannot be read: {parsed.unclear}") if parsed.unclear else HARMLESS
        self._documents += [document for command in parsed.commands for document in _documents(command)]
        for command in parsed.commands:
            for redirect in command.redirects:
                worst = graver(worst, _assess_redirect(redirect))
            worst = graver(worst, self._assess_words(command.words, command, depth))
        return worst

    def _assess_words(self, words: Sequence[Word], command: SimpleCommand, depth: int) -> Assessment:
        if not words:
            return HARMLESS
        first = words[0]
        if depth > MAX_DEPTH:
            return Assessment("ask", "nested too deeply")
        if first.dynamic or first.globbed:
            return Assessment("ask", "the program's name is known only when it runs")
        name = posixpath.basename(first.text).removesuffix(".exe")
        args = words[1:]
        if name in _ELEVATED:
            reason, inner = f"runs with other rights ({name})", _after_options(args, "ugpCc")
            if not inner:
                return self._assess_documents(reason, depth)
            return graver(Assessment("ask", reason), self._assess_words(inner, command, depth + 1))
        if name in _WRAPPERS and args:
            return self._assess_wrapped(name, args, command, depth)
        if name in _SHELLS or name in ("eval", "source", "."):
            return self._assess_shell(name, args, command, depth)
        if _INTERPRETERS.fullmatch(name):
            return _assess_interpreter(name, args, command)
        if name in ("find", "fd", "fdfind"):
            return self._assess_find(args, depth)
        return judge_program(name, args, _documents(command))

    def _assess_wrapped(self, name: str, args: Sequence[Word], command: SimpleCommand, depth: int) -> Assessment:
        inner = _after_options(args, _WRAPPER_OPTIONS_WITH_VALUE.get(name, ""), _WRAPPERS[name])
        if name == "env" and any(word.text.startswith("-S") for word in args):
            return self.assess_line(" ".join(word.text for word in args).replace("-S", "", 1), depth + 1)
        if not inner:
            return HARMLESS
        if name in ("xargs", "parallel"):
            inner = [*inner, Word("", dynamic=True)]  # what it reads becomes arguments
        if name == "watch" and len(inner) == 1:
            return self.assess_line(inner[0].text, depth + 1)
        return self._assess_words(inner, command, depth + 1)

    def _assess_shell(self, name: str, args: Sequence[Word], command: SimpleCommand, depth: int) -> Assessment:
        if name == "eval":
            if any(word.dynamic for word in args):
                return self._assess_documents("evaluates text that is known only when it runs", depth)
            return self.assess_line(" ".join(word.text for word in args), depth + 1)
        operands = _after_options(args, "oO", wrapper=False)
        options = "".join(word.text for word in args[: len(args) - len(operands)] if not word.text.startswith("--"))
        if name in _SHELLS and "c" in options:
            if not operands or operands[0].dynamic:  # options may stand between -c and its script
                return self._assess_documents("runs text that is known only when it runs", depth)
            return self.assess_line(operands[0].text, depth + 1)
        if any(word.dynamic and not word.text for word in args):
            return self._assess_documents("runs a script that is known only when it runs", depth)
        if (command.fed or self._documents) and ("s" in options or _reads_stdin(operands)):
            return self._assess_documents(f"feeds text to {name}", depth)
        return HARMLESS

    def _assess_documents(self, reason: str, depth: int) -> Assessment:
        """For a shell that reads its commands: pipes, groups and files can bring it any document of the line."""
        worst = Assessment("ask", reason)
        while self._documents:
            worst = graver(worst, self.assess_line(self._documents.pop().text, depth + 1))
        return worst

    def _assess_find(self, words: Sequence[Word], depth: int) -> Assessment:
        args = [word.text for word in words]
        if "-delete" in args:
            return Assessment("ask", "deletes what it finds")
        for at, arg in enumerate(args):
            if arg in ("-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"):
                inner = list(words[at + 1 :])
                end = next((i for i, word in enumerate(inner) if word.text in (";", "+")), len(inner))
                return self._assess_words([*inner[:end], Word("", dynamic=True)], SimpleCommand([], []), depth + 1)
        writes = any(arg.startswith(("-fprint", "-fls")) for arg in args)
        return Assessment("ask", "writes what it finds") if writes else HARMLESS


def _documents(command: SimpleCommand) -> list[Word]:
    return [redirect.target for redirect in command.redirects if redirect.operator in ("<<", "<<<")]


def _assess_redirect(redirect: Redirect) -> Assessment:
    target = redirect.target.text
    if ">" not in redirect.operator or target.isdigit() or target == "-":
        return HARMLESS
    return judge_target(target)


def _after_options(
    words: Sequence[Word], with_value: str, operands: int = 0, *, wrapper: bool = True
) -> Sequence[Word]:
    """The words after a program's own options and operands; after a wrapper's assignments too."""
    at = 0
    while at < len(words):
        option = words[at].text
        if option == "-" and not wrapper:
            break
        if not option.startswith("-") and not (wrapper and "=" in option.split("/")[0]):
            break
        at += 2 if len(option) == 2 and option[1] in with_value else 1
        if option == "--":
            break
    return words[at + operands :]


def _reads_stdin(operands: Sequence[Word]) -> bool:
    """Whether an interpreter with these operands takes its program from its input."""
    return not operands or operands[0].text in ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


def _assess_interpreter(name: str, words: Sequence[Word], command: SimpleCommand) -> Assessment:
    args = [word.text for word in words]
    for option, code in pairwise([*args, ""]):
        if _INLINE_CODE.fullmatch(option) and _DESTRUCTIVE_CODE.search(code):
            return Assessment("ask", f"{name} code that can change files or start programs")
        if option == "-EncodedCommand":
            return Assessment("ask", "encoded code")
    if command.fed and _reads_stdin(_after_options(words, "WXIrMC", wrapper=False)):
        return Assessment("ask", f"feeds code to {name}")
    return HARMLESS
