"""A run's timeline, folded from its log. Pure; linear in the length of the log.

Shows what viewers of the run may see: thoughts only where they are asked for, and nothing of the provider's own events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

from tailrace import events
from tailrace.events import AnyEvent, Entry
from tailrace.events.speakers import spoken_text
from tailrace.messages import Dialect, File, Image, Message, Reasoning
from tailrace.ports import Run
from tailrace.runs.public_ids import public_id
from tailrace.runs.timeline.attempts import Attempts
from tailrace.runs.timeline.board import Board
from tailrace.runs.timeline.items import (
    AttemptOutcome,
    CompressionItem,
    DeliveryItem,
    FinishItem,
    ForkItem,
    NoticeItem,
    QuestionItem,
    SignalItem,
    StallItem,
    StateItem,
    Timeline,
)
from tailrace.runs.timeline.question import media_words, question_of, speaker_of
from tailrace.runs.timeline.steps import Steps
from tailrace.runs.timeline.tool_calls import ToolCalls

_ENDINGS: dict[str, AttemptOutcome] = {"cut": "failed", "stopped": "stopped"}  # by how the answer ended
_OPEN_ENDINGS: dict[events.RunStatus, AttemptOutcome] = {  # of an attempt that is open when the run ends
    "completed": "answered",
    "incomplete": "failed",
    "failed": "failed",
    "stopped": "stopped",
}


def timeline_of(
    run: Run,
    entries: Sequence[Entry],
    times: Sequence[tuple[int, float]] = (),
    *,
    reasoning: bool = False,
    dialects: Mapping[str, Dialect] | None = None,
) -> Timeline:
    """The timeline of these entries, which may begin with the `Snapshot` of a compacted log: `read_timeline` reads what
    belongs together. `times` as `Journal.times` gives them. `reasoning`: with what the model thought. `dialects` by the
    providers' names: what tokens cost depends on how they are counted."""
    fold = _TimelineFold(run, times, reasoning=reasoning, dialects=dialects or {})
    for entry in entries:
        fold.apply(entry)
    return fold.timeline()


class _TimelineFold:
    def __init__(
        self, run: Run, times: Sequence[tuple[int, float]], *, reasoning: bool, dialects: Mapping[str, Dialect]
    ) -> None:
        self._run = run
        self._board = Board(run.created_at, times)
        self._attempts = Attempts(self._board, claims=run.claims, reasoning=reasoning, dialects=dialects)
        self._tools = ToolCalls(self._board)
        self._steps = Steps(self._board, self._attempts)
        self._fork: ForkItem | None = None
        self._question = ""
        self._compressing: float | None = None  # since when
        self._compacted = False
        self._output: list[str] = []
        self._finished: events.RunFinished | None = None

    def apply(self, entry: Entry) -> None:
        event = entry.event
        if isinstance(event, events.Snapshot):  # it stands before the facts that it has been made of
            self._restore(event)
            return
        self._board.read(entry.seq)
        if type(event) is events.MessageChunk:  # nearly every entry: ahead of the match for speed alone
            self._attempts.add(event.text, entry.attempt)
        else:
            self._apply(event, entry.attempt)

    def _apply(self, event: AnyEvent, attempt: int) -> None:  # noqa: C901, PLR0912, PLR0915 - one case per event
        match event:
            case events.MessageChunk(text):
                self._attempts.add(text, attempt)
            case events.ReasoningChunk(text):
                self._attempts.add(text, attempt, thinking=True)
            case events.LlmDelta(block_id, delta):
                self._attempts.add(delta, attempt, block_id=block_id)
            case events.Commentary(text):
                self._attempts.add_whole(text, attempt, commentary=True)
            case events.MessageStop():
                self._attempts.close_span()
            case events.ToolArgumentsChunk():
                self._attempts.token()
                self._tools.write(event, attempt)
            case events.ToolCallChunk():
                self._attempts.close_span()
                self._tools.start(event, attempt)
            case events.ToolOutputRecorded():
                self._tools.output(event)
            case events.ToolCallFinished():
                self._tools.finish(event)
            case events.LongToolHint(tool_name, duration):
                self._notice("long_tool", f"{tool_name} is still running after {duration:.0f} s")
            case events.GatewayNotice():
                self._gateway_notice(event)
            case events.ApprovalAsked():
                self._tools.ask(event)
            case events.ApprovalAnswered():
                self._tools.answer(event)
            case events.AttemptStarted():
                self._tools.break_off()
                self._attempts.start(event, attempt)
            case events.AttemptDiscarded():
                if not event.block_id:
                    self._tools.break_off()
                self._attempts.discard(event, attempt)
            case events.UsageRecorded():
                self._attempts.spend(event, attempt)
            case events.MessageRecorded(message, stop):
                self._message(message, stop, attempt)
            case events.HistoryCompressed(messages):
                self._compressed(len(messages))
            case events.RunForked(run_id, after):
                seq = self._board.seq
                self._fork = ForkItem(
                    seq=seq, end_seq=seq, start=self._board.now, end=self._board.now, run_id=run_id, after=after
                )
                self._board.add(self._fork)
            case (
                events.StateChanged()
                | events.StepStarted()
                | events.StepFailed()
                | events.StepFinished()
                | events.StepCancelled()
                | events.SignalReceived()
            ):
                self._sequence(event)
            case events.Delivered(key, state, message_id):
                self._add_delivery(key, state, message_id)
            case events.Snapshot():
                self._restore(event)
            case events.RunFinished():
                self._finish(event)
            case events.RunStarted() | events.AnswerKept() | events.ProviderEvents() | events.ProviderAnswer():
                pass  # the run itself has what the first says; the chunks beside the others say the same
            case _:
                assert_never(event)

    # ── messages ─────────────────────────────────────────────────────────────────────────────────────────────

    def _message(self, message: Message, stop: str, attempt: int) -> None:
        if message.role == "user":
            board = self._board
            at = 0.0 if not board.items else board.now  # the question stands when the run begins
            self._question = spoken_text(message.text, speaker_of(self._run))
            files = tuple(media_words(part) for part in message.parts if isinstance(part, Image | File))
            item = QuestionItem(seq=board.seq, end_seq=board.seq, start=at, end=at, text=self._question, files=files)
            board.add(item)
        if message.role != "assistant":
            return
        if self._compacted or not self._attempts.said():
            self._add_recorded(message, attempt)
        self._attempts.end(_ENDINGS.get(stop, "called_tools" if message.tool_calls else "answered"))
        self._tools.record(message.tool_calls, attempt)

    def _add_recorded(self, message: Message, attempt: int) -> None:
        """An answer that was not streamed, or whose pieces are gone."""
        thoughts = "".join(part.text for part in message.parts if isinstance(part, Reasoning))
        if thoughts and self._compacted:
            self._attempts.add_whole(thoughts, attempt, thinking=True)
        if message.text:
            self._attempts.add_whole(message.text, attempt)

    def _compressed(self, messages: int) -> None:
        board = self._board
        start = self._compressing if self._compressing is not None else board.now
        board.add(CompressionItem(seq=board.seq, end_seq=board.seq, start=start, end=board.now, messages=messages))
        self._compressing = None

    # ── notices ──────────────────────────────────────────────────────────────────────────────────────────────

    def _gateway_notice(self, event: events.GatewayNotice) -> None:
        board, silent_s = self._board, event.extra.get("silent_s")
        if event.kind == "stalled" and isinstance(silent_s, int | float):
            start = max(0.0, round(board.now - silent_s, 3)) if board.now is not None else None
            board.add(
                StallItem(
                    seq=board.seq,
                    end_seq=board.seq,
                    start=start,
                    end=board.now,
                    silent_s=float(silent_s),
                    gave_up=True,
                    provider=str(event.extra.get("provider", "")),
                    text=event.text,
                )
            )
            return
        if event.kind == "compressing":
            self._compressing = board.now
        board.add(
            NoticeItem(
                seq=board.seq,
                end_seq=board.seq,
                start=board.now,
                end=board.now,
                about=event.kind,
                text=event.text,
                extra=event.extra,
            )
        )

    def _notice(self, about: str, text: str) -> None:
        self._gateway_notice(events.GatewayNotice(about, text))

    def _add_delivery(self, key: str, state: events.DeliveredState, message_id: str) -> None:
        board = self._board
        board.add(
            DeliveryItem(
                seq=board.seq,
                end_seq=board.seq,
                start=board.now,
                end=board.now,
                key=key,
                state=state,
                message_id=message_id,
            )
        )

    # ── sequences ────────────────────────────────────────────────────────────────────────────────────────────

    def _sequence(
        self,
        event: events.StateChanged
        | events.StepStarted
        | events.StepFailed
        | events.StepFinished
        | events.StepCancelled
        | events.SignalReceived,
    ) -> None:
        board, steps = self._board, self._steps
        match event:
            case events.StateChanged(state):
                board.add(StateItem(seq=board.seq, end_seq=board.seq, start=board.now, end=board.now, state=state))
                if state == "paused":
                    steps.pause()
            case events.StepStarted():
                steps.start(event)
            case events.StepFailed():
                steps.fail(event)
            case events.StepFinished():
                steps.finish(event)
            case events.StepCancelled():
                steps.cancel(event)
            case events.SignalReceived(_, name, payload, by):
                board.add(
                    SignalItem(
                        seq=board.seq,
                        end_seq=board.seq,
                        start=board.now,
                        end=board.now,
                        name=name,
                        payload=payload,
                        by=by,
                    )
                )
            case _:
                assert_never(event)

    # ── the whole run ────────────────────────────────────────────────────────────────────────────────────────

    def _restore(self, state: events.Snapshot) -> None:
        """The pieces are gone: texts come from the messages that the facts have."""
        self._compacted = self._attempts.compacted = True
        self._tools.restore(state.tools)

    def _finish(self, event: events.RunFinished) -> None:
        board = self._board
        self._finished = event
        ended = board.since_start(event.at)  # exact: the commit may have the time of what preceded it
        if ended is not None:
            board.now = max(board.now or 0.0, ended)
        self._attempts.end_all(_OPEN_ENDINGS[event.status], event.error)
        self._tools.end_all(completed=event.status == "completed")
        self._steps.end_all()
        board.add(
            FinishItem(
                seq=board.seq, end_seq=board.seq, start=board.now, end=board.now, status=event.status, error=event.error
            )
        )

    def timeline(self) -> Timeline:
        self._attempts.finish()
        self._tools.unfinished_arguments()
        run, finished, board = self._run, self._finished or self._run.finished, self._board
        ended = board.since_start(finished.at) if finished is not None else None
        return Timeline(
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
