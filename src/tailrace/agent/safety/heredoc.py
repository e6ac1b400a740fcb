"""Prepares a shell line for the grammar: cuts a long line, replaces what the grammar misreads, lifts here-documents.

The here-documents are taken out of the line, so that their text is data and never read as commands.
The grammar ends a document at a line that only begins with the delimiter, and reads `<<EOF;` as the delimiter `EOF;`.
bash ends a document at the first line that equals the delimiter, as here (M153).
"""

from __future__ import annotations

import re
from itertools import islice
from typing import NamedTuple

MAX_HEREDOCS = 20
MAX_BYTES = 16_000  # here-documents do not count
MAX_OPERATORS = 500  # parentheses, pipes and `<`: the grammar's error recovery is quadratic in them
_OPERATORS = re.compile(rb"[()|<]")
# The grammar skips an escaped blank that does not follow a plain character, goes on past a line end before a backslash,
# separates words at blanks that are none for bash, and stops at a NUL.
_MISREAD = re.compile(r"(?<![\w./:\\-])\\[ \t]|\n[ \t]*\\|\\?(?:\0|[^\S\n\t ])")
_HEREDOC = re.compile(
    rb"(?<!<)<<(?P<tabs>-?)[ \t]*"
    rb"(?:'(?P<single>\w+)'|\"(?P<double>\w+)\"|\\(?P<escaped>\w+)|(?P<bare>\w+))(?![^\s;&|<>])"
)
# The rest of the line behind `<<EOF` that does not move the place where the document begins.
_SIMPLE_REST = re.compile(rb"(?:[^'\"`\\\n()#<]|<(?!<)|'[^'\n]*'|\"(?:[^\"`\\\n$]|\$(?!\())*\")*\n")
_BACKTICKS = re.compile(r"\\.|`((?:[^`\\]|\\.)*)`", re.DOTALL)
_DELIMITER = "end-of-the-lifted-document"


class HereDocument(NamedTuple):
    text: str
    quoted: bool

    @property
    def substitutions(self) -> str:
        """A line that runs what the document runs, with no backticks, which the grammar does not know in documents."""
        if self.quoted or not re.search(r"\$[(\[]|`|\$\{(?!\w+\})", self.text):
            return ""
        text = _BACKTICKS.sub(lambda found: found[0] if found[1] is None else f"$({found[1]})", self.text)
        return f"cat <<{_DELIMITER}\n{text}{_DELIMITER}\n"


def lift_heredocs(source: bytes) -> tuple[bytes, dict[int, HereDocument]]:
    """The line with each here-document as a file that is read, and the documents by the offset of their `<`.

    A `<<` in quotes or in a comment is taken for a document too: the caller checks each offset against the grammar.
    A document whose end depends on more than its lines is left in place.
    """
    kept: list[bytes] = []
    documents: dict[int, HereDocument] = {}
    at = size = 0
    while len(kept) < MAX_HEREDOCS and (found := _HEREDOC.search(source, at)):
        quoted = found["single"] or found["double"] or found["escaped"]
        last_line = rb"^%s%s(?P<closed>[)`].*)?$" % (rb"\t*" if found["tabs"] else b"", quoted or found["bare"])
        rest = _SIMPLE_REST.match(source, found.end())
        end = re.compile(last_line, re.MULTILINE).search(source, rest.end()) if rest else None
        text = source[rest.end() : end.start()] if rest and end else b""
        if rest is None or end is None or end["closed"] or (not quoted and text.endswith(b"\\\n")):
            if rest and not end:  # bash ends it where the line ends
                source += b"\n" + (quoted or found["bare"])
            kept.append(source[at : found.end()])
            at = found.end()
        else:
            head = source[at : found.start()]
            documents[size + len(head)] = HereDocument(text.decode("utf-8", "replace"), quoted is not None)
            kept.append(head + b"<x" + rest[0].removesuffix(b"\n"))
            at = end.end()
        size += len(kept[-1])
    return b"".join([*kept, source[at:]]), documents


def cut_line(source: bytes) -> bytes:
    """The part of the line within the bounds, with no half word at its end: that may name another file."""
    operator = next(islice(_OPERATORS.finditer(source), MAX_OPERATORS, None), None)
    end = min(MAX_BYTES, operator.start() if operator else MAX_BYTES)
    return source if len(source) <= end else source[: max(0, *(source.rfind(blank, 0, end) for blank in b" \t\n;&|"))]


def replace_misread(source: bytes) -> bytes:
    return _MISREAD.sub(_replacement, source.decode("utf-8", "replace")).encode()


def _replacement(misread: re.Match[str]) -> str:
    """As many bytes. An escaped blank is part of a word; the other characters become blanks, and line ends stay."""
    filler = b"_" if misread[0] in ("\\ ", "\\\t") else b" "
    return re.sub(rb"[^\n]", filler, misread[0].encode()).decode()
