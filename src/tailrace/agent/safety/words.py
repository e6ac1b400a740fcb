"""The words and commands that a shell line becomes, and the expansions that need no shell.

Pure values and functions. `shell` reads a line into them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

MAX_BRACE_WORDS = 64
_PLAIN_WORD = re.compile(r"[a-zA-Z0-9_./:=+@%-]+")
_BRACES = re.compile(r"\{([^{}]*)\}")
_ANSI_C = re.compile(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}|.)", re.DOTALL)
_CONTROL_CHARS = {"n": "\n", "t": "\t", "r": "\r", "a": "", "b": "", "e": "", "f": "", "v": ""}
_INVISIBLE = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\u00ad]")
_QUOTED_BRACES = str.maketrans("{,}", "\ue000\ue001\ue002")  # braces in quotes do not expand
_PLAIN_BRACES = str.maketrans("\ue000\ue001\ue002", "{,}")


class Word(NamedTuple):
    """A word after expansion. `dynamic`: part of it is known only when it runs. `globbed`: an unquoted * ? or [.
    `listed`: the dynamic part is one of several names that the line itself lists, none of them an option, an absolute
    path or one with `..`; the text has one of them."""

    text: str
    dynamic: bool = False
    globbed: bool = False
    listed: bool = False


UNKNOWN = Word("", dynamic=True)


class Redirect(NamedTuple):
    """`target` is the file; for `<<` and `<<<` it is the text that is fed to the program."""

    operator: str
    target: Word


class SimpleCommand(msgspec.Struct, eq=False):
    """One program start: its words, its redirections, the variables that are set for it or alone, and whether its input
    comes from another command or a group. `upstream` are the commands before it in its pipeline, where each part of the
    pipeline is one command."""

    words: list[Word]
    redirects: list[Redirect]
    piped: bool = False
    assignments: list[tuple[str, Word]] = []
    upstream: tuple[SimpleCommand, ...] = ()

    @property
    def name(self) -> str:
        return self.words[0].text if self.words else ""

    @property
    def fed(self) -> bool:
        """Its input is not the terminal."""
        return self.piped or any(redirect.operator.startswith("<") for redirect in self.redirects)


class ShellLine(msgspec.Struct):
    """Every program start found. `unclear` says what cannot be judged. `fork_bomb`: a function pipes into itself."""

    commands: list[SimpleCommand]
    unclear: str = ""
    fork_bomb: bool = False


def names(text: str) -> frozenset[str]:
    """A set of names, written with blanks between them."""
    return frozenset(text.split())


class Piece(NamedTuple):
    """Part of a word. `quoted` text neither splits nor expands; `expanded` text splits at blanks."""

    text: str
    dynamic: bool = False
    quoted: bool = False
    expanded: bool = False
    listed: bool = False


def split_words(pieces: Sequence[Piece]) -> list[Word] | None:
    """One word of these pieces; several where an expansion splits it. None where braces give too many."""
    if len(pieces) == 1 and _PLAIN_WORD.fullmatch(pieces[0].text):
        return [Word(pieces[0].text, pieces[0].dynamic, listed=pieces[0].listed)]
    parts: list[list[str]] = [[]]
    for piece in pieces:
        if piece.expanded and not piece.quoted:
            first, *more = piece.text.split() or [""]
            parts[-1].append(first)
            parts += [[word] for word in more]
            if piece.text.isspace():
                parts.append([])  # $IFS: a blank that is not written as one
        else:
            parts[-1].append(piece.text.translate(_QUOTED_BRACES) if piece.quoted else piece.text)
    dynamic = any(piece.dynamic for piece in pieces)
    listed = dynamic and all(piece.listed for piece in pieces if piece.dynamic)
    globbed = any(
        (piece.listed or not (piece.quoted or piece.expanded)) and re.search(r"[*?\[]", piece.text) for piece in pieces
    )
    keep_empty = dynamic or any(piece.quoted for piece in pieces)
    words: list[Word] = []
    for part in parts:
        expanded = expand_braces("".join(part))
        if expanded is None:
            return None
        for word in expanded:
            unknown = dynamic or bool(re.search(r"\{[^{},]*\.\.", word))
            if word or keep_empty:
                folded = unicodedata.normalize("NFKC", word.translate(_PLAIN_BRACES))
                words.append(Word(_INVISIBLE.sub("", folded), unknown, globbed, listed and unknown == dynamic))
    return words


def expand_braces(word: str) -> list[str] | None:
    """Brace expansion: `{rm,-rf,/}` is three words. None where there are more than MAX_BRACE_WORDS."""
    done: list[str] = []
    waiting = [word]
    while waiting:
        word = waiting.pop()
        found = next((match for match in _BRACES.finditer(word) if "," in match[1]), None)
        if found is None:
            done.append(word)
        else:
            head, tail = word[: found.start()], word[found.end() :]
            waiting += [head + middle + tail for middle in reversed(found[1].split(","))]
        if len(done) + len(waiting) > MAX_BRACE_WORDS:
            return None
    return done


def decode_ansi_c(text: str) -> str:
    """The text of `$'…'`."""
    return _ANSI_C.sub(_ansi_c_char, text)


def _ansi_c_char(match: re.Match[str]) -> str:
    code = match[1]
    try:
        if code[0] in "xuU":
            return chr(int(code[1:], 16))
        if code[0] in "01234567":
            return chr(int(code, 8) & 0xFF)
    except (ValueError, OverflowError):
        return match[0]
    return _CONTROL_CHARS.get(code, code if code in "'\"\\?" else match[0])
