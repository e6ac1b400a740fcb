"""The terminal: finished lines go to its scrollback, once; below them the moving lines and the input line.

Owns the prompt_toolkit application, the drawing and the keys. Knows no run: a `Transcript` supplies the pieces. One
draw is one write; there are at most twenty a second, and drawing never takes more than a tenth of the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final, Protocol, TextIO

from prompt_toolkit.application import Application, in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import History
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import BufferControl, ConditionalContainer, Dimension, FormattedTextControl, HSplit, Layout
from prompt_toolkit.layout.containers import Window
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from rich.style import Style

from tailrace.cli.screen.painter import Line, Painter
from tailrace.cli.screen.transcript import SPIN_EVERY_S, Transcript
from tailrace.private_apis import on_resize, redraw, runs_in_terminal

FRAME_S: Final = 0.05
IDLE_SHARE: Final = 9  # a draw is followed by a pause of nine times its duration
INPUT_ROWS: Final = 10
# DEC mode 2026, synchronised output: the terminal shows the frame at its end. Others ignore it.
BEGIN_FRAME: Final = "\x1b[?2026h"
END_FRAME: Final = "\x1b[?2026l"


class FrameOutput(Vt100_Output):
    """Writes a whole frame with one flush."""

    _holding = False

    @contextlib.contextmanager
    def frame(self) -> Iterator[None]:
        if self._holding:  # nested: the outer frame flushes
            yield
            return
        self._holding = True
        self.write_raw(BEGIN_FRAME)
        try:
            yield
        finally:
            self.write_raw(END_FRAME)
            self._holding = False
            self.flush()

    def flush(self) -> None:
        if not self._holding:
            super().flush()

    def erase_down(self) -> None:
        """Erases from the second column, and the line itself apart: when the first cell of the screen is erased, tmux
        copies the whole screen to its history, moving lines included."""
        self.write_raw("\x1b[K\x1b[C\x1b[J\x1b[D")


class ScreenListener(Protocol):
    """Receives the user's input."""

    def entered(self, text: str) -> None:
        """The user pressed Enter."""

    def interrupted(self) -> None:
        """Ctrl-C."""

    def status(self) -> str:
        """The line below the input."""


class TerminalScreen:
    """One terminal for the length of a conversation."""

    def __init__(
        self,
        transcript: Transcript,
        painter: Painter,
        listener: ScreenListener,
        *,
        source: Input,
        target: TextIO,
        history: History,
        commands: Iterable[str],
        environment: Callable[[str], str | None],
    ) -> None:
        self._transcript = transcript
        self._painter = painter
        self._listener = listener
        self._commands = sorted(commands)
        self._changed = asyncio.Event()
        self._moving: list[Line] = []
        self._draft: str | None = None  # the input that an approval question displaced
        self._input = Buffer(history=history, multiline=True)
        plain = bool(environment("NO_COLOR"))
        self._output = FrameOutput(
            target,
            lambda: _size_of(target),
            term=environment("TERM"),
            default_color_depth=ColorDepth.DEPTH_1_BIT if plain else None,
            enable_cpr=False,  # drawing does not depend on the cursor's position
        )
        self.app: Application[int] = Application(
            layout=Layout(self._layout(), focused_element=self._input),
            key_bindings=self._keys(),
            input=source,
            output=self._output,
            erase_when_done=True,
            full_screen=False,
            terminal_size_polling_interval=None,  # SIGWINCH tells
        )
        on_resize(self.app, self._resized)
        self._reflowing = _reflows(environment)
        self.app.ttimeoutlen = 0.05

    # ── drawing ──────────────────────────────────────────────────────────────────────────────────────────────

    def changed(self) -> None:
        """Schedules a draw."""
        self._changed.set()

    async def draw_forever(self) -> None:
        """Draws when something changed, and while the spinner turns."""
        while True:
            began = time.perf_counter()
            self._changed.clear()
            self.draw()
            await asyncio.sleep(max(FRAME_S, IDLE_SHARE * (time.perf_counter() - began)))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SPIN_EVERY_S if self._transcript.spinning else None):
                    await self._changed.wait()

    def draw(self) -> None:
        width = self._size.columns
        update = self._transcript.next_update()
        settled = self._painter.lines(update.settled, width)
        moving = self._painter.lines(update.moving, width)
        before, self._moving = len(self._shown_moving()), moving
        shrinks = len(self._shown_moving()) < before
        self._swap_draft()
        if not self.app.is_running or runs_in_terminal(self.app):
            if settled:
                self._output.write_raw(self._painter.ansi(settled))
                self._output.flush()
            return
        with self._output.frame():
            if settled or shrinks:
                self.app.renderer.erase(leave_alternate_screen=False)
                self._output.write_raw(self._painter.ansi(settled))
            redraw(self.app)

    def _resized(self) -> None:
        with self._output.frame():
            if self._reflowing:
                self._output.cursor_up(self._folded_rows())
            self.app.renderer.erase(leave_alternate_screen=False)
            self.draw()

    def _folded_rows(self) -> int:
        """How many rows higher the drawn lines have become: a terminal that reflows has folded the long ones."""
        drawn = self.app.renderer.last_rendered_screen
        if drawn is None:
            return 0
        cursor_row = drawn.get_cursor_position(self.app.layout.current_window).y
        widths = (
            max((column for column, char in drawn.data_buffer[row].items() if char.char.strip()), default=0)
            for row in range(cursor_row)
        )
        return sum(width // self._size.columns for width in widths)

    @property
    def _size(self) -> Size:
        return self._output.get_size()

    def _swap_draft(self) -> None:
        """An approval question takes the input line; the draft comes back afterwards."""
        if self._transcript.approval is not None and self._draft is None:
            self._draft = self._input.text
            self._input.reset()
        elif self._transcript.approval is None and self._draft is not None:
            if not self._input.text:
                self._input.reset(Document(self._draft))
            self._draft = None

    # ── layout ───────────────────────────────────────────────────────────────────────────────────────────────

    def _layout(self) -> HSplit:
        moving = Window(
            FormattedTextControl(self._moving_fragments),
            height=lambda: Dimension.exact(len(self._shown_moving())),
            wrap_lines=False,
            dont_extend_height=True,
        )
        entry = Window(
            BufferControl(self._input, input_processors=[BeforeInput(self._prompt)]),
            height=Dimension(min=1, max=INPUT_ROWS),
            wrap_lines=True,
            dont_extend_height=True,
        )
        hint = Window(FormattedTextControl(self._hint), height=1)
        return HSplit(
            [ConditionalContainer(moving, Condition(lambda: bool(self._moving))), Window(height=1), entry, hint]
        )

    def _shown_moving(self) -> list[Line]:
        """The last moving lines, half the window at most: when the window gets narrower and lines fold, all of them
        must still be on the screen to be drawn over."""
        return self._moving[-max(1, self._size.rows // 2) :]

    def _moving_fragments(self) -> StyleAndTextTuples:
        fragments: StyleAndTextTuples = []
        for number, line in enumerate(self._shown_moving()):
            if number:
                fragments.append(("", "\n"))
            fragments += [(_style(segment.style), segment.text) for segment in line]
        return fragments

    def _prompt(self) -> StyleAndTextTuples:
        if self._transcript.approval is not None:
            return [("fg:ansiyellow", "once, session, always or deny? ")]
        return [("bold", "❯ ")]

    def _hint(self) -> StyleAndTextTuples:
        text = self._input.text
        matching = self._matching(text)
        shown = "  ".join(matching) if matching and text not in matching else self._listener.status()
        return [("fg:ansibrightblack", f"  {shown}")]

    # ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        keys.add("enter")(self._enter)
        keys.add("escape", "enter")(lambda event: event.current_buffer.newline(copy_margin=False))
        keys.add("c-j")(lambda event: event.current_buffer.newline(copy_margin=False))
        keys.add("tab")(self._complete)
        keys.add("up")(lambda event: event.current_buffer.auto_up())
        keys.add("down")(lambda event: event.current_buffer.auto_down())
        keys.add("c-c")(lambda _: self._listener.interrupted())
        keys.add("<sigint>")(lambda _: self._listener.interrupted())
        keys.add("c-d", filter=Condition(lambda: not self._input.text))(lambda _: self.leave(0))
        keys.add("c-l")(lambda event: event.app.renderer.clear())
        return keys

    def _enter(self, event: KeyPressEvent) -> None:
        text = event.current_buffer.text
        if text.endswith("\\"):  # a continued line
            event.current_buffer.delete_before_cursor()
            event.current_buffer.newline(copy_margin=False)
            return
        if text.strip() and self._transcript.approval is None:
            event.current_buffer.append_to_history()
        event.current_buffer.reset()
        self._listener.entered(text)

    def _complete(self, event: KeyPressEvent) -> None:
        matching = self._matching(event.current_buffer.text)
        if matching:
            common = _common_start(matching) if len(matching) > 1 else matching[0] + " "
            event.current_buffer.reset(Document(common))

    def _matching(self, text: str) -> list[str]:
        return [name for name in self._commands if name.startswith(text)] if text.startswith("/") else []

    @property
    def typed(self) -> str:
        return self._input.text

    def clear_input(self) -> None:
        self._input.reset()

    # ── its life ─────────────────────────────────────────────────────────────────────────────────────────────

    def leave(self, code: int) -> None:
        if self.app.is_running and not self.app.is_done:
            self.app.exit(result=code)

    @contextlib.asynccontextmanager
    async def aside(self) -> AsyncIterator[None]:
        """Within the block, other code may write to the terminal."""
        async with in_terminal():
            yield


def _reflows(environment: Callable[[str], str | None]) -> bool:
    """Whether the terminal reflows lines when its width changes. Most do; the known exceptions are listed."""
    if environment("TMUX"):
        return True
    return not ((environment("TERM") or "").startswith(("linux", "screen")) or environment("XTERM_VERSION"))


def _size_of(target: TextIO) -> Size:
    try:
        columns, rows = os.get_terminal_size(target.fileno())
    except OSError:  # the terminal is closed
        columns, rows = 80, 24
    return Size(rows=rows or 24, columns=columns or 80)


def _common_start(words: list[str]) -> str:
    first, last = min(words), max(words)
    for at, char in enumerate(first):
        if char != last[at]:
            return first[:at]
    return first


@lru_cache(maxsize=256)
def _style(style: Style | None) -> str:
    """The style in prompt_toolkit's syntax."""
    if style is None:
        return ""
    words = [name for name in ("bold", "italic", "underline", "strike", "dim", "reverse") if getattr(style, name)]
    for color, ground in ((style.color, "fg"), (style.bgcolor, "bg")):
        if color is not None and not color.is_default:
            words.append(f"{ground}:{_color(color.number, color.get_truecolor().hex)}")
    return " ".join(words)


_ANSI: Final = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "gray")
_BRIGHT: Final = ("black", "red", "green", "yellow", "blue", "magenta", "cyan")


def _color(number: int | None, code: str) -> str:
    """The sixteen ANSI colours by name, so that the terminal's theme applies; any other by its code."""
    if number is None or number > 15:
        return code
    if number < 8:
        return f"ansi{_ANSI[number]}"
    return "ansiwhite" if number == 15 else f"ansibright{_BRIGHT[number - 8]}"
