"""How the transcript looks: every piece as lines of styled text, for a width.

Owns colours, indentation and the box. Knows no terminal: the screen writes the lines.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
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
from tailrace.delivery.text.parser import parser
from tailrace.private_apis import color_system

Line: TypeAlias = list[Segment]

MAX_WIDTH: Final = 100  # longer lines are hard to read
INDENT: Final = 2
NAME: Final = "tailrace"
CODE_THEME: Final = "ansi_dark"  # the terminal's own sixteen colours: right on any background
_MORE: Final = "…"
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


# ── the pieces ───────────────────────────────────────────────────────────────────────────────────────────────


class BoxTop(msgspec.Struct, frozen=True):
    """A message begins."""


class BoxBottom(msgspec.Struct, frozen=True):
    """A message has ended."""


class BlockPiece(msgspec.Struct, frozen=True):
    """A block of a message; `first` of it or not."""

    block: Block
    first: bool = False


class UserMessage(msgspec.Struct, frozen=True):
    """The user's message."""

    text: str


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


class NoticeLine(msgspec.Struct, frozen=True):
    """A message of the program, not of the model."""

    text: str
    style: str = "dim"
    indent: int = INDENT


class ApprovalQuestion(msgspec.Struct, frozen=True):
    """An approval: the whole command that would run, where, and for whom."""

    tool_name: str
    reason: str
    command: str
    scope: str = ""


Piece: TypeAlias = (
    BoxTop | BoxBottom | BlockPiece | UserMessage | ReasoningLine | ToolLine | NoticeLine | ApprovalQuestion
)


# ── Markdown ─────────────────────────────────────────────────────────────────────────────────────────────────


class _LeftHeading(Heading):
    """Headings stay at the left: a message is no page."""

    LEVEL_ALIGN: ClassVar = {}


class _Code(CodeBlock):
    """A listing within another block: no background, no margin of its own."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Padding(_highlighted(str(self.text).rstrip(), self.lexer_name), (0, 0, 0, INDENT), expand=False)


class _Markdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
        "fence": _Code,
        "code_block": _Code,
    }

    def __init__(self, tokens: list[Token]) -> None:
        super().__init__("", code_theme=CODE_THEME, hyperlinks=False)  # what a link leads to is shown, not hidden
        self.parsed = tokens


def _highlighted(code: str, language: str) -> Text:
    text = Syntax("", language or "text", theme=CODE_THEME, background_color="default").highlight(code)
    text.rstrip()
    text.no_wrap, text.overflow = False, "fold"
    return text


def _markdown(block: Block) -> Markdown:
    tokens = parser().parse(block.text)
    if block.start is not None and tokens and tokens[0].type == "ordered_list_open":
        tokens[0].attrs["start"] = block.start
    return _Markdown(tokens)


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
            case BoxTop():
                return [[], *self._border(f"╭─ {NAME} ", "╮", width)]
            case BoxBottom():
                return self._border("╰", "╯", width)
            case BlockPiece(block, first):
                return self._block(block, width, gap=not first and not block.joined)
            case UserMessage(text):
                return [[], *self._text(text, "bold", width, lead="❯ ")]
            case ReasoningLine(text):
                return self._text(text, "dim italic", width, indent=INDENT)
            case ToolLine():
                return self._tool(piece, width)
            case NoticeLine(text, style, indent):
                return self._text(text, style, width, indent=indent)
            case ApprovalQuestion(tool_name, reason, command, scope):
                return [
                    [],
                    *self._text(f"{tool_name} wants to run ({reason}):", "yellow", width, indent=INDENT),
                    [],
                    *self._text(command, "bold", width, indent=2 * INDENT),
                    [],
                    *(self._text(scope, "yellow", width, indent=INDENT) if scope else []),
                    *([[]] if scope else []),
                ]

    def _border(self, left: str, right: str, width: int) -> list[Line]:
        width = _box_width(width)
        return [[Segment(left + "─" * max(0, width - len(left) - 1) + right, Style(dim=True))]]

    def _block(self, block: Block, width: int, *, gap: bool) -> list[Line]:
        indent = INDENT if block.kind == "markdown" else 2 * INDENT
        content = _box_width(width) - indent - 1
        shown = _markdown(block) if block.kind == "markdown" else _highlighted(block.text, block.info)
        lines = self._render(shown, max(1, content))
        if block.kind == "markdown":
            lines = _trimmed(lines)
        if not lines:
            return []
        return [*([[]] if gap else []), *_indented(lines, indent)]

    def _tool(self, tool: ToolLine, width: int) -> list[Line]:
        mark, style = {True: ("✓", "green"), False: ("✗", "red"), None: ("·", "dim")}[tool.ok]
        line = Text.assemble((tool.mark or mark, style), " ", (tool.name, "dim bold"))
        time = f"  {tool.duration_s:.1f}s"
        room = max(0, _box_width(width) - INDENT - line.cell_len - len(time) - 3)
        preview = Text(tool.preview, "dim")
        preview.truncate(room, overflow="ellipsis")
        line = Text.assemble(line, "  ", preview, (time, "dim"), no_wrap=True)
        return _indented(self._render(line, width), INDENT)

    def _text(self, text: str, style: str, width: int, *, indent: int = 0, lead: str = "") -> list[Line]:
        """Every line of it, folded where it is too long."""
        room = max(1, _box_width(width) - indent - len(lead) - 1)
        lines = self._render(Text(text, style, overflow="fold", tab_size=4), room)
        if lead:
            lines = [
                [Segment(lead if not i else " " * len(lead), Style(dim=True)), *line] for i, line in enumerate(lines)
            ]
        return _indented(lines, indent)

    def _render(self, renderable: Text | Markdown, width: int) -> list[Line]:
        options = self._console.options.update(width=width, height=None)
        return [_stripped(line) for line in self._console.render_lines(renderable, options, pad=False)]


def _box_width(width: int) -> int:
    return max(10, min(width, MAX_WIDTH))


def _indented(lines: list[Line], indent: int) -> list[Line]:
    lead = Segment(" " * indent)
    return [[lead, *line] if line and indent else line for line in lines]


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
