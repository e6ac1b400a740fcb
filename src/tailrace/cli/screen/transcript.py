"""What the user sees of runs: events in, pieces to draw out.

Owns the settled and the moving pieces. Settled pieces are handed out once, in order, and forgotten; moving pieces are
made anew for every draw, and their size does not depend on the length of the answer. Knows no terminal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias, assert_never

from tailrace.attempt_text import AttemptText
from tailrace.cli.screen.markdown_blocks import Block, BlockSplitter
from tailrace.cli.screen.painter import (
    ApprovalQuestion,
    BlockPiece,
    BoxBottom,
    BoxTop,
    NoticeLine,
    Piece,
    ReasoningLine,
    ToolLine,
    UserMessage,
)
from tailrace.cli.screen.sanitize import Sanitizer, sanitized, sanitized_line
from tailrace.cli.screen.tool_details import argument_lines, output_lines, progress_lines
from tailrace.events import (
    AnswerKept,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalFact,
    AttemptDiscarded,
    AttemptStarted,
    Commentary,
    Delivered,
    Entry,
    GatewayNotice,
    HistoryCompressed,
    LongToolHint,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    ReasoningChunk,
    RelayFact,
    RunFinished,
    RunForked,
    RunStarted,
    SequenceFact,
    Snapshot,
    ToolArgumentsChunk,
    ToolCallChunk,
    ToolCallFinished,
    ToolOutputRecorded,
    UsageRecorded,
)
from tailrace.runs.approval_words import outcome_words

SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SPIN_EVERY_S: Final = 0.1
QUIET_S: Final = 0.4  # silence before the spinner appears
# What the screen shows nothing of.
_NotShown: TypeAlias = (
    RunStarted
    | RunForked
    | LongToolHint
    | MessageRecorded
    | HistoryCompressed
    | AttemptStarted
    | AnswerKept
    | ToolArgumentsChunk
    | RelayFact
    | UsageRecorded
    | SequenceFact
    | Delivered
)
_Activity: TypeAlias = ToolCallChunk | ToolCallFinished | ToolOutputRecorded | ApprovalFact | GatewayNotice | _NotShown


class ScreenUpdate(NamedTuple):
    """`settled` is drawn once; `moving` replaces the moving pieces before it."""

    settled: list[Piece]
    moving: list[Piece]


class _OpenMessage:
    """One message while it grows."""

    def __init__(self) -> None:
        self.chunks = AttemptText()
        self.splitter = BlockSplitter()
        self.clean = Sanitizer()
        self.begun = False  # its top border is drawn
        self.blocks = 0

    def feed(self, text: str) -> list[Piece]:
        text = self.clean.feed(text)
        pieces: list[Piece] = []
        if not self.begun and text.strip():
            self.begun = True
            pieces.append(BoxTop())
        return pieces + [self.piece(block) for block in self.splitter.feed(text)]

    def close(self) -> list[Piece]:
        pieces: list[Piece] = [self.piece(block) for block in self.splitter.close()]
        return [*pieces, BoxBottom()] if self.begun else []

    def piece(self, block: Block) -> BlockPiece:
        self.blocks += 1
        return BlockPiece(block, first=self.blocks == 1)

    def moving(self) -> list[Piece]:
        block = self.splitter.open if self.begun else None
        return [BlockPiece(block, first=not self.blocks)] if block else []


class Transcript:
    """The screen above the input line. `clock` is monotonic, in seconds; `requester` is the user: only approvals of
    their own runs are asked here."""

    def __init__(self, clock: Callable[[], float], *, streamed: bool = True, requester: str = "") -> None:
        self._clock = clock
        self._requester = requester
        self.streamed = streamed
        self.reasoning = False
        self.verbose = False
        self.only_new_tools = False  # no line for a tool that was the last one as well, and did not fail
        self.approval: ApprovalAsked | None = None
        self._settled: list[Piece] = []
        self._message: _OpenMessage | None = None
        self._thoughts: list[str] = []  # the open line of reasoning
        self._thinker = Sanitizer()
        self._tools: dict[int, tuple[ToolCallChunk, float]] = {}
        self._output: list[str] = []  # of the tool whose end comes next
        self._last_tool = ""
        self._status = ""
        self._since: float | None = None  # when the running turn last sent something; None without one
        self._began = 0.0

    # ── what is drawn ────────────────────────────────────────────────────────────────────────────────────────

    def next_update(self) -> ScreenUpdate:
        settled, self._settled = self._settled, []
        return ScreenUpdate(settled, self._moving())

    @property
    def spinning(self) -> bool:
        """Whether a draw is due although nothing happened."""
        return self._since is not None and self.approval is None

    def _moving(self) -> list[Piece]:
        moving: list[Piece] = []
        if self._thoughts:
            moving.append(ReasoningLine("".join(self._thoughts)))
        if self._message is not None and self.streamed:
            moving += self._message.moving()
        now = self._clock()
        mark = SPINNER[int(now / SPIN_EVERY_S) % len(SPINNER)]
        for tool, began in self._tools.values():
            moving.append(ToolLine(sanitized_line(tool.tool_name, 60), _preview(tool), now - began, mark=mark))
        if self._since is not None and self.approval is None and not self._tools and now - self._since >= QUIET_S:
            waited = f" {now - self._began:.0f}s" if now - self._began >= 2 else ""
            moving.append(NoticeLine(f"{mark} {self._status or 'thinking'}{waited}"))
        return moving

    # ── what happened ────────────────────────────────────────────────────────────────────────────────────────

    def add_question(self, question: str) -> None:
        self._settled.append(UserMessage(sanitized(question)))
        self._last_tool = ""
        self.waiting()

    def waiting(self) -> None:
        """A run has started."""
        self._since = self._began = self._clock()

    def add_notice(self, text: str, style: str = "dim") -> None:
        """A message of the program itself. During an answer it stands between two blocks."""
        self._settled.append(NoticeLine(sanitized(text), style))

    def apply(self, entry: Entry) -> None:
        event = entry.event
        if self._since is not None and not isinstance(event, GatewayNotice):
            self._since, self._status = self._clock(), ""
        match event:
            case MessageChunk(text):
                self._chunk(text, entry.attempt)
            case MessageStop():
                self._end_message()
            case Commentary(text):
                self._end_message()
                self._chunk(text, entry.attempt)
                self._end_message()
            case ReasoningChunk(text):
                self._think(text)
            case AttemptDiscarded():
                self._withdraw(entry.attempt)
            case RunFinished():
                self._finish(event)
            case Snapshot():
                self._catch_up(event)
            case _ if isinstance(event, _Activity):
                self._activity(event)
            case _:
                assert_never(event)

    def _chunk(self, text: str, attempt: int) -> None:
        self._end_thought()
        message = self._message = self._message or _OpenMessage()
        message.chunks.add(text, attempt)
        if self.streamed:
            self._settled += message.feed(text)

    def _end_message(self) -> None:
        self._end_thought()
        message, self._message = self._message, None
        if message is None:
            return
        if not self.streamed:
            self._settled += message.feed(message.chunks.text)
        self._settled += message.close()

    def _withdraw(self, attempt: int) -> None:
        """Removes that attempt's text from the message. Lines in the scrollback stay, with a notice below them."""
        message = self._message
        if message is None or not message.chunks.withdraw(attempt):
            return
        if self.streamed and message.begun:
            self._settled += [*message.close(), NoticeLine("the answer was withdrawn; it starts over", "yellow")]
        self._message = None
        for number, text in message.chunks.pieces():
            self._chunk(text, number)

    def _think(self, text: str) -> None:
        if not self.reasoning:
            return
        *whole, rest = (self._thinker.feed(text)).split("\n")
        for line in whole:
            self._thoughts.append(line)
            self._end_thought()
        if rest:
            self._thoughts.append(rest)

    def _end_thought(self) -> None:
        thought, self._thoughts = "".join(self._thoughts), []
        if thought.strip():
            self._settled.append(ReasoningLine(thought))

    def _activity(self, event: _Activity) -> None:
        """Tools, approvals, notices."""
        match event:
            case ToolCallChunk(index=index):
                self._end_message()
                self._tools[index] = (event, self._clock())
            case ToolOutputRecorded():
                self._tool_output(event)
            case ToolCallFinished(name, duration, ok, index):
                begun = self._tools.pop(index, None)
                self._tool_line(name, _preview(begun[0]) if begun else "", duration, ok=ok)
                self._show_details(argument_lines(begun[0].args) if begun else [])
            case ApprovalAsked(tool_name=name, reason=reason, command=command):
                self._end_message()
                if event.requester == self._requester:  # J110
                    self.approval = event
                shown = (sanitized_line(name, 60), sanitized_line(reason), sanitized(command), sanitized(event.scope))
                self._settled.append(ApprovalQuestion(*shown))
            case ApprovalAnswered():
                self._answered(event)
            case GatewayNotice():
                self._notice(event)
            case _ if isinstance(event, _NotShown):
                pass
            case _:
                assert_never(event)

    def _notice(self, notice: GatewayNotice) -> None:
        if notice.kind != "tool_progress":
            self._status = sanitized_line(notice.text)
            if self._message is None:
                self._settled.append(NoticeLine(self._status, "yellow"))
        elif self.verbose:
            self._settled.append(NoticeLine("\n".join(progress_lines(notice.text)), "dim", indent=4))

    def _tool_output(self, recorded: ToolOutputRecorded) -> None:
        self._output = output_lines(recorded) if self.verbose else []
        action = recorded.not_executed
        if action is not None and action.kind in ("forbidden", "failed"):  # no question has told the user
            what = f"not executed: {sanitized_line(action.command)} ({sanitized_line(action.reason)})"
            self._settled.append(NoticeLine(what, "red"))

    def _tool_line(self, name: str, preview: str, duration_s: float, *, ok: bool) -> None:
        repeats = name == self._last_tool and ok
        self._last_tool = name
        if not (repeats and self.only_new_tools):
            self._settled.append(ToolLine(sanitized_line(name, 60), preview, duration_s, ok))

    def _answered(self, answered: ApprovalAnswered) -> None:
        asked, self.approval = self.approval, None
        words = sanitized_line(outcome_words(asked, answered))
        if answered.decision == "deny":
            self._settled.append(NoticeLine(f"✗ {words}", "red"))
        else:
            self._settled.append(NoticeLine(f"✓ {words}", "green"))

    def _show_details(self, arguments: list[str]) -> None:
        output, self._output = self._output, []
        if self.verbose and (lines := arguments + output):
            self._settled.append(NoticeLine("\n".join(lines), "dim", indent=4))

    def give_up(self, reason: str) -> None:
        """The run will not end by itself: nothing is waited for any more."""
        self._end_turn()
        self._settled.append(NoticeLine(f"error: {sanitized_line(reason, 2000)}", "red"))

    def _end_turn(self) -> None:
        self._end_message()
        self._tools.clear()
        self.approval = self._since = None

    def _finish(self, finished: RunFinished) -> None:
        self._end_turn()
        match finished.status, finished.error:
            case "stopped", _:
                self._settled.append(NoticeLine("interrupted", "yellow"))
            case "incomplete", error if error is not None:
                self._settled.append(NoticeLine(f"incomplete: {sanitized_line(error.message, 2000)}", "yellow"))
            case "failed", error if error is not None:
                self._settled.append(NoticeLine(f"error: {sanitized_line(error.message, 2000)}", "red"))
            case _:
                pass
        if self.verbose:
            usage = finished.usage
            self._settled.append(NoticeLine(f"{usage.input_tokens} tokens in, {usage.output_tokens} out"))

    def _catch_up(self, state: Snapshot) -> None:
        """A compacted run: its messages and tools in their last state."""
        *earlier, last = state.messages or (None,)
        for text in earlier:
            if text is not None:
                self._chunk(text.text, 1)
                self._end_message()
        for tool in state.tools:
            if tool.ok is not None:
                self._tool_line(tool.tool_name, sanitized_line(tool.preview or ""), tool.duration, ok=tool.ok)
        if last is not None:
            for attempt, piece in AttemptText(last.text, last.pieces or ((1, len(last.text)),)).pieces():
                self._chunk(piece, attempt)
            if last.stopped:
                self._end_message()


def _preview(tool: ToolCallChunk) -> str:
    return sanitized_line(tool.preview or "")
