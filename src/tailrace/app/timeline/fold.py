"""A run's timeline, folded from its log. Pure; linear in the length of the log.

Shows what viewers of the run may see: thoughts only where they are asked for, and nothing of the provider's own events.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from tailrace import events
from tailrace.app.costs import Costs
from tailrace.app.timeline import items
from tailrace.app.timeline.attempts import Attempts
from tailrace.app.timeline.board import Board
from tailrace.app.timeline.question import media_words, question_of, speaker_of
from tailrace.app.timeline.tool_calls import ToolCalls
from tailrace.events import Entry
from tailrace.events.speakers import spoken_text
from tailrace.flows.definition.public_ids import public_id
from tailrace.messages import File, Image, JsonObject, Message
from tailrace.ports import Run
from tailrace.runs.view import RunView, changes
from tailrace.runs.view.changes import StepMoved

_ENDINGS: dict[str, items.AttemptOutcome] = {"cut": "failed", "stopped": "stopped"}  # by how the answer ended
_OPEN_ENDINGS: dict[events.RunStatus, items.AttemptOutcome] = {  # of an attempt that is open when the run ends
    "completed": "answered",
    "incomplete": "failed",
    "failed": "failed",
    "stopped": "stopped",
}

_OUTCOMES: dict[str, items.AttemptOutcome] = {  # of the attempt under way, by the step's new state
    "finished": "answered",
    "failed": "failed",
    "retrying": "failed",
    "cancelled": "stopped",
}


class Steps:
    def __init__(self, board: Board, attempts: Attempts) -> None:
        self._board = board
        self._attempts = attempts
        self._open: dict[str, int] = {}  # places of the tries under way
        self._paused: set[str] = set()  # steps whose try a pause has ended: it goes on when the instance does

    def pause(self) -> None:
        self._paused.update(self._open)

    def move(self, change: StepMoved) -> None:
        if change.state == "started":
            self._start(change)
            return
        reason = change.error.message if change.error is not None else ""
        self._attempts.end(_OUTCOMES[change.state], reason, block_id=change.block_id)
        retry_at = self._board.since_start(change.retry_at) if change.retry_at is not None else None
        place = self._open.pop(change.block_id, None)
        if place is None:  # a step that a retried instance keeps was not begun in this one
            place = self._board.add_now(items.StepItem, ends=False, block_id=change.block_id)
        self._board.end(place, state=change.state, output=change.output, error=change.error, retry_at=retry_at)

    def _start(self, change: StepMoved) -> None:
        board, block_id = self._board, change.block_id
        if (before := self._open.get(block_id)) is not None:  # the same try, resumed after an interruption
            self._attempts.end("interrupted", block_id=block_id)
            if block_id in self._paused:
                board.end(before, state="paused")
            else:
                board.end(before, state="interrupted")
                self._attempts.taken_over(board.items[before].end, block_id)
        self._paused.discard(block_id)
        at = board.since_start(change.at)
        start = at if at is not None else board.now
        self._open[block_id] = board.add_now(
            items.StepItem, ends=False, start=start, block_id=block_id, number=change.number
        )

    def end_all(self) -> None:
        for place in self._open.values():
            self._board.end(place, state="cancelled")
        self._open = {}


def timeline_of(
    run: Run,
    entries: Sequence[Entry],
    times: Sequence[tuple[int, float]] = (),
    *,
    reasoning: bool = False,
    costs: Costs | None = None,
) -> items.Timeline:
    """The timeline of these entries, which may begin with the `Snapshot` of a compacted log: `read_timeline` reads what
    belongs together. `times` as `Journal.times` gives them. `reasoning`: with what the model thought. Without
    `costs` nothing has a price."""
    fold = _TimelineFold(run, times, reasoning=reasoning, costs=costs)
    for entry in entries:
        fold.apply(entry)
    return fold.timeline()


class _TimelineFold:
    def __init__(self, run: Run, times: Sequence[tuple[int, float]], *, reasoning: bool, costs: Costs | None) -> None:
        self._run = run
        self._view = RunView()
        self._board = Board(run.created_at, times)
        self._attempts = Attempts(self._board, claims=run.claims, reasoning=reasoning, costs=costs)
        self._tools = ToolCalls(self._board)
        self._steps = Steps(self._board, self._attempts)
        self._fork: items.ForkItem | None = None
        self._question = ""
        self._compressing: float | None = None  # since when
        self._compacted = False
        self._output: list[str] = []
        self._finished: events.RunFinished | None = None

    def apply(self, entry: Entry) -> None:
        if isinstance(entry.event, events.Snapshot):  # it stands before the facts that it has been made of
            self._restore(entry.event)
            return
        self._board.read(entry.seq)
        made = self._view.apply(entry)
        if (finished := self._view.finished) is not None:
            ended = self._board.since_start(finished.at)
            if ended is not None:  # its exact time: the commit may have the time of what preceded it
                self._board.now = max(self._board.now or 0.0, ended)
        for change in made:
            self._apply(change)

    def _apply(self, change: changes.Change) -> None:  # noqa: C901, PLR0912 - one case per change
        match change:
            case changes.TextGrew():
                self._grow(change)
            case changes.ThoughtGrew(text=text, attempt=attempt):
                if text:
                    self._attempts.add(text, attempt, thinking=True)
            case changes.TextWithdrawn():
                self._tools.break_off(change.calls)
                if change.discarded:
                    self._attempts.discard(change)
            case changes.CallWritten():
                if change.call is None:
                    self._attempts.token()
                self._tools.write(change)
            case changes.CallRuns():
                self._attempts.close_span()
                self._tools.start(change)
            case changes.CallEnded():
                self._tools.end(change)
            case changes.Asked(question=question):
                self._tools.ask(question)
            case changes.Answered(answer=answer):
                self._tools.answer(answer)
            case changes.Steered():
                self._steer(change.steer)
            case changes.Noticed():
                self._notice(change)
            case changes.Ended(finished=finished):
                self._finish(finished)
            case _:
                assert_never(change)

    def _grow(self, change: changes.TextGrew) -> None:
        text, attempt = change.text, change.attempt
        if text and change.ends:
            self._attempts.add_whole(text, attempt)
        elif text:
            self._attempts.add(text, attempt, block_id=change.block_id)
        else:
            self._attempts.close_span()

    def _notice(self, change: changes.Noticed) -> None:  # noqa: C901, PLR0912 - one case per notice
        board = self._board
        match change:
            case changes.SubRunBegan():
                self._tools.begin_sub_run(change)
            case changes.UserNotice(text=text, extra={"run_id": _, "index": int(index)}):
                self._tools.step(index, text)
            case changes.UserNotice(kind=kind, text=text, extra=extra):
                self._user_notice(kind, text, extra)
            case changes.ToolRunsLong(tool_name=name, duration_s=duration):
                self._user_notice("long_tool", f"{name} is still running after {duration:.0f} s", {})
            case changes.AttemptBegan(asked=asked, attempt=attempt):
                self._attempts.start(asked, attempt)
            case changes.Spent():
                self._attempts.spend(change)
            case changes.MessageJoined(message=message, stop=stop):
                self._message(message, stop)
            case changes.HistoryReplaced(messages=messages):
                start = self._compressing if self._compressing is not None else board.now
                board.add_now(items.CompressionItem, start=start, messages=len(messages))
                self._compressing = None
            case changes.ForkBegan(run_id=run_id, after=after):
                seq = board.seq
                self._fork = items.ForkItem(
                    seq=seq, end_seq=seq, start=board.now, end=board.now, run_id=run_id, after=after
                )
                board.add(self._fork)
            case changes.InstanceMoved(state=state):
                board.add_now(items.StateItem, state=state)
                if state == "paused":
                    self._steps.pause()
            case changes.StepMoved():
                self._steps.move(change)
            case changes.SignalTaken(name=name, payload=payload, by=by):
                board.add_now(items.SignalItem, name=name, payload=payload, by=by)
            case changes.Delivery(key=key, state=delivered, message_id=message_id):
                board.add_now(items.DeliveryItem, key=key, state=delivered, message_id=message_id)
            case _:
                pass  # the run itself has its beginning; the texts say the same as the provider's own events

    def _steer(self, steer: events.SteerSoFar) -> None:
        text = spoken_text(steer.accepted.message.text, speaker_of(self._run))
        if steer.state == "committed":
            self._board.add_now(items.QuestionItem, text=text, files=_files_of(steer.accepted.message))
        elif steer.state == "returned":
            self._board.add_now(items.NoticeItem, about="steer_returned", text=f"not given to the model: {text}")

    def _message(self, message: Message, stop: str) -> None:
        if message.role == "user":
            at = 0.0 if not self._board.items else self._board.now  # the question stands when the run begins
            self._question = spoken_text(message.text, speaker_of(self._run))
            self._board.add_now(items.QuestionItem, start=at, end=at, text=self._question, files=_files_of(message))
        elif message.role == "assistant":
            self._attempts.end(_ENDINGS.get(stop, "called_tools" if message.tool_calls else "answered"))

    def _user_notice(self, kind: str, text: str, extra: JsonObject) -> None:
        board, silent_s = self._board, extra.get("silent_s")
        if kind == "stalled" and isinstance(silent_s, int | float):
            start = max(0.0, round(board.now - silent_s, 3)) if board.now is not None else None
            provider = str(extra.get("provider", ""))
            board.add_now(
                items.StallItem, start=start, silent_s=float(silent_s), gave_up=True, provider=provider, text=text
            )
            return
        if kind == "compressing":
            self._compressing = board.now
        board.add_now(items.NoticeItem, about=kind, text=text, extra=extra)

    # ── the whole run ────────────────────────────────────────────────────────────────────────────────────────

    def _restore(self, state: events.Snapshot) -> None:
        """The pieces are gone: texts come from the messages that the facts have."""
        self._compacted = self._attempts.compacted = True
        self._tools.restore(state.tools)

    def _finish(self, finished: events.RunFinished) -> None:
        self._finished = finished
        self._attempts.end_all(_OPEN_ENDINGS[finished.status], finished.error)
        self._tools.end_all(completed=finished.status == "completed")
        self._steps.end_all()
        self._board.add_now(items.FinishItem, status=finished.status, error=finished.error)

    def timeline(self) -> items.Timeline:
        self._attempts.finish()
        self._tools.unfinished_arguments(self._view.written.calls)
        run, finished, board = self._run, self._finished or self._run.finished, self._board
        ended = board.since_start(finished.at) if finished is not None else None
        return items.Timeline(
            id=public_id(run),
            kind=run.new.kind,
            question=question_of(run) or self._question,
            status=finished.status if finished is not None else run.state,
            items=tuple(board.items),
            model=run.new.model or self._attempts.model,
            session=run.new.session,
            started_at=run.created_at,
            duration_s=max(filter(None, (ended, board.now)), default=ended),  # its last commit may be the later one
            first_token_s=self._attempts.first_token,
            usage=finished.usage if finished is not None else self._attempts.usage,
            cost_usd=self._attempts.cost,
            output=finished.output if finished is not None else "",
            last_seq=max(board.seq, run.last_seq if finished is not None else 0),
            compacted=self._compacted,
            error=finished.error if finished is not None else run.parked,
            forked_from=self._fork,
            times=board.times,
        )


def _files_of(message: Message) -> tuple[str, ...]:
    return tuple(media_words(part) for part in message.parts if isinstance(part, Image | File))
