"""Reads a shell command line the way a shell would, far enough to know which programs it would start.

Pure, runs nothing. Undoes what hides a command from a reader: quotes, escapes, variables, brace expansion, `$'…'`,
command substitution, groups. What cannot be known without running it is marked `dynamic`, never guessed.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

import msgspec

MAX_COMMANDS = 500  # a line that holds more is not read to its end, and says so
_OPERATORS = ("&&", "||", ";;", "|&", ";", "|", "&", "\n", "(", ")")
_REDIRECTS = ("<<<", "<<-", "&>>", "<<", ">>", "<>", ">|", ">&", "<&", "&>", ">", "<")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=(.*)", re.DOTALL)
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_ANSI_C = re.compile(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}|.)", re.DOTALL)
_INVISIBLE = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\u00ad]")
_KEYWORDS = frozenset(
    {"if", "then", "elif", "else", "fi", "while", "until", "do", "done", "case", "esac", "in", "function", "select"}
    | {"!", "{", "}", "[[", "]]"}
)


class Word(NamedTuple):
    """A word after expansion. `dynamic`: part of it is known only when it runs. `globbed`: an unquoted * ? or [."""

    text: str
    dynamic: bool = False
    globbed: bool = False


class Redirect(NamedTuple):
    operator: str
    target: Word


class Simple(msgspec.Struct):
    """One program start: its words, where its output goes, and whether something is piped into it."""

    words: list[Word]
    redirects: list[Redirect]
    piped: bool = False  # its input is the output of the command before it in the list

    @property
    def name(self) -> str:
        return self.words[0].text if self.words else ""


class Parsed(msgspec.Struct):
    """Every program start found, nested ones after the one that holds them. `unclear` says what could not be read."""

    commands: list[Simple]
    unclear: str = ""
    text: str = ""  # the line as it was read: compatibility forms folded, invisible characters gone


def parse(line: str, *, depth: int = 0, variables: dict[str, Word] | None = None) -> Parsed:
    """What a shell would make of this line. Never raises."""
    text = _INVISIBLE.sub("", unicodedata.normalize("NFKC", line)).replace("\\\n", "")
    if depth > 8:
        return Parsed([], "nested too deeply", text)
    reader = _Reader(text, depth, dict(variables or {}))
    reader.read()
    return Parsed(reader.commands[:MAX_COMMANDS], reader.unclear, text)


class _Reader:
    def __init__(self, text: str, depth: int, variables: dict[str, Word]) -> None:
        self.text, self.at, self.depth = text, 0, depth
        self.variables = variables
        self.commands: list[Simple] = []
        self.nested: list[Simple] = []
        self.unclear = ""
        self._start()

    def _start(self, *, piped: bool = False) -> None:
        self.current = Simple([], [], piped)
        self.redirect = ""

    def read(self) -> None:
        while self.at < len(self.text) and len(self.commands) <= MAX_COMMANDS:
            char = self.text[self.at]
            if char in " \t\r":
                self.at += 1
            elif char == "#" and (self.at == 0 or self.text[self.at - 1] in " \t\n;&|("):
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif not self._operator():
                self._take(self._word())
        self._end()
        if len(self.commands) > MAX_COMMANDS:
            self.unclear = "too many commands"

    def _operator(self) -> bool:
        """Consumes an operator or the beginning of a redirection, if one stands here."""
        rest = self.text[self.at : self.at + 3]
        if rest.startswith(("<(", ">(")):
            return False  # process substitution is part of a word
        for sign in _REDIRECTS:
            if rest.startswith(sign):
                if self.current.words and self.current.words[-1].text.isdigit() and self.text[self.at - 1].isdigit():
                    self.current.words.pop()  # the file descriptor in `2>`
                self.redirect = sign
                self.at += len(sign)
                return True
        for sign in _OPERATORS:
            if rest.startswith(sign):
                self.at += len(sign)
                self._end(piped=sign in ("|", "|&"))
                return True
        return False

    def _take(self, words: list[Word]) -> None:
        if self.redirect and words:
            self.current.redirects.append(Redirect(self.redirect, words.pop(0)))
            self.redirect = ""
        for word in words:
            if not self.current.words:
                if word.text in _KEYWORDS and not word.dynamic:
                    continue
                if assigned := _ASSIGNMENT.fullmatch(word.text):
                    self.variables[assigned[1]] = Word(assigned[2], word.dynamic)
                    continue
            self.current.words.append(word)

    def _end(self, *, piped: bool = False) -> None:
        if self.current.words or self.current.redirects:
            self.commands.append(self.current)
        self.commands += self.nested
        self.nested = []
        self._start(piped=piped)

    # ── words ────────────────────────────────────────────────────────────────────────────────────────────────

    def _word(self) -> list[Word]:
        """One word of the line; several where an expansion splits it."""
        parts: list[list[str]] = [[]]  # pieces of each word that this one becomes
        dynamic = globbed = quoted = False
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t\r\n;|&()" or (char in "<>" and self.text[self.at + 1 : self.at + 2] != "("):
                break
            if char == "\\":
                parts[-1].append(self.text[self.at + 1 : self.at + 2])
                self.at += 2
            elif char == "'":
                parts[-1].append(self._until("'"))
                quoted = True
            elif char == '"':
                piece, unknown = self._double_quoted()
                parts[-1].append(piece)
                dynamic, quoted = dynamic or unknown, True
            elif char in "$`<>":
                piece, unknown, split = self._expansion()
                dynamic |= unknown
                first, *more = piece.split() or [""] if split else [piece]
                parts[-1].append(first)
                parts += [[word] for word in more]
                if split and piece.isspace():
                    parts.append([])  # $IFS: a blank that is not written as one
            else:
                globbed |= char in "*?["
                parts[-1].append(char)
                self.at += 1
        words = ["".join(pieces) for pieces in parts]
        expanded = [w for word in words for w in (_braces(word) if not quoted else [word])]
        return [Word(w, dynamic, globbed) for w in expanded if w or quoted or dynamic]

    def _until(self, end: str) -> str:
        """The text between the quote that stands here and the next `end`."""
        close = self.text.find(end, self.at + 1)
        if close < 0:
            self.unclear = "an unclosed quote"
            close = len(self.text)
        piece, self.at = self.text[self.at + 1 : close], close + 1
        return piece

    def _double_quoted(self) -> tuple[str, bool]:
        pieces: list[str] = []
        dynamic = False
        self.at += 1
        while self.at < len(self.text) and self.text[self.at] != '"':
            char = self.text[self.at]
            if char == "\\":
                following = self.text[self.at + 1 : self.at + 2]
                pieces.append(following if following in '"\\$`' else char + following)
                self.at += 2
            elif char in "$`":
                piece, unknown, _ = self._expansion()
                pieces.append(piece)
                dynamic |= unknown
            else:
                pieces.append(char)
                self.at += 1
        if self.at >= len(self.text):
            self.unclear = "an unclosed quote"
        self.at += 1
        return "".join(pieces), dynamic

    def _expansion(self) -> tuple[str, bool, bool]:
        """What stands at a $, a backtick or a process substitution: (text, dynamic, split into words)."""
        rest = self.text[self.at :]
        if rest.startswith("$'"):
            return self._ansi_c(), False, False
        if rest.startswith('$"'):
            self.at += 1
            return *self._double_quoted(), False
        if rest.startswith("`"):
            return self._substituted(self._until("`").replace("\\`", "`"))
        if rest.startswith(("$(", "<(", ">(")):
            self.at += 1
            inner = self._balanced("(", ")")
            return self._substituted(inner[1:-1] if inner.startswith("(") and inner.endswith(")") else inner)
        if rest.startswith("${"):
            self.at += 1
            return self._parameter(self._balanced("{", "}"))
        if name := _NAME.match(rest, 1):
            self.at += name.end()
            return self._variable(name[0])
        self.at += 1 if rest[:1] in "<>" or len(rest) < 2 else 2
        return ("$", False, False) if rest == "$" else ("", True, False)

    def _ansi_c(self) -> str:
        end = self.at + 2
        while end < len(self.text) and self.text[end] != "'":
            end += 2 if self.text[end] == "\\" else 1
        piece, self.at = self.text[self.at + 2 : end], end + 1
        return _ANSI_C.sub(_ansi_c_char, piece)

    def _substituted(self, inner: str) -> tuple[str, bool, bool]:
        """A nested command line: its commands count too, and what it prints is known only for a plain echo."""
        parsed = parse(inner, depth=self.depth + 1, variables=self.variables)
        self.nested += parsed.commands
        self.unclear = self.unclear or parsed.unclear
        if len(parsed.commands) == 1 and not parsed.commands[0].redirects:
            words = parsed.commands[0].words
            if words and words[0].text in ("echo", "printf") and not any(w.dynamic for w in words):
                shown = " ".join(w.text for w in words[1:] if not w.text.startswith("-"))
                return _ANSI_C.sub(_ansi_c_char, shown), False, True
        return "", True, True

    def _parameter(self, inner: str) -> tuple[str, bool, bool]:
        body = inner.removeprefix("{").removesuffix("}")
        name = _NAME.match(body)
        if name is None:
            return "", True, True
        operator = body[name.end() :]
        if not operator:
            return self._variable(name[0])
        if operator.startswith((":-", "-", ":=", "=")) and name[0] not in self.variables:
            default = operator.lstrip(":")[1:]
            return default, True, True
        return "", True, True

    def _variable(self, name: str) -> tuple[str, bool, bool]:
        if name == "IFS":
            return " ", False, True
        if name == "HOME":
            return "~", False, True
        known = self.variables.get(name)
        return (known.text, known.dynamic, True) if known else ("", True, True)

    def _balanced(self, opening: str, closing: str) -> str:
        """The bracketed text that starts here, brackets included, quotes respected."""
        start, level, quote = self.at, 0, ""
        while self.at < len(self.text):
            char = self.text[self.at]
            self.at += 1
            if char == "\\":
                self.at += 1
            elif quote:
                quote = "" if char == quote else quote
            elif char in "'\"":
                quote = char
            elif char == opening:
                level += 1
            elif char == closing:
                level -= 1
                if level == 0:
                    return self.text[start : self.at]
        self.unclear = f"an unclosed {opening}"
        return self.text[start:]


def _braces(word: str) -> list[str]:
    """Brace expansion: `{rm,-rf,/}` is three words."""
    found = _BRACES.search(word)
    if found is None or len(word) > 2000:
        return [word]
    whole = [word[: found.start()] + middle + word[found.end() :] for middle in found[1].split(",")]
    return [w for part in whole[:64] for w in _braces(part)]


def _ansi_c_char(match: re.Match[str]) -> str:
    code = match[1]
    try:
        if code[0] in "xuU":
            return chr(int(code[1:], 16))
        if code[0] in "01234567":
            return chr(int(code, 8) & 0xFF)
    except (ValueError, OverflowError):
        return ""
    return {"n": "\n", "t": "\t", "r": "\r", "a": "", "b": "", "e": "", "f": "", "v": ""}.get(code, code)
