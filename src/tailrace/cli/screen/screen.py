"""The terminal: finished lines go to its scrollback, once; below them the moving lines and the input line.

Owns the prompt_toolkit application and the drawing. Knows no run: a `Transcript` supplies the pieces. One
draw is one write; there are at most twenty a second, and drawing takes no more than a tenth of the time, unless a
single draw is so slow that the user would wait.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import select
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from typing import Final, Protocol, TextIO

from prompt_toolkit.application import Application, in_terminal
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import History
from prompt_toolkit.input import Input
from prompt_toolkit.layout import BufferControl, ConditionalContainer, Dimension, FormattedTextControl, HSplit, Layout
from prompt_toolkit.layout.containers import Window
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from rich.style import Style

from tailrace.cli.screen.input.choice_list import Choice
from tailrace.cli.screen.input.input_line import Completion, InputLine, InputListener
from tailrace.cli.screen.painter import Line, Painter
from tailrace.cli.screen.transcript import SPIN_EVERY_S, Transcript
from tailrace.system.private_apis import on_resize, redraw, runs_in_terminal

FRAME_S: Final = 0.05
IDLE_SHARE: Final = 9  # a draw is followed by a pause of nine times its duration
MAX_PAUSE_S: Final = 0.5  # however long a draw took: it also waits for a terminal that does not read
INPUT_ROWS: Final = 10
MENU_MARGIN_ROWS: Final = 3  # below a menu: a blank line, the input and the line with the status
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


class ScreenListener(InputListener, Protocol):
    """Receives the user's input, and says what stands below it."""

    def status(self, width: int) -> list[tuple[str, str]]:
        """The line below the input, as styles and texts."""


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
        completion: Completion,
        environment: Callable[[str], str | None],
    ) -> None:
        self._transcript = transcript
        self._painter = painter
        self._listener = listener
        self._changed = asyncio.Event()
        self._moving: list[Line] = []
        self._line = InputLine(listener, transcript.menu, history=history, completion=completion)
        plain = bool(environment("NO_COLOR"))
        self._output = FrameOutput(
            target,
            lambda: _size_of(target),
            term=environment("TERM"),
            default_color_depth=ColorDepth.DEPTH_1_BIT if plain else None,
            enable_cpr=False,  # drawing does not depend on the cursor's position
        )
        self.app: Application[int] = Application(
            layout=Layout(self._layout(), focused_element=self._line.buffer),
            key_bindings=self._line.bindings(),
            input=source,
            output=self._output,
            erase_when_done=True,
            full_screen=False,
            terminal_size_polling_interval=None,  # SIGWINCH tells
        )
        self.app.key_processor.before_key_press += lambda _: self._line.follow_menu()
        on_resize(self.app, self._resized)
        self._reflowing = _reflows(environment)
        self.app.ttimeoutlen = 0.05
        self.app.timeoutlen = 0.2  # Esc alone, or the beginning of Alt-Enter: a terminal sends that at once

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
            await asyncio.sleep(pause_after(time.perf_counter() - began))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SPIN_EVERY_S if self._transcript.spinning else None):
                    await self._changed.wait()

    def draw(self) -> None:
        width = self._size.columns
        self._line.typed_ahead = self._line.typed_ahead and _has_input(self.app.input)
        menu = self._transcript.menu
        if menu.asked is not None and not menu.is_armed and _has_input(self.app.input):
            menu.key_was_pressed()  # before the frame that says that keys count
        update = self._transcript.next_update()
        settled = self._painter.lines(update.settled, width)
        moving = self._painter.lines(update.moving, width)
        before, self._moving = len(self._shown_moving()), moving
        shrinks = len(self._shown_moving()) < before
        self._line.follow_menu()
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
        menu.was_drawn()

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

    # ── layout ───────────────────────────────────────────────────────────────────────────────────────────────

    def _layout(self) -> HSplit:
        moving = Window(
            FormattedTextControl(self._moving_fragments),
            height=lambda: Dimension.exact(len(self._shown_moving())),
            wrap_lines=False,
            dont_extend_height=True,
        )
        entry = Window(
            BufferControl(self._line.buffer),
            height=Dimension(min=1, max=INPUT_ROWS),
            wrap_lines=True,
            dont_extend_height=True,
            get_line_prefix=self._line_prefix,
        )
        choices = Window(
            FormattedTextControl(self._choices),
            height=lambda: Dimension.exact(len(self._shown_choices())),
            dont_extend_height=True,
        )
        hint = Window(FormattedTextControl(self._hint), height=1)
        return HSplit(
            [
                ConditionalContainer(moving, Condition(lambda: bool(self._moving))),
                Window(height=1),
                entry,
                ConditionalContainer(choices, Condition(lambda: bool(self._shown_choices()))),
                hint,
            ]
        )

    def _shown_moving(self) -> list[Line]:
        """The last moving lines, half the window at most: when the window gets narrower and lines fold, all of them
        must still be on the screen to be drawn over. A menu has the whole window: each of its keys is to be seen."""
        rows = self._size.rows
        most = rows - MENU_MARGIN_ROWS if self._transcript.menu.asked is not None else rows // 2
        return self._moving[-max(1, most) :]

    def _shown_choices(self) -> list[list[tuple[str, str]]]:
        if self._transcript.menu.asked is not None:
            return []
        return self._line.list.rows(self._size.columns - 1, self._size.rows // 3)

    def _choices(self) -> StyleAndTextTuples:
        fragments: StyleAndTextTuples = []
        for row in self._shown_choices():
            fragments += [*([("", "\n")] if fragments else []), *row]
        return fragments

    def _moving_fragments(self) -> StyleAndTextTuples:
        fragments: StyleAndTextTuples = []
        for number, line in enumerate(self._shown_moving()):
            if number:
                fragments.append(("", "\n"))
            fragments += [(_style(segment.style), segment.text) for segment in line]
        return fragments

    def _line_prefix(self, line: int, wrapped: int) -> StyleAndTextTuples:
        style, prompt = self._line.prompt()
        return [(style, prompt if not line and not wrapped else " " * len(prompt))]

    def _hint(self) -> StyleAndTextTuples:
        if self._line.list.is_question and self._transcript.menu.asked is None:
            return [("fg:ansicyan", "  ↑ ↓ choose · Enter takes it · Esc leaves it")]
        return [("", "  "), *self._listener.status(self._size.columns - 3)]

    async def choose(self, choices: Sequence[Choice]) -> str | None:
        """The value that the user picks; None for none of them."""
        picked: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._line.list.ask(choices, picked.set_result)
        self.changed()
        try:
            return await picked
        finally:
            self._line.list.drop()
            self.changed()

    @property
    def typed(self) -> str:
        return self._line.buffer.text

    def clear_input(self) -> None:
        self._line.buffer.reset()

    def put_into_input(self, text: str) -> None:
        """Before what is typed there."""
        typed = self._line.buffer.text
        self._line.buffer.reset(Document(f"{text}\n{typed}" if typed else text))

    # ── beside the drawing ───────────────────────────────────────────────────────────────────────────────────

    def copy(self, text: str) -> None:
        """To the clipboard of the terminal, by OSC 52."""
        coded = base64.b64encode(text.encode(errors="replace")).decode()
        self._output.write_raw(f"\x1b]52;c;{coded}\x07")
        self._output.flush()

    def clear(self) -> None:
        """Empties the window."""
        if self.app.is_running:
            self.app.renderer.clear()

    # ── its life ─────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> int:
        """Until `leave`; returns its code."""
        self._line.typed_ahead = _has_input(self.app.input)
        return await self.app.run_async()

    def leave(self, code: int) -> None:
        if self.app.is_running and not self.app.is_done:
            self.app.exit(result=code)

    def aside(self) -> AbstractAsyncContextManager[None]:
        """Within the block, other code may write to the terminal."""
        return in_terminal()


def pause_after(draw_s: float) -> float:
    """How long nothing is drawn after a draw that took so long."""
    return min(max(FRAME_S, IDLE_SHARE * draw_s), MAX_PAUSE_S)


def _reflows(environment: Callable[[str], str | None]) -> bool:
    """Whether the terminal reflows lines when its width changes. Most do; the known exceptions are listed."""
    if environment("TMUX"):
        return True
    return not ((environment("TERM") or "").startswith(("linux", "screen")) or environment("XTERM_VERSION"))


def _has_input(source: Input) -> bool:
    """Whether keys were pressed that have not been read."""
    try:
        return bool(select.select([source.fileno()], [], [], 0)[0])
    except (OSError, ValueError, NotImplementedError):  # closed, or a console of Windows
        return False


def _size_of(target: TextIO) -> Size:
    try:
        columns, rows = os.get_terminal_size(target.fileno())
    except OSError:  # the terminal is closed
        columns, rows = 80, 24
    return Size(rows=rows or 24, columns=columns or 80)


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
