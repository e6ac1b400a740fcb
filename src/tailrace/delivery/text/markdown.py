"""Markdown as models write it, read into a small tree that every platform's markup is written from.

Lines stay lines: a chat shows them as they were written. Understands headings, lists, quotes, fences, tables, rules,
emphasis, code spans, links. Anything else is text. Pure and linear: every delimiter is looked at a bounded number of
times. Never raises: there is no wrong Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

Style = Literal["bold", "italic", "strike"]


class Code(NamedTuple):
    text: str


class Styled(NamedTuple):
    style: Style
    children: list[Node]


class Link(NamedTuple):
    """`image`: the children are its description."""

    url: str
    children: list[Node]
    image: bool = False


Node: TypeAlias = "str | Code | Styled | Link"


class Paragraph(NamedTuple):
    """Lines that belong together, with their line ends."""

    children: list[Node]


class Heading(NamedTuple):
    level: int
    children: list[Node]


class Item(NamedTuple):
    """One line of a list. `marker` is "-" or a number with its dot; `indent` counts columns."""

    indent: int
    marker: str
    children: list[Node]


class Quote(NamedTuple):
    children: list[Node]


class CodeBlock(NamedTuple):
    info: str
    text: str


class Table(NamedTuple):
    """Cells by row; the first row is the head."""

    rows: list[list[list[Node]]]


class Rule(NamedTuple):
    pass


class Blank(NamedTuple):
    pass


Block: TypeAlias = Paragraph | Heading | Item | Quote | CodeBlock | Table | Rule | Blank

# ── inline ───────────────────────────────────────────────────────────────────────────────────────────────────

_TOKEN = re.compile(
    r"\\(?P<escaped>[!-/:-@\[-`{-~])"
    r"|(?P<ticks>`+)"
    r"|(?P<run>\*+|_+|~~+)"
    r"|(?P<open>!?\[)"
    r"|(?P<close>\])"
    r"|<(?P<auto>https?://[^\s<>]+)>"
)
_TARGET = re.compile(
    r"""\([ \t]*<?(?P<url>[^\s<>()]*(?:\([^\s()]*\)[^\s()]*)*)>?(?:[ \t]+(?:"[^"\n]*"|'[^'\n]*'))?[ \t]*\)"""
)
_MAX_NESTING = 32


class Delimiter:
    """A run of emphasis characters that has not found its match, or a bracket. Text until it does."""

    __slots__ = ("char", "closes", "count", "opens", "place")

    def __init__(self, char: str, count: int, place: int, *, opens: bool, closes: bool) -> None:
        self.char, self.count, self.place = char, count, place
        self.opens, self.closes = opens, closes


class InlineReader:
    """One stretch of text. `nodes` is what it says; `unmatched` what was opened and not closed, in order."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._out: list[Node | Delimiter] = []
        self._stack: list[int] = []  # places in `_out` of delimiters that may still open something
        self._waiting: dict[str, int] = {"*": 0, "_": 0, "~": 0, "[": 0}  # how many of each the stack holds
        self._code_ends = _tick_runs(text)
        self.open_code: int | None = None  # where backticks stand that text follows but no closing ones
        self._read()

    @property
    def nodes(self) -> list[Node]:
        return _merged(_literal(part) if isinstance(part, Delimiter) else part for part in self._out)

    @property
    def unmatched(self) -> list[Delimiter]:
        found = [part for part in self._out if isinstance(part, Delimiter)]
        return [part for part in found if part.count and (part.opens or part.char == "[")]

    def _read(self) -> None:
        text, at = self._text, 0
        while match := _TOKEN.search(text, at):
            if match.start() > at:
                self._out.append(text[at : match.start()])
            at = self._token(match)
        if at < len(text):
            self._out.append(text[at:])

    def _token(self, match: re.Match[str]) -> int:
        """Takes one token in and returns where the next begins."""
        match match.lastgroup:
            case "escaped":
                self._out.append(match["escaped"])
            case "ticks":
                return self._code(match)
            case "run":
                self._run(match)
            case "open":
                self._push(Delimiter(match["open"], 1, match.start(), opens=False, closes=False))
            case "close":
                return self._bracket(match)
            case _:
                self._out.append(Link(match["auto"], [match["auto"]]))
        return match.end()

    def _code(self, match: re.Match[str]) -> int:
        ticks, end = match["ticks"], match.end()
        ends = self._code_ends.get(len(ticks), [])
        while ends and ends[-1] < end:
            ends.pop()
        if not ends:
            if self.open_code is None and self._text[end:].strip():
                self.open_code = match.start()
            self._out.append(ticks)
            return end
        inside = self._text[end : ends[-1]]
        if len(inside) > 2 and inside[0] == inside[-1] == " " and inside.strip():
            inside = inside[1:-1]
        self._out.append(Code(inside))
        return ends[-1] + len(ticks)

    def _run(self, match: re.Match[str]) -> None:
        run = match["run"]
        before = self._text[match.start() - 1] if match.start() else " "
        after = self._text[match.end()] if match.end() < len(self._text) else " "
        opens, closes = not after.isspace(), not before.isspace()
        if run[0] == "_":  # not within a word: snake_case stays itself
            opens, closes = opens and not before.isalnum(), closes and not after.isalnum()
        delimiter = Delimiter(run[0], len(run), match.start(), opens=opens, closes=closes)
        if closes:
            self._match(delimiter)
        if delimiter.count and opens:
            self._push(delimiter)
        elif delimiter.count:
            self._out.append(delimiter)

    def _match(self, closer: Delimiter) -> None:
        """Closes what the run can close, innermost first. Whatever stood in between stays text."""
        while closer.count and self._waiting[closer.char] and (closer.char != "~" or closer.count >= 2):
            place = self._pop()
            opener = self._out[place]
            if not isinstance(opener, Delimiter) or opener.char != closer.char:
                if isinstance(opener, Delimiter) and opener.char.endswith("["):
                    self._restore(place)
                    return  # a link's text closes nothing outside of it
                continue
            size = 2 if min(opener.count, closer.count) >= 2 else 1
            style: Style = "strike" if closer.char == "~" else "bold" if size == 2 else "italic"
            children = _merged(
                _literal(part) if isinstance(part, Delimiter) else part for part in self._out[place + 1 :]
            )
            del self._out[place + 1 :]
            opener.count -= size
            closer.count -= size
            if opener.count:
                self._restore(place)
            else:
                self._out.pop()
            self._out.append(Styled(style, children))

    def _bracket(self, match: re.Match[str]) -> int:
        target = _TARGET.match(self._text, match.end()) if self._waiting["["] else None
        while self._waiting["["]:
            place = self._pop()
            opener = self._out[place]
            if isinstance(opener, Delimiter) and opener.char.endswith("["):
                if target is None:
                    break
                children = _merged(
                    _literal(part) if isinstance(part, Delimiter) else part for part in self._out[place + 1 :]
                )
                del self._out[place:]
                self._out.append(Link(target["url"], children, image=opener.char == "!["))
                return target.end()
        self._out.append("]")
        return match.end()

    def _push(self, delimiter: Delimiter) -> None:
        if len(self._stack) >= _MAX_NESTING:
            self._out.append(_literal(delimiter))
            return
        self._out.append(delimiter)
        self._restore(len(self._out) - 1)

    def _restore(self, place: int) -> None:
        part = self._out[place]
        if isinstance(part, Delimiter):
            self._stack.append(place)
            self._waiting[part.char[-1]] += 1

    def _pop(self) -> int:
        place = self._stack.pop()
        part = self._out[place]
        if isinstance(part, Delimiter):
            self._waiting[part.char[-1]] -= 1
        return place


def inline(text: str) -> list[Node]:
    return InlineReader(text).nodes


def _tick_runs(text: str) -> dict[int, list[int]]:
    """Where runs of backticks begin, by length, last one first."""
    runs: dict[int, list[int]] = {}
    for match in re.finditer("`+", text):
        runs.setdefault(len(match[0]), []).append(match.start())
    for places in runs.values():
        places.reverse()
    return runs


def _literal(delimiter: Delimiter) -> str:
    return delimiter.char * delimiter.count


def _merged(parts: Iterator[Node]) -> list[Node]:
    nodes: list[Node] = []
    for part in parts:
        if isinstance(part, str) and nodes and isinstance(nodes[-1], str):
            nodes[-1] += part
        elif part != "":
            nodes.append(part)
    return nodes


# ── blocks ───────────────────────────────────────────────────────────────────────────────────────────────────

FENCE = re.compile(r"(?P<indent>[ \t]*)(?P<marker>`{3,}(?=[^`]*$)|~{3,})(?P<info>.*)")
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*$")
_ITEM = re.compile(r"([ \t]*)([-*+]|\d{1,9}[.)])[ \t]+(.*)$")
_RULE = re.compile(r" {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$")
_QUOTE = re.compile(r" {0,3}> ?(.*)$")
TABLE_LINE = re.compile(r"[ \t]*\|")
TABLE_DELIMITER = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
_CELL_END = re.compile(r"(?<!\\)\|")


def closes_fence(line: str, marker: str) -> bool:
    """Whether the line ends a block that this marker opened (CommonMark 4.5)."""
    stripped = line.strip()
    return len(stripped) >= len(marker) and not stripped.strip(marker[0])


def blocks(text: str) -> list[Block]:
    lines = text.split("\n")
    found: list[Block] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if fence := FENCE.fullmatch(line):
            block, at = _code_block(lines, at, fence)
            found.append(block)
        elif TABLE_LINE.match(line) and at + 1 < len(lines) and TABLE_DELIMITER.fullmatch(lines[at + 1]):
            table, at = _table(lines, at)
            found.append(table)
        else:
            found.append(_line(line))
            at += 1
    return _joined(found)


def _code_block(lines: list[str], at: int, fence: re.Match[str]) -> tuple[Block, int]:
    indent, marker = len(fence["indent"]), fence["marker"]
    body: list[str] = []
    at += 1
    while at < len(lines) and not closes_fence(lines[at], marker):
        line = lines[at]
        body.append(line[min(indent, len(line) - len(line.lstrip())) :])
        at += 1
    return CodeBlock(fence["info"].strip().split(" ")[0], "\n".join(body)), at + 1


def _table(lines: list[str], at: int) -> tuple[Block, int]:
    rows = [_cells(lines[at])]
    at += 2
    while at < len(lines) and TABLE_LINE.match(lines[at]):
        rows.append(_cells(lines[at]))
        at += 1
    return Table(rows), at


def _cells(line: str) -> list[list[Node]]:
    return [inline(cell.strip().replace("\\|", "|")) for cell in _CELL_END.split(line.strip().removeprefix("|"))][
        : None if not line.rstrip().endswith("|") else -1
    ]


def _line(line: str) -> Block:
    if not line.strip():
        return Blank()
    if _RULE.match(line):
        return Rule()
    if heading := _HEADING.match(line):
        return Heading(len(heading[1]), inline(heading[2]))
    if item := _ITEM.match(line):
        marker = item[2] if item[2][0].isdigit() else "-"
        return Item(len(item[1].expandtabs(4)), marker, inline(item[3]))
    if quote := _QUOTE.match(line):
        return Quote([quote[1]])
    return Paragraph([line])


def _joined(found: list[Block]) -> list[Block]:
    """Neighbouring lines of one paragraph or quote become one: emphasis may reach over a line end."""
    result: list[Block] = []
    pending: list[str] = []
    kind: type[Paragraph | Quote] = Paragraph

    def flush() -> None:
        if pending:
            result.append(kind(inline("\n".join(pending))))
            pending.clear()

    for block in found:
        match block:
            case Paragraph([str(line)]) | Quote([str(line)]):
                if type(block) is not kind:
                    flush()
                    kind = type(block)
                pending.append(line)
            case _:
                flush()
                result.append(block)
    flush()
    return result
