"""How the transcript looks: every piece as lines of styled text, for a width.

Owns colours and indentation. A message begins with a mark and stands two columns to its right: no line is as wide as
the window, so that nothing folds when the window gets narrower. Knows no terminal: the screen writes the lines.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from typing import ClassVar, Final, TypeAlias

import msgspec
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.padding import Padding
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.text import Text
from rich.theme import Theme

from tailrace.cli.screen.markdown_blocks import Block
from tailrace.cli.screen.markdown_table import MarkdownTable
from tailrace.delivery.text.parser import parser
from tailrace.delivery.text.readable_math import readable
from tailrace.system.private_apis import color_system

Line: TypeAlias = list[Segment]
MAX_WIDTH: Final = 100  # longer lines are hard to read
INDENT: Final = 2
MESSAGE_MARK: Final = "● "
USER_MARK: Final = "❯ "
CODE_THEME: Final = "ansi_dark"  # the terminal's own sixteen colours: right on any background
DIFF_STYLES: Final = {"+": "green", "-": "red"}  # of a line, by how it begins
_FIRST_COLUMN: Final = re.compile(r" *\S+(?: \S+)*(?:  +)(?=\S)")
_THEME: Final = Theme(
    {
        "markdown.h1": "bold underline",
        "markdown.h2": "bold",
        "markdown.h3": "bold",
        "markdown.h4": "bold dim",
        "markdown.code": "cyan",
        "markdown.code_block": "none",
        "markdown.block_quote": "italic dim",
        "markdown.hr": "dim",
        "markdown.item.bullet": "dim",
        "markdown.item.number": "dim",
        "markdown.link": "underline",
        "markdown.link_url": "dim",
        "markdown.table.border": "dim",
        "markdown.table.header": "bold",
    }
)

_BOXES: Final = {"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "}


def tokens_of(text: str, *, start: int | None = None) -> list[Token]:
    """`start` is the first number of a numbered list, where the text is a later part of one."""
    tokens = parser().parse(readable(text))
    if start is not None and tokens and tokens[0].type == "ordered_list_open":
        tokens[0].attrs["start"] = start
    _mark_tasks(tokens)
    for token in tokens:
        if token.children and any(child.type == "image" for child in token.children):
            token.children = [_image(child) if child.type == "image" else child for child in token.children]
    return tokens


def _mark_tasks(tokens: Sequence[Token]) -> None:
    for item, paragraph, inline in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if item.type == "list_item_open" and paragraph.type == "paragraph_open" and inline.children:
            first = inline.children[0]
            if (box := _BOXES.get(first.content[:4])) is not None and first.type == "text":
                first.content = box + first.content[4:]


def _image(token: Token) -> Token:
    return Token("text", "", 0, content=f"[image: {token.content or 'no description'}] ({token.attrs.get('src', '')})")


# ── the pieces ───────────────────────────────────────────────────────────────────────────────────────────────


class BlockPiece(msgspec.Struct, frozen=True):
    """A block of a message; `first` of it or not. The first has the box's top border above it, with this title."""

    block: Block
    first: bool = False
    title: str = ""


class BoxEnd(msgspec.Struct, frozen=True):
    """The bottom border of a message's box."""

    text: str = ""


class UserMessage(msgspec.Struct, frozen=True):
    """What the user sent: a message, or a command."""

    text: str
    style: str = "bold"


class ReasoningLine(msgspec.Struct, frozen=True):
    """One line of the model's reasoning."""

    text: str


class ToolLine(msgspec.Struct, frozen=True):
    """`ok` is None while the tool runs."""

    name: str
    preview: str = ""
    duration_s: float = 0.0
    ok: bool | None = None
    mark: str = ""  # instead of the usual one: a frame of the spinner
    note: str = ""  # beside the preview: an exit code, the lines that changed
    number: int = 0  # by which `/show` finds it; 0: by none


class NoticeLine(msgspec.Struct, frozen=True):
    """A message of the program, not of the model."""

    text: str
    style: str = "dim"
    indent: int = INDENT


class Rows(msgspec.Struct, frozen=True):
    """Lines of styled text, each folded where it is too long. A span is its text and its style."""

    rows: tuple[tuple[tuple[str, str], ...], ...]
    indent: int = INDENT


class ApprovalQuestion(msgspec.Struct, frozen=True):
    """An approval: the whole command that would run, where, and for whom. `is_edit`: it is the difference of a file."""

    tool_name: str
    reason: str
    command: str
    scope: str = ""
    is_edit: bool = False


Piece: TypeAlias = BlockPiece | BoxEnd | UserMessage | ReasoningLine | ToolLine | NoticeLine | Rows | ApprovalQuestion


# ── Markdown ─────────────────────────────────────────────────────────────────────────────────────────────────


class _LeftHeading(Heading):
    """Headings stay at the left: a message is no page."""

    LEVEL_ALIGN: ClassVar = {}


class _Listing:
    """Code, its language above it. A line that is too long goes on below itself, a little to the right of where its own
    code begins."""

    def __init__(self, code: str, language: str, *, labelled: bool = True) -> None:
        self._code = code
        self._language = language
        self._labelled = labelled and bool(language)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._labelled:
            yield Text(self._language, "dim italic", no_wrap=True, overflow="ellipsis")
        width = options.max_width
        for line in _highlighted(self._code, self._language).split("\n", allow_blank=True):
            line.expand_tabs(4)
            if line.cell_len <= width:
                yield line
                continue
            indent = min(len(line.plain) - len(line.plain.lstrip(" ")), width // 2)
            hang = min(indent + 2, width // 2)
            for number, piece in enumerate(line[indent:].wrap(console, max(1, width - hang), overflow="fold")):
                piece.rstrip()
                yield Text.assemble(" " * (hang if number else indent), piece, no_wrap=True)


class _Code(CodeBlock):
    """A listing within another block: no background, no margin of its own."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        language = "" if self.lexer_name == "text" else self.lexer_name
        yield Padding(_Listing(str(self.text).rstrip(), language), (0, 0, 0, INDENT), expand=False)


class _Markdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
        "fence": _Code,
        "code_block": _Code,
        "table_open": MarkdownTable,
    }

    def __init__(self, tokens: list[Token]) -> None:
        super().__init__("", code_theme=CODE_THEME, hyperlinks=False)  # what a link leads to is shown, not hidden
        self.parsed = tokens


def _highlighted(code: str, language: str) -> Text:
    text = Syntax("", language or "text", theme=CODE_THEME, background_color="default").highlight(code)
    text.rstrip()
    return text


# ── lines ────────────────────────────────────────────────────────────────────────────────────────────────────


class Painter:
    """Renders pieces as lines."""

    def __init__(self, console: Console | None = None) -> None:
        """`console` tells which colours there are; nothing is written to it."""
        self._console = console or Console(file=io.StringIO(), color_system=None)
        self._console.push_theme(_THEME)

    def lines(self, pieces: Iterable[Piece], width: int) -> list[Line]:
        return [line for piece in pieces for line in self._piece(piece, width)]

    def ansi(self, lines: Iterable[Line]) -> str:
        """The lines with escape sequences and line ends."""
        system = color_system(self._console)
        plain = self._console.no_color
        out: list[str] = []
        for line in lines:
            for segment in line:
                style = segment.style
                if style is not None and plain:
                    style = style.without_color
                out.append(style.render(segment.text, color_system=system) if style else segment.text)
            out.append("\r\n")
        return "".join(out)

    def _piece(self, piece: Piece, width: int) -> list[Line]:
        match piece:
            case BlockPiece(block, first, title):
                lines = self._block(block, width, first=first)
                return [[], *self._border("╭", title, width), *lines[1:]] if first and lines else lines
            case BoxEnd(text):
                return self._border("╰", text, width)
            case UserMessage(text, style):
                return [[], *self._text(text, style, width, lead=USER_MARK)]
            case ReasoningLine(text):
                return self._text(text, "dim italic", width, indent=INDENT)
            case ToolLine():
                return self._tool(piece, width)
            case NoticeLine(text, style, indent):
                return self._text(text, style, width, indent=indent)
            case Rows(rows, indent):
                return [line for row in rows for line in self._row(row, width, indent)]
            case ApprovalQuestion(tool_name, reason, command, scope, is_edit):
                styles = [DIFF_STYLES.get(line[:1], "") if is_edit else "bold" for line in command.split("\n")]
                wants = "wants to change a file:" if is_edit else f"wants to run ({reason}):"
                shown = zip(command.split("\n"), styles, strict=True)
                return [
                    [],
                    *self._text(f"{tool_name} {wants}", "bold yellow", width, indent=INDENT),
                    [],
                    *(
                        row
                        for line, style in shown
                        for row in self._text(line, style, width, indent=2 * INDENT) or [[]]
                    ),
                    [],
                    *(self._text(scope, "dim", width, indent=INDENT) if scope else []),
                ]

    def _border(self, corner: str, text: str, width: int) -> list[Line]:
        line = Text(f"{corner}─ {text} " if text else f"{corner}─", "dim cyan", no_wrap=True)
        room = _used_width(width) - 1
        line.append("─" * (room - line.cell_len))
        line.truncate(room, overflow="ellipsis")
        return self._render(line, room)

    def _row(self, row: tuple[tuple[str, str], ...], width: int, indent: int) -> list[Line]:
        room = max(1, _used_width(width) - indent - 1)
        return _indented(self._folded(Text.assemble(*row, tab_size=4), room), indent) or [[]]

    def _folded(self, text: Text, width: int) -> list[Line]:
        """A line that is too long goes on below itself: below its second column where it has two, else a little to the
        right of where it begins."""
        text.expand_tabs()
        if text.cell_len <= width:
            return self._render(text, width) or [[]]
        begins = min(len(text.plain) - len(text.plain.lstrip(" ")), width // 2)
        columns = _FIRST_COLUMN.match(text.plain)
        if columns and columns.end() <= 2 * width // 3:
            begins = hang = columns.end()
        else:
            hang = min(begins + 2, width // 2) if begins else 0
        first, *rest = text[begins:].wrap(self._console, max(1, width - hang), overflow="fold")
        pieces = [Text.assemble(text[:begins], first), *(Text.assemble(" " * hang, piece) for piece in rest)]
        return [line for piece in pieces for line in self._render(piece, width)]

    def _block(self, block: Block, width: int, *, first: bool) -> list[Line]:
        """A listing has the whole window: a line end that the screen puts into code is copied with it. So has a table:
        its columns are as wide as they need."""
        indent = INDENT if block.kind == "markdown" else 2 * INDENT
        if block.kind == "markdown":
            tokens = tokens_of(block.text, start=block.start)
            is_table = bool(tokens) and tokens[0].type == "table_open"
            content = max(1, (max(10, width) if is_table else _used_width(width)) - indent - 1)
            lines = _trimmed(self._render(_Markdown(tokens), content))
        else:
            listing = _Listing(block.text, block.info, labelled=not block.joined)
            lines = self._render(listing, max(1, max(10, width) - indent - 1))
        if not lines:
            return []
        lines = _indented(lines, indent)
        if first:
            mark = Segment(MESSAGE_MARK, Style(color="cyan", bold=True))
            lines[0] = [mark, *_without_indent(lines[0], len(MESSAGE_MARK))]
        return lines if block.joined else [[], *lines]

    def _tool(self, tool: ToolLine, width: int) -> list[Line]:
        mark, style = {True: ("✓", "green"), False: ("✗", "red"), None: ("·", "dim")}[tool.ok]
        line = Text.assemble((tool.mark or mark, style), " ", (tool.name, "bold"))
        note = Text(f"  {tool.note}" if tool.note else "", "red" if tool.ok is False else "")
        ended = f"  {tool.duration_s:.1f}s" if tool.duration_s or tool.ok is not False else ""
        ended += f"  #{tool.number}" if tool.number else ""
        room = max(0, _used_width(width) - INDENT - line.cell_len - note.cell_len - len(ended) - 3)
        preview = Text(tool.preview, "dim")
        preview.truncate(room, overflow="ellipsis")
        line = Text.assemble(line, "  " if preview else "", preview, note, (ended, "dim"), no_wrap=True)
        return _indented(self._render(line, width), INDENT)

    def _text(self, text: str, style: str, width: int, *, indent: int = 0, lead: str = "") -> list[Line]:
        """Every line of it, folded where it is too long."""
        room = max(1, _used_width(width) - indent - len(lead) - 1)
        lines = [line for one in text.split("\n") for line in self._folded(Text(one, style, tab_size=4), room)]
        if lead:
            lines = [
                [Segment(lead if not i else " " * len(lead), Style(dim=True)), *line] for i, line in enumerate(lines)
            ]
        return _indented(lines, indent)

    def _render(self, renderable: Text | Markdown | _Listing, width: int) -> list[Line]:
        options = self._console.options.update(width=width, height=None)
        return [_stripped(line) for line in self._console.render_lines(renderable, options, pad=False)]


def notice_room(width: int) -> int:
    """The columns of one line of a notice in a window of this width: a table that keeps to them is not folded."""
    return max(1, _used_width(width) - INDENT - 1)


def _used_width(width: int) -> int:
    return max(10, min(width, MAX_WIDTH))


def _indented(lines: list[Line], indent: int) -> list[Line]:
    lead = Segment(" " * indent)
    return [[lead, *line] if line and indent else line for line in lines]


def _without_indent(line: Line, columns: int) -> Line:
    """Without the blanks that its mark takes the place of."""
    if not line:
        return []
    first, *rest = line
    return [Segment(first.text[columns:], first.style), *rest] if len(first.text) > columns else rest


def _stripped(line: Line) -> Line:
    """Without trailing blanks: they would wrap when the window gets narrower."""
    while line and not line[-1].text.strip() and not (line[-1].style and line[-1].style.bgcolor):
        line = line[:-1]
    if line and line[-1].text != (text := line[-1].text.rstrip()):
        line = [*line[:-1], Segment(text, line[-1].style)]
    return line


def _trimmed(lines: list[Line]) -> list[Line]:
    """Without blank lines at either end: `_block` makes the gap between blocks."""
    first, last = 0, len(lines)
    while first < last and not lines[first]:
        first += 1
    while last > first and not lines[last - 1]:
        last -= 1
    return lines[first:last]
