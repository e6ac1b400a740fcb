"""Which command lines ask first, which are refused always, and why.

Pure. Works on what `shell.parse` says would start, not on the text. A deny-list is no sandbox: it keeps an honest model
from an accident, and somebody who wants around it will get around it. The working directory's confinement, an
allow-list or a container is the real boundary.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from tailrace.agent.safety.rules import HARMLESS, Assessment, Verdict, graver, judge_program, judge_target
from tailrace.agent.safety.shell import Parsed, Redirect, Simple, Word, parse

__all__ = ["HARMLESS", "Assessment", "Verdict", "assess"]

_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "fish", "ash", "csh", "tcsh", "rbash"})
_INTERPRETERS = re.compile(
    r"(python|pypy|perl|ruby|node|deno|bun|php|lua|tclsh|osascript|pwsh|powershell)[\d.]*(\.exe)?"
)
# Programs that start another one: how many of their own operands come before it.
_WRAPPERS = {
    "env": 0, "nohup": 0, "nice": 0, "ionice": 0, "time": 0, "timeout": 1, "stdbuf": 0, "setsid": 0, "command": 0,
    "builtin": 0, "exec": 0, "busybox": 0, "toybox": 0, "xargs": 0, "parallel": 0, "watch": 0, "strace": 0, "ltrace": 0,
    "chrt": 1, "taskset": 1, "unshare": 0, "caffeinate": 0, "flock": 1, "script": 0, "then": 0, "do": 0,
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
_FORK_BOMB = re.compile(r"([^\s(]{1,64})\s*\(\)\s*\{[^}]*\1\s*\|\s*\1\s*&")


def assess(line: str) -> Assessment:
    """The gravest thing that this line would do."""
    return _assess_parsed(parse(line), 0)


def _assess_parsed(parsed: Parsed, depth: int) -> Assessment:
    if _FORK_BOMB.search(parsed.text):
        return Assessment("refuse", "a fork bomb")
    worst = Assessment("ask", f"cannot be read: {parsed.unclear}") if parsed.unclear else HARMLESS
    for at, command in enumerate(parsed.commands):
        before = parsed.commands[at - 1] if command.piped and at else None
        worst = graver(worst, _assess_command(command, before, depth))
    return worst


def _assess_command(command: Simple, before: Simple | None, depth: int) -> Assessment:
    worst = HARMLESS
    for redirect in command.redirects:
        worst = graver(worst, _assess_redirect(redirect))
    if command.words:
        worst = graver(worst, _assess_words(command.words, before, command, depth))
    return worst


def _assess_redirect(redirect: Redirect) -> Assessment:
    target = redirect.target.text
    if ">" not in redirect.operator or target.isdigit() or target == "-":
        return HARMLESS
    return judge_target(target)


def _assess_words(words: Sequence[Word], before: Simple | None, command: Simple, depth: int) -> Assessment:
    if not words:
        return HARMLESS
    first = words[0]
    if depth > 12:
        return Assessment("ask", "nested too deeply")
    if first.dynamic or (first.globbed and first.text not in ("[", "[[")):
        return Assessment("ask", "the program's name is known only when it runs")
    name = posixpath.basename(first.text).removesuffix(".exe")
    args = [word.text for word in words[1:]]
    if name in _ELEVATED:
        inner = _assess_words(_after_options(words[1:], "ugpCc"), before, command, depth + 1) if words[1:] else HARMLESS
        return graver(Assessment("ask", f"runs with other rights ({name})"), inner)
    if name in _WRAPPERS and words[1:]:
        return _assess_wrapped(name, words, before, command, depth)
    if name in _SHELLS or name in ("eval", "source", "."):
        return _assess_shell(name, words, before, command, depth)
    if _INTERPRETERS.fullmatch(name):
        return _assess_interpreter(name, args, before)
    if name in ("find", "fd", "fdfind"):
        return _assess_find(words[1:], depth)
    return judge_program(name, words[1:])


def _after_options(words: Sequence[Word], with_value: str, operands: int = 0) -> list[Word]:
    """The words after a wrapper's own options and operands, where the inner command begins."""
    rest = list(words)
    while rest and (rest[0].text.startswith("-") or "=" in rest[0].text.split("/")[0]):
        option = rest.pop(0).text
        if option == "--":
            break
        if len(option) == 2 and option[1] in with_value and rest:
            rest.pop(0)
    return rest[operands:]


def _assess_wrapped(name: str, words: Sequence[Word], before: Simple | None, command: Simple, depth: int) -> Assessment:
    inner = _after_options(words[1:], _WRAPPER_OPTIONS_WITH_VALUE.get(name, ""), _WRAPPERS[name])
    if name == "env" and any(word.text.startswith("-S") for word in words):
        return _assess_parsed(parse(" ".join(w.text for w in words[1:]).replace("-S", "", 1)), depth + 1)
    if not inner:
        return HARMLESS
    if name in ("xargs", "parallel"):
        inner = [*inner, Word("", dynamic=True)]  # what it reads becomes arguments
    if name == "watch" and len(inner) == 1:
        return _assess_parsed(parse(inner[0].text), depth + 1)
    return _assess_words(inner, before, command, depth + 1)


def _assess_shell(name: str, words: Sequence[Word], before: Simple | None, command: Simple, depth: int) -> Assessment:
    args = words[1:]
    if name == "eval":
        if any(word.dynamic for word in args):
            return Assessment("ask", "evaluates text that is known only when it runs")
        return _assess_parsed(parse(" ".join(word.text for word in args)), depth + 1)
    for at, word in enumerate(args):
        if re.fullmatch(r"-[a-z]*c[a-z]*", word.text) and at + 1 < len(args):
            script = args[at + 1]
            if script.dynamic:
                return Assessment("ask", "runs text that is known only when it runs")
            return _assess_parsed(parse(script.text), depth + 1)
    if any(word.dynamic and not word.text for word in args):
        return Assessment("ask", "runs a script that is known only when it runs")
    if name in _SHELLS and any(redirect.operator.startswith("<") for redirect in command.redirects):
        return Assessment("ask", f"feeds text to {name}")
    if before is not None and name in _SHELLS and (not args or args[0].text in ("-s", "-", "-x", "-e", "/dev/stdin")):
        return Assessment("ask", f"pipes text into {name}")
    return HARMLESS


def _assess_interpreter(name: str, args: list[str], before: Simple | None) -> Assessment:
    if before is not None and (not args or args[0] == "-"):
        return Assessment("ask", f"pipes text into {name}")
    for at, arg in enumerate(args):
        inline = re.fullmatch(r"-[a-zA-Z]*[ceEr]|--eval|-Command|-EncodedCommand|--print|-p", arg)
        if inline and at + 1 < len(args) and _DESTRUCTIVE_CODE.search(args[at + 1]):
            return Assessment("ask", f"{name} code that can change files or start programs")
        if arg == "-EncodedCommand":
            return Assessment("ask", "encoded code")
    return HARMLESS


def _assess_find(words: Sequence[Word], depth: int) -> Assessment:
    args = [word.text for word in words]
    if "-delete" in args:
        return Assessment("ask", "deletes what it finds")
    for at, arg in enumerate(args):
        if arg in ("-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"):
            inner = list(words[at + 1 :])
            end = next((i for i, word in enumerate(inner) if word.text in (";", "+")), len(inner))
            return _assess_words([*inner[:end], Word("", dynamic=True)], None, Simple([], []), depth + 1)
    writes = any(arg.startswith(("-fprint", "-fls")) for arg in args)
    return Assessment("ask", "writes what it finds") if writes else HARMLESS
