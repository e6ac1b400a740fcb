"""What the user sees of runs: entries of a log in, pieces to draw out.

Owns the settled and the moving pieces. Settled pieces are handed out once, in order, and forgotten; moving pieces are
made anew for every draw, and their size does not depend on the length of the answer. What the program itself has to
say never stands inside an answer: it waits below it until the answer has ended. Knows no terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, assert_never

from tailrace.agent.safety.approval import CHANGES
from tailrace.cli.screen.call_progress import CallProgress
from tailrace.cli.screen.input.approval_menu import ApprovalMenu
from tailrace.cli.screen.open_message import OpenMessage
from tailrace.cli.screen.painter import (
    ApprovalQuestion,
    BlockPiece,
    BoxEnd,
    NoticeLine,
    Piece,
    ReasoningLine,
    Rows,
    UserMessage,
)
from tailrace.cli.screen.sanitize import Sanitizer, sanitized, sanitized_line
from tailrace.cli.screen.tool_details import progress_lines
from tailrace.cli.screen.tool_view import DETAIL_INDENT, ToolView
from tailrace.cli.stop_words import stop_words
from tailrace.cli.words import duration
from tailrace.events import ApprovalAnswered, ApprovalAsked, Entry, RunFinished, Snapshot, SteerAccepted
from tailrace.events.steers import Steers
from tailrace.runs.approval_words import outcome_words
from tailrace.runs.signals import INTERRUPTED
from tailrace.runs.view import RunView, changes
from tailrace.runs.view.changes import Change

SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SPIN_EVERY_S: Final = 0.1
QUIET_S: Final = 0.4  # silence before the spinner appears
CHARS_PER_TOKEN: Final = 4  # about
HELD_LINES: Final = 6  # shown of what waits for the end of the answer
NAME: Final = "tailrace"
BLANK: Final = Rows(((("", ""),),))


class ScreenUpdate(NamedTuple):
    """`settled` is drawn once; `moving` replaces the moving pieces before it."""

    settled: list[Piece]
    moving: list[Piece]


class Transcript:
    """The screen above the input line. `clock` is monotonic, in seconds; `requester` is the user: only approvals of
    their own runs are asked here."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        streamed: bool = True,
        requester: str = "",
        approval_timeout_s: float = 60.0,
        progress: CallProgress | None = None,
    ) -> None:
        self._clock = clock
        self._requester = requester
        self.streamed = streamed
        self.reasoning = False
        self.timed = True  # False: what is shown has happened before
        self.own_stop = True  # where the run shown is stopped from a terminal, it is from this one
        self.tools = ToolView()
        self.menu = ApprovalMenu(clock, approval_timeout_s)
        self._progress = progress or CallProgress(lambda _provider: 1, lambda _failure, _provider: "")
        self._view = RunView()
        self._settled: list[Piece] = []
        self._held: list[Piece] = []  # what the program has to say once the open message has ended
        self._message: OpenMessage | None = None
        self._thoughts: list[str] = []  # the open line of reasoning
        self._thinker = Sanitizer()
        self._open: dict[str, ApprovalAsked] = {}  # unanswered questions, by their ids
        self._queued: list[ApprovalAsked] = []  # those that are shown after the one in the menu
        self._elsewhere: dict[str, str] = {}  # questions of other runs, by their ids: the line above
        self._after_text = False  # a message is the last that was drawn: what is no message keeps a distance
        self._status = ""
        self._since: float | None = None  # when the running turn last sent something; None without one
        self._began = 0.0
        self._command = ""  # of the user's own that runs
        self._command_began = 0.0
        self.steer_texts: dict[str, str] = {}  # what the user typed for the run under way, by the message's id
        self.asked_next: Callable[[], list[str]] = list  # what is asked once the run has ended
        self._question, self._said = "", False  # the last one, and whether the program has spoken since

    @property
    def approval(self) -> ApprovalAsked | None:
        return self.menu.asked

    @property
    def steers(self) -> Steers:
        """The messages for the run that is shown."""
        return self._view.steers

    # ── what is drawn ────────────────────────────────────────────────────────────────────────────────────────

    def next_update(self) -> ScreenUpdate:
        settled, self._settled = self._settled, []
        return ScreenUpdate(settled, self._moving())

    @property
    def spinning(self) -> bool:
        """Whether a draw is due although nothing happened."""
        return self._since is not None or bool(self._command) or self.approval is not None

    @property
    def running_s(self) -> float | None:
        """How long the turn has run; None without one."""
        return self._clock() - self._began if self._since is not None else None

    @property
    def command_s(self) -> float | None:
        """How long the user's own command has run; None without one."""
        return self._clock() - self._command_began if self._command else None

    def _moving(self) -> list[Piece]:
        moving: list[Piece] = []
        if self._thoughts:
            moving.append(ReasoningLine("".join(self._thoughts)))
        if self._message is not None and self.streamed:
            moving += self._message.moving()
        now = self._clock()
        mark = SPINNER[int(now / SPIN_EVERY_S) % len(SPINNER)]
        if self.tools:
            moving += [*([BLANK] if self._after_text else []), *self.tools.moving(now, mark)]
        if (waiting := self._waiting(now)) and not self._open:
            moving += [BLANK, NoticeLine(f"{mark} {waiting}", "cyan")]
        moving += map(_in_short, self._held)
        pending = [*map(self._typed, self.steers.pending), *self.asked_next()]
        if pending and self._since is not None:
            lines = [f"next: {sanitized_line(typed, 200)}" for typed in pending]
            moving += [BLANK, *map(NoticeLine, [*lines[:-1], f"{lines[-1]} · Esc takes it back"])]
        if self._command:
            moving.append(NoticeLine(f"{mark} {self._command}"))
        if self.approval is not None:
            moving.append(self.menu.rows())
        return moving

    def _waiting(self, now: float) -> str:
        """What the spinner says; empty where there is none."""
        if self._since is None or self.tools:
            return ""
        seconds = f" {now - self._began:.0f} s" if now - self._began >= 1 else ""
        if self._message is not None and not self.streamed:
            return f"writing{seconds} · {self._message.chars // CHARS_PER_TOKEN} tokens"
        if now - self._since < QUIET_S and not self._progress.status:
            return ""
        said = self._status or self._progress.status
        quiet_s = now - self._since
        if self._message is None:
            what = f"{'waiting' if self._progress.is_between_tries else 'thinking'}{seconds}"
        else:  # the answer has begun
            what = f"no new text for {quiet_s:.0f} s" if quiet_s >= 1 else ""
        return " · ".join(filter(None, (what, said)))

    # ── what happened ────────────────────────────────────────────────────────────────────────────────────────

    def add_question(self, question: str, notes: Iterable[str] = ()) -> None:
        """`notes` are what the program has to say about it, such as a file that does not come along."""
        self._settle(UserMessage(sanitized(question)), *(NoticeLine(sanitized(note)) for note in notes))
        self._question, self._said = question, False
        self.waiting()

    def waiting(self) -> None:
        """A run has started."""
        self._view = RunView()
        self._since = self._began = self._clock()

    def add_command(self, line: str) -> None:
        """A command that the user typed; what it says follows."""
        self._say(UserMessage(sanitized_line(line, 2000), "cyan"))

    def add_notice(self, text: str, style: str = "dim") -> None:
        """A message of the program itself. During an answer it waits below it."""
        self._say(NoticeLine(sanitized(text), style))

    def add_pieces(self, *pieces: Piece) -> None:
        """The same for anything else that is drawn."""
        self._say(*pieces)

    def add_farewell(self, text: str) -> None:
        """The last notice, a blank line below whatever there is."""
        self._say(BLANK, NoticeLine(sanitized(text)))

    def command_runs(self, line: str) -> None:
        """A command of the user's own runs; empty: no longer."""
        if not self._command:
            self._command_began = self._clock()
        self._command = sanitized_line(line)

    def expand_tool(self, number: int | None = None) -> bool:
        """Shows one tool in full; False where there is none."""
        pieces = self.tools.expand(number)
        self._say(*pieces)
        return bool(pieces)

    def _say(self, *pieces: Piece) -> None:
        if self._message is not None and self.streamed and self._message.begun:
            self._held += pieces
        else:
            self._said = self._said or self._since is not None
            self._settle_apart(*pieces)

    def _settle(self, *pieces: Piece) -> None:
        for piece in pieces:
            self._after_text = isinstance(piece, BlockPiece | BoxEnd)
            self._settled.append(piece)

    def _settle_apart(self, *pieces: Piece) -> None:
        """With a blank line before them where a message stands above, unless they begin with one."""
        if pieces and self._after_text and not (isinstance(pieces[0], UserMessage) or pieces[0] is BLANK):
            self._settle(BLANK)
        self._settle(*pieces)

    def apply(self, entry: Entry) -> None:
        for change in self._view.apply(entry):
            self._progress.note(change)
            self._note_activity(change)
            self._show(change)

    def _note_activity(self, change: Change) -> None:
        """When the run last sent something that the user sees; a hidden thought shows nothing new."""
        if self._since is not None and not isinstance(change, changes.UserNotice):
            self._status = ""
            if self.reasoning or not isinstance(change, changes.ThoughtGrew):
                self._since = self._clock()

    def _show(self, change: Change) -> None:  # noqa: C901 - one case per change
        match change:
            case changes.TextGrew():
                self._grow(change)
            case changes.ThoughtGrew(text=text):
                self._think(text)
            case changes.TextWithdrawn():
                self._withdraw(change)
            case changes.CallRuns():
                self._end_message()
                self._settle_held()
                self.tools.begin(change, self._clock())
            case changes.CallEnded(output=output):
                self._settle_apart(*(self.tools.output(output) if output is not None else self.tools.end(change)))
            case changes.Asked(question=question):
                self._end_message()
                self._settle_held()
                self._open[question.approval_id] = question
                self._queued.append(question)
                self._ask_next()
            case changes.Answered():
                self._answered(change)
            case changes.UserNotice():
                self._notice(change)
            case changes.Restored(state=state):
                self._catch_up(state)
            case changes.Ended(finished=finished):
                self._finish(finished)
            case changes.Steered(steer=steer) if steer.state == "committed":
                self._end_message()
                self._settle_held()
                self._question, self._said = self._typed(steer.accepted), False
                self._settle(UserMessage(sanitized(self._question)))
            case changes.CallWritten() | changes.Steered() | changes.Noticed():
                pass
            case _:
                assert_never(change)

    def _typed(self, accepted: SteerAccepted) -> str:
        return self.steer_texts.get(accepted.steer_id) or accepted.message.text

    def _grow(self, grown: changes.TextGrew) -> None:
        if not grown.ends:
            self._chunk(grown.text)
            return
        if grown.text:  # it came whole
            self._end_message()
            self._chunk(grown.text)
        self._end_message()
        if not (grown.final or grown.text):  # the run's end is shown first
            self._settle_held()

    def _chunk(self, text: str) -> None:
        self._end_thought()
        message = self._message = self._message or OpenMessage(self._title())
        message.texts.append(text)
        message.chars += len(text)
        if self.streamed:
            self._settle(*message.feed(text))

    def _end_message(self) -> None:
        self._end_thought()
        message, self._message = self._message, None
        if message is None:
            return
        if not self.streamed:
            self._settle(*message.feed("".join(message.texts)))
        self._settle(*message.close(self._took()))

    def _title(self) -> str:
        """Of an answer's box: who answers."""
        return " · ".join(filter(None, (NAME, sanitized_line(self._progress.model, 100))))

    def _took(self) -> str:
        return duration(self.running_s) if self.timed else ""

    def _settle_held(self) -> None:
        held, self._held = self._held, []
        self._settle_apart(*held)

    def _withdraw(self, withdrawn: changes.TextWithdrawn) -> None:
        """Removes an attempt's text from the message. Lines in the scrollback stay, with a notice below them."""
        message = self._message
        if message is None or not withdrawn.shown:
            return
        if self.streamed and message.begun:
            self._settle(*message.close(self._took()), NoticeLine("the answer was withdrawn; it starts over", "yellow"))
        self._message = None
        for _, text in withdrawn.kept:
            self._chunk(text)

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
            self._settle(ReasoningLine(thought))

    def _notice(self, notice: changes.UserNotice) -> None:
        if notice.kind != "tool_progress":
            self._status = sanitized_line(notice.text)
            if self._message is None:
                self._settle(NoticeLine(self._status, "yellow"))
        elif "run_id" in notice.extra:
            self.tools.step(notice.extra["index"], notice.text)
        elif self.tools.verbose:
            self._settle_apart(NoticeLine("\n".join(progress_lines(notice.text)), "dim", indent=DETAIL_INDENT))

    def _ask_next(self) -> None:
        """Shows what is asked, one question of the user's at a time: the menu stands below the one that it is about."""
        while self._queued and self.approval is None:
            asked = self._queued.pop(0)
            if (asks := self._elsewhere.get(asked.approval_id)) is not None:
                self.menu.open(asked)
                self._say(NoticeLine(asks, "yellow"), self._question_piece(asked))
                continue
            if asked.requester == self._requester:  # J110
                self.menu.open(asked)
            self._settle(self._question_piece(asked))

    def _question_piece(self, asked: ApprovalAsked) -> ApprovalQuestion:
        """The user knows the session and the requester of their own question."""
        name, reason = sanitized_line(asked.tool_name, 60), sanitized_line(asked.reason)
        is_own = asked.requester == self._requester
        scope = f"in {asked.directory}" if is_own and asked.directory else asked.scope
        return ApprovalQuestion(name, reason, sanitized(asked.command), sanitized(scope), asked.reason == CHANGES)

    def ask_elsewhere(self, asked: ApprovalAsked, asks: str) -> None:
        self._elsewhere[asked.approval_id] = asks
        self._queued.append(asked)
        self._ask_next()

    def answered_elsewhere(self, asked: ApprovalAsked, answered: ApprovalAnswered | None) -> None:
        del self._elsewhere[asked.approval_id]
        if asked in self._queued:  # it was never shown
            self._queued.remove(asked)
            return
        if asked == self.approval:
            self.menu.close()
        words = outcome_words(asked, answered) if answered is not None else "the other run has ended"
        self._say(NoticeLine(sanitized_line(words, 500)))
        self._ask_next()

    def _answered(self, change: changes.Answered) -> None:
        answered = change.answer
        asked = self._open.pop(answered.approval_id, None)
        if asked in self._queued:
            self._queued.remove(asked)
            self._settle(self._question_piece(asked))
        if asked == self.approval:
            self.menu.close()
        words = sanitized_line(outcome_words(asked, answered), 500)
        denied = answered.decision == "deny"
        self._settle(NoticeLine(f"{'✗' if denied else '✓'} {words}", "red" if denied else "green"))
        self._ask_next()

    def give_up(self, reason: str) -> None:
        """The run will not end by itself: nothing is waited for any more."""
        self._end_turn()
        self._settle_apart(NoticeLine(f"✗ {sanitized_line(reason, 2000)}", "red"))
        self._settle_held()

    def _end_turn(self) -> None:
        self._end_message()
        self.tools.end_turn()
        if self.approval is not None and self.approval.approval_id not in self._elsewhere:
            self.menu.close()
        self._open.clear()
        self._queued = [asked for asked in self._queued if asked.approval_id in self._elsewhere]
        self._since = None
        self._ask_next()

    def _finish(self, finished: RunFinished) -> None:
        self._end_turn()
        failure = self._progress.failure(finished)
        match finished.status:
            case "stopped":
                which = f": {sanitized_line(self._question, 60)}" if self._said else ""
                self._settle_apart(NoticeLine(f"◼ {self._stop_words(finished)}{which}", "yellow"))
            case "incomplete" if failure is not None:
                self._settle_apart(NoticeLine(f"⚠ incomplete: {failure.what}", "yellow"), *_advice(failure.advice))
            case "failed" if failure is not None:
                self._settle_apart(NoticeLine(f"✗ {failure.what}", "bold red"), *_advice(failure.advice))
            case _:
                pass
        usage = finished.usage
        if self.tools.verbose and (usage.input_tokens or usage.output_tokens):
            about = "~" if usage.estimated_tokens else ""
            self._settle_apart(NoticeLine(f"{about}{usage.input_tokens} tokens in, {about}{usage.output_tokens} out"))
        self._settle_held()

    def _stop_words(self, finished: RunFinished) -> str:
        """Names who stopped the run, unless it was this user (`own_stop`: all terminals have one name)."""
        error = finished.error
        if error is None or (error.by == self._requester and self.own_stop):
            return INTERRUPTED.message
        return sanitized_line(stop_words(error, viewer=self._requester), 200)

    def _catch_up(self, state: Snapshot) -> None:
        """A compacted run: its messages and tools in their last state."""
        *earlier, last = state.messages or (None,)
        for text in earlier:
            if text is not None:
                self._chunk(text.text)
                self._end_message()
        for tool in state.tools:
            if tool.ok is not None:
                preview = sanitized_line(tool.preview or "")
                self._settle_apart(*self.tools.ended_before(tool.tool_name, tool.duration, tool.ok, preview))
        if last is not None:
            self._chunk(last.text)
            if last.stopped:
                self._end_message()


def _in_short(piece: Piece) -> Piece:
    """A long text that waits for the end of the answer: its beginning, so that the answer is still seen."""
    if not isinstance(piece, NoticeLine) or piece.text.count("\n") <= HELD_LINES:
        return piece
    lines = piece.text.split("\n")
    more = f"  … {len(lines) - HELD_LINES} more lines, below the answer when it has ended"
    return NoticeLine("\n".join([*lines[:HELD_LINES], more]), piece.style, piece.indent)


def _advice(text: str) -> list[Piece]:
    """Below an error: what to do next, and that it can be asked again."""
    said = " · ".join(filter(None, (text, "/retry asks again")))
    return [NoticeLine(said, "dim", indent=4)]
