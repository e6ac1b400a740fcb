"""Takes the here-documents out of a shell line, so that their text is data and never read as commands.

The grammar ends a document at a line that only begins with the delimiter, and reads `<<EOF;` as the delimiter `EOF;`.
bash ends a document at the first line that equals the delimiter, as here (M153).
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_HEREDOCS = 20
_HEREDOC = re.compile(
    rb"(?<!<)<<(?P<tabs>-?)[ \t]*"
    rb"(?:'(?P<single>\w+)'|\"(?P<double>\w+)\"|\\(?P<escaped>\w+)|(?P<bare>\w+))(?![^\s;&|<>])"
)
# What may follow `<<EOF` on its line without moving the place where the document begins.
_SIMPLE_REST = re.compile(rb"(?:[^'\"`\\\n()#<]|<(?!<)|'[^'\n]*'|\"(?:[^\"`\\\n$]|\$(?!\())*\")*\n")


class HereDocument(NamedTuple):
    text: str
    quoted: bool


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
            kept.append(source[at : found.end()])
            at = found.end()
        else:
            head = source[at : found.start()]
            documents[size + len(head)] = HereDocument(text.decode("utf-8", "replace"), quoted is not None)
            kept.append(head + b"<x" + rest[0].removesuffix(b"\n"))
            at = end.end()
        size += len(kept[-1])
    return b"".join([*kept, source[at:]]), documents
