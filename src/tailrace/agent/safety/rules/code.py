"""Programs that run code of another language from their arguments: sed, awk, Python, Perl and their like, as rules.

Pure. sed scripts and Python are read with their grammar; in other languages the words that delete, write or start
programs are looked for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tailrace.agent.safety.rules.assessment import HARMLESS, Assessment, ProgramStart, Rule, ask, graver, judge_target
from tailrace.agent.safety.rules.options import Options
from tailrace.agent.safety.rules.python_code import is_harmless_python
from tailrace.agent.safety.words import Word

INTERPRETERS = re.compile(
    r"(python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|tclsh|wish|osascript|pwsh|powershell|guile"
    r"|Rscript|julia"
    r"|irb|ipython|groovy|scala|jshell|elixir|erl|ghci|runghc|expect)[\d.]*(\.exe)?"
)
_PYTHON = Options("bBdEhiIOPqRsSuvVx?", "cmQWX", "help version check-hash-based-pycs=")
_DESTRUCTIVE_CODE = re.compile(
    r"rmtree|unlink|rmdir|\bremove\b|rename|\beval\b|\bexec\w*\b|\bsystem\b|\bpopen\b|\bspawn\w*\b|child_process|rmSync"
    r"|writeFile|appendFile|createWriteStream|truncate|\bfs\b|File\.(delete|write|open)|FileUtils|IO\.(popen"
    r"|write)|`|\bqx\b|%x"
    r"|base64|urlopen|[sS]ocket|fetch\s*\(|https?\b|Net::|LWP|open\s*\(|open\s+\w|file_put_contents|shell_exec"
    r"|passthru|proc_open"
    r"|\brequire\b\s*\(?\s*['\"](?!fs/promises)(child_process|node:|http|net|dgram|cluster|worker)|import\s*\("
    r"|process\.(kill|binding)"
    r"|do shell script|Remove-|Set-Content|Out-File|Invoke-|Start-Process|\bunless"
    r" -e\b|\bkill\b|\bchmod\b|\bchown\b|\bfork\b|\bsyscall\b"
)
_INLINE = re.compile(r"-[a-zA-Z0-9]*[eErpcR]|--eval|--print|--execute|-Command|--code|-EncodedCommand|eval")
_STDIN = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


def reads_stdin(operands: Sequence[Word]) -> bool:
    """Whether an interpreter with these operands takes its program from its input."""
    return not operands or operands[0].text in _STDIN


def judge_interpreter(start: ProgramStart, *, fed: bool) -> Assessment:
    """`fed`: its input is not the terminal."""
    if start.name.startswith(("python", "pypy", "ipython")):
        return _python(start, fed)
    code_at = [at for at, arg in enumerate(start.args) if _INLINE.match(arg) and arg.startswith(("-", "eval"))]
    codes = [arg for at in code_at for arg in start.args[at : at + 2]]
    if any(word.dynamic and not word.text for at in code_at for word in start.words[at : at + 2]):
        return ask(f"{start.name} code that is known only when it runs")
    if any(_DESTRUCTIVE_CODE.search(code) for code in codes) or any("ncodedC" in arg for arg in start.args):
        return ask(f"{start.name} code that can change files or start programs")
    operands = [word for word in start.words if not word.text.startswith("-") or word.text == "-"]
    if start.name.startswith(("perl", "ruby")) and any(re.match(r"-[nplaw0]*i", arg) for arg in start.args):
        return graver(*(judge_target(word, start.places) for word in operands))  # its code is taken for a file, too
    if not code_at and (_is_unknown_script(operands) or (fed and reads_stdin(operands))):
        return ask(f"feeds code to {start.name}")
    return HARMLESS


def _is_unknown_script(operands: Sequence[Word]) -> bool:
    """Whether the program is `<(…)` or a variable."""
    return bool(operands) and operands[0].dynamic and not operands[0].text


def _python(start: ProgramStart, fed: bool) -> Assessment:
    """Options end at `-c`, at `-m` and at the first operand."""
    parsed = _PYTHON.parse(_before_program(start.words), permuted=False)
    for code in parsed.values("c"):
        if code.dynamic or not is_harmless_python(code.text):
            return ask(f"{start.name} code that can change files or start programs")
        return HARMLESS
    if any(module.text in ("timeit", "pdb", "cProfile", "trace", "pip") for module in parsed.values("m")):
        removes = "uninstall" in start.args
        harmful = any(not is_harmless_python(word.text) for word in start.words if " " in word.text)
        return ask(f"{start.name} code that can change files or start programs") if removes or harmful else HARMLESS
    operands = parsed.operands
    if not parsed.has("m") and (_is_unknown_script(operands) or (fed and reads_stdin(operands))):
        return ask(f"feeds code to {start.name}")
    return HARMLESS


def _before_program(words: Sequence[Word]) -> list[Word]:
    """The words up to the one that brings the program and its value."""
    kept: list[Word] = []
    for word in words:
        kept.append(word)
        if len(kept) > 1 and re.fullmatch(r"-[a-zA-Z]*[cm]", kept[-2].text):
            break
        if re.match(r"-[bBdEiIOPqRsSuvx]*[cm].", word.text):
            break
    return kept


# ── sed and awk ──────────────────────────────────────────────────────────────────────────────────────────────

_SED = Options(
    "nrEsuz", "efl",
    "quiet silent expression= file= in-place? line-length= regexp-extended separate unbuffered null-data debug"
    " posix sandbox"
    " follow-symlinks help version",
)  # fmt: skip
_SED_ADDRESS = re.compile(
    r"\s*(?:\d+(?:~\d+)?|\$|[+~]\d+|/(?:[^/\\\n]|\\.)*/[IM]*|\\(.)(?:(?!\1)[^\\\n]|\\.)*\1[IM]*)?\s*", re.DOTALL
)
_SED_ONE_LETTER = re.compile(
    r"[dDgGhHnNpPxz=F{}]\s*[;\n}]?|[qQlL]\s*\d*|[btT:]\s*[\w.-]*|[aic](?:\\\n|[^\n])*|r\s*[^\n]*"
)


def _sed(start: ProgramStart) -> Assessment:
    words = [word for word in start.words if not re.fullmatch(r"-[nrEsuz]*i.*", word.text)]
    edits = len(words) < len(start.words)
    parsed = _SED.parse(words)
    if parsed.unknown:
        return ask("has options that cannot be judged")
    scripts = parsed.values("e", "expression")
    files = parsed.operands if scripts or parsed.has("f", "file") else parsed.operands[1:]
    scripts = scripts or ([] if parsed.has("f", "file") else parsed.operands[:1])
    worst = HARMLESS
    for script in scripts:
        written = _sed_writes(script.text)
        if written is None:
            return ask("sed that starts programs, or that cannot be read")
        worst = graver(worst, *(judge_target(Word(path), start.places) for path in written))
    if edits or parsed.has("in-place"):
        worst = graver(worst, *(judge_target(file, start.places) for file in files))
    return worst


def _sed_writes(script: str) -> list[str] | None:
    """The files that a sed script writes; None where it starts programs or is not understood."""
    written: list[str] = []
    at = 0
    while at < len(script):
        if script[at] in " \t\n;}":
            at += 1
            continue
        if script[at] == "#":
            end = script.find("\n", at)
            at = len(script) if end < 0 else end
            continue
        at = _after_addresses(script, at)
        letter = script[at : at + 1]
        if letter in ("s", "y"):
            after, flags = _after_substitution(script, at)
            if after is None or "e" in flags:
                return None
            at = after
            letter = "w" if "w" in flags else ""
        if letter in ("w", "W"):
            end = script.find("\n", at)
            end = len(script) if end < 0 else end
            written.append(script[at:end].lstrip("wW \t"))
            at = end
        elif letter:
            found = _SED_ONE_LETTER.match(script, at)
            if found is None:
                return None
            at = found.end()
    return written


def _after_addresses(script: str, at: int) -> int:
    found = _SED_ADDRESS.match(script, at)
    at = found.end() if found else at
    if script[at : at + 1] == "," and (second := _SED_ADDRESS.match(script, at + 1)):
        at = second.end()
    while script[at : at + 1] in ("!", " "):
        at += 1
    return at


def _after_substitution(script: str, at: int) -> tuple[int | None, str]:
    """Where an `s` or `y` command ends, and its flags. A `w` among them begins the name of a file."""
    delimiter = script[at + 1 : at + 2]
    if not delimiter or delimiter in "\\\n":
        return None, ""
    parts = 0
    at += 2
    while parts < 2:
        if at >= len(script):
            return None, ""
        if script[at] == "\\":
            at += 1
        elif script[at] == "[" and parts == 0 and "]" in script[at + 2 : at + 40]:
            at = script.index("]", at + 2)
        elif script[at] == delimiter:
            parts += 1
        at += 1
    flags = re.compile(r"[gpiImMe0-9]*w?").match(script, at)
    text = flags[0] if flags else ""
    return (at + len(text) if "w" not in text else at + len(text) - 1), text


_AWK_STRING_OR_REGEX = re.compile(r'"(?:[^"\\]|\\.)*"|(?<=[~(,{!&| ])/(?:[^/\\\n]|\\.)+/|^/(?:[^/\\\n]|\\.)+/')


def _awk(start: ProgramStart) -> Assessment:
    for word in start.words:
        code = _AWK_STRING_OR_REGEX.sub('""', word.text)
        if re.search(r"\bsystem\s*\(|\|&?\s*getline|\bgetline\b.*<|@load|@include", code):
            return ask("awk that starts programs")
        if re.search(r'\bprintf?\b[^;}\n]{0,300}?(?<!\|)\|(?!\|)&?\s*["(\w$]', code) or re.search(
            r'"\s*\|(?!\|)', code
        ):
            return ask("awk that starts programs")
        if re.search(r'\bprintf?\b[^;}\n]{0,300}>>?\s*["(\w$]', code) and not re.search(
            r">\s*\"/dev/std(err|out)\"", word.text
        ):
            return ask("awk that writes files")
    in_place = any(arg in ("-i", "--include", "-l", "--load") or arg.startswith(("-i", "-l")) for arg in start.args)
    return ask("awk with a library") if in_place else HARMLESS


CODE_RULES: dict[str, Rule] = {"sed": _sed, **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk)}
