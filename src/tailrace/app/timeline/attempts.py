"""The attempts of model calls in a timeline, and the stretches of text and thought that they gave.

A run has one model that speaks; in a sequence each step has one of its own, told by its block id.
"""

from __future__ import annotations

import msgspec

from tailrace.app.costs import Costs
from tailrace.app.timeline.board import Board
from tailrace.app.timeline.items import (
    AttemptItem,
    AttemptOutcome,
    FailoverItem,
    ReasoningItem,
    StallItem,
    TakeoverItem,
    TextItem,
)
from tailrace.events import AttemptStarted, RunFailure
from tailrace.messages import SpentTokens, Usage
from tailrace.runs.view.changes import Spent, TextWithdrawn

STALL_S = 2.0  # a pause between two pieces of one answer that is worth showing
_CHARS_PER_TOKEN = 4
_BUFFERED_CHARS = 200  # more of a step's text in one piece was written when a viewer came, or at its end


class _Span(msgspec.Struct):
    """A stretch that may still grow."""

    place: int
    thinking: bool
    pieces: list[str] = []
    last: float | None = None  # when its newest piece came
    last_seq: int = 0


class _Attempt(msgspec.Struct):
    place: int
    asked: AttemptStarted
    start: float | None
    call: int
    try_number: int
    open: bool = True
    discarded: bool = False
    chars: int = 0  # of the answer's text
    first_piece: int = 0  # its characters
    pieces: int = 0
    spans: list[int] = []
    usage: Usage | None = None


class _Speaker(msgspec.Struct):
    """The model of the run or of one step: its attempts by number, the newest one, the text under way."""

    attempts: dict[int, _Attempt] = {}
    newest: _Attempt | None = None
    span: _Span | None = None
    last: float | None = None  # when anything of it last came
    shown: int = 0  # characters that stand and are not yet part of a recorded message


class Attempts:
    def __init__(self, board: Board, *, claims: int, reasoning: bool, costs: Costs | None) -> None:
        self._board = board
        self._claims = claims
        self._shows_reasoning = reasoning
        self._costs = costs
        self._speakers: dict[str, _Speaker] = {}
        self._unpaid: dict[tuple[int, str, str], list[_Attempt]] = {}  # without usage, by number, provider and model
        self.compacted = False  # the pieces of the texts are gone, and when they came
        self.usage = Usage()
        self._cost: float | None = 0.0

    @property
    def model(self) -> str:
        """Who answered last: `provider/model`."""
        newest = next(reversed(self._speakers.values()), _Speaker()).newest
        return f"{newest.asked.provider}/{newest.asked.model}" if newest is not None else ""

    @property
    def cost(self) -> float | None:
        return self._cost if self.usage != Usage() else None

    @property
    def first_token(self) -> float | None:
        attempts = (item for item in self._board.items if isinstance(item, AttemptItem))
        known = ((item.start, item.first_token_s) for item in attempts)
        return min((began + took for began, took in known if began is not None and took is not None), default=None)

    def _speaker(self, block_id: str) -> _Speaker:
        return self._speakers.setdefault(block_id, _Speaker())

    # ── attempts ─────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, event: AttemptStarted, number: int) -> None:
        board, speaker = self._board, self._speaker(event.block_id)
        self.close_span(event.block_id)
        before = speaker.newest
        same_call = before is not None and (before.open or before.discarded)
        call, try_number = 1, 1
        if before is not None:
            again = same_call or bool(event.previous_failure)
            call, try_number = (before.call, before.try_number + 1) if again else (before.call + 1, 1)
        goes_on = restarts = False
        if before is not None and same_call:
            self._end_before(before, event, speaker)
            goes_on = speaker.shown > 0
            restarts = not goes_on
            if (before.asked.provider, before.asked.model) != (event.provider, event.model):
                board.add_now(
                    FailoverItem,
                    from_provider=before.asked.provider,
                    from_model=before.asked.model,
                    to_provider=event.provider,
                    to_model=event.model,
                    reason=event.previous_failure,
                    block_id=event.block_id,
                )
        place = board.add_now(
            AttemptItem,
            ends=False,
            number=number,
            call=call,
            try_number=try_number,
            provider=event.provider,
            model=event.model,
            block_id=event.block_id,
            goes_on=goes_on,
            restarts=restarts,
            ignored=event.ignored,
        )
        attempt = speaker.newest = speaker.attempts[number] = _Attempt(place, event, board.now, call, try_number)
        speaker.last = board.now
        self._unpaid.setdefault((number, event.provider, event.model), []).append(attempt)

    def _end_before(self, before: _Attempt, event: AttemptStarted, speaker: _Speaker) -> None:
        """The attempt before it in the same call has failed, or its process has ended."""
        if not before.open:
            return
        before.open = False
        if event.previous_failure or self._claims <= 1:
            self._board.end(before.place, outcome="failed", reason=event.previous_failure)
            return
        self._board.change(before.place, outcome="interrupted", end=speaker.last, end_seq=self._board.seq - 1)
        self.taken_over(speaker.last, event.block_id)

    def taken_over(self, since: float | None, block_id: str) -> None:
        self._board.add_now(TakeoverItem, start=since, claims=self._claims, block_id=block_id)

    def discard(self, change: TextWithdrawn) -> None:
        self.close_span(change.block_id)
        speaker = self._speaker(change.block_id)
        attempt = speaker.attempts.get(change.attempt)
        if attempt is None:
            return
        speaker.shown -= min(speaker.shown, attempt.chars)
        if attempt.open:
            attempt.open = False
            self._board.end(attempt.place)
        attempt.discarded = True
        spoke = bool(attempt.spans) or self.compacted  # a compacted log does not say: its pieces are gone
        self._board.change(attempt.place, outcome="discarded" if spoke else "failed", reason=change.reason)
        for place in attempt.spans:
            self._board.change(place, withdrawn=True)

    def end(self, outcome: AttemptOutcome, reason: str = "", *, block_id: str = "") -> None:
        """The attempt under way ends; a no-op where none is."""
        self.close_span(block_id)
        speaker = self._speaker(block_id)
        speaker.shown, attempt = 0, speaker.newest
        if attempt is not None and attempt.open:
            attempt.open = False
            self._board.end(attempt.place, outcome=outcome, reason=reason)

    def end_all(self, outcome: AttemptOutcome, error: RunFailure | None) -> None:
        """With the run. A cut answer learns here why it was cut."""
        for block_id, speaker in self._speakers.items():
            self.end(outcome, error.message if error is not None else "", block_id=block_id)
            attempt = speaker.newest
            item = self._board.items[attempt.place] if attempt is not None else None
            if isinstance(item, AttemptItem) and item.outcome == "failed" and not item.reason and error is not None:
                self._board.change(attempt.place if attempt is not None else 0, reason=error.message)

    def spend(self, change: Spent) -> None:
        waiting = self._unpaid.get((change.attempt, change.provider, change.model))
        attempt = waiting.pop() if waiting else None
        dialect = attempt.asked.dialect if attempt is not None else None
        spent = SpentTokens(change.provider, change.model, change.usage)
        cost = self._costs.price(spent, dialect) if self._costs is not None else None
        self.usage += change.usage
        self._cost = self._cost + cost if self._cost is not None and cost is not None else None
        if attempt is not None:
            attempt.usage = change.usage
            self._board.change(attempt.place, usage=change.usage, cost_usd=cost)

    # ── text and thoughts ────────────────────────────────────────────────────────────────────────────────────

    def add(self, text: str, number: int, *, block_id: str = "", thinking: bool = False) -> None:
        board, speaker = self._board, self._speaker(block_id)
        self._token(speaker)
        span = speaker.span
        if span is not None and self._is_stall(span):
            self._stall(span, speaker)
            span = None
        if span is None or span.thinking is not thinking:
            self.close_span(block_id)
            span = speaker.span = self._open_span(speaker, number, block_id, thinking=thinking)
        span.pieces.append(text)
        span.last, span.last_seq = board.now, board.seq
        if thinking:
            return
        speaker.shown += len(text)
        if (attempt := speaker.attempts.get(number)) is not None:
            attempt.chars += len(text)
            attempt.pieces += 1
            attempt.first_piece = attempt.first_piece or len(text)

    def add_whole(self, text: str, number: int) -> None:
        """A text that did not come in pieces, or whose pieces are gone."""
        self.close_span()
        self.add(text, number)
        self.close_span()

    def token(self, block_id: str = "") -> None:
        """A piece of the answer that is no text: arguments of a call."""
        self.close_span(block_id)
        self._token(self._speaker(block_id))

    def _token(self, speaker: _Speaker) -> None:
        speaker.last, newest, now = self._board.now, speaker.newest, self._board.now
        if self.compacted or now is None or newest is None or newest.start is None:
            return
        item = self._board.items[newest.place]
        if isinstance(item, AttemptItem) and item.first_token_s is None:
            self._board.change(newest.place, first_token_s=round(now - newest.start, 3))

    def _open_span(self, speaker: _Speaker, number: int, block_id: str, *, thinking: bool) -> _Span:
        kind = ReasoningItem if thinking else TextItem
        attempt = speaker.attempts.get(number)
        at = {"call": attempt.call, "try_number": attempt.try_number} if attempt is not None else {}
        place = self._board.add_now(kind, ends=False, attempt=number, block_id=block_id, **at)
        if attempt is not None:
            attempt.spans.append(place)
        return _Span(place, thinking)

    def _is_stall(self, span: _Span) -> bool:
        now = self._board.now
        return now is not None and span.last is not None and now - span.last >= STALL_S

    def _stall(self, span: _Span, speaker: _Speaker) -> None:
        board = self._board
        silent_s = round((board.now or 0.0) - (span.last or 0.0), 3)
        self._close(span)
        speaker.span = None
        provider = speaker.newest.asked.provider if speaker.newest is not None else ""
        board.add_now(StallItem, start=span.last, silent_s=silent_s, provider=provider)

    def close_span(self, block_id: str = "") -> None:
        speaker = self._speaker(block_id)
        if speaker.span is not None:
            self._close(speaker.span)
            speaker.span = None

    def _close(self, span: _Span) -> None:
        text = "".join(span.pieces)
        shown = text if not span.thinking or self._shows_reasoning else ""
        self._board.change(
            span.place, text=shown, chars=len(text), chunks=len(span.pieces), end=span.last, end_seq=span.last_seq
        )

    # ── at the end ───────────────────────────────────────────────────────────────────────────────────────────

    def finish(self) -> None:
        """Closes what is open and works out how fast the texts came."""
        for block_id, speaker in self._speakers.items():
            self.close_span(block_id)
            for attempt in speaker.attempts.values():
                # What no viewer watched is one entry of its step: when it came, and how fast, is not known.
                if is_buffered := bool(block_id and attempt.chars) and (
                    attempt.pieces == 1 or attempt.first_piece > _BUFFERED_CHARS
                ):
                    self._board.change(attempt.place, first_token_s=None)
                for place in attempt.spans:
                    self._measure(place, attempt, is_buffered=is_buffered)

    def _measure(self, place: int, attempt: _Attempt, *, is_buffered: bool) -> None:
        item = self._board.items[place]
        if not isinstance(item, TextItem | ReasoningItem):
            return
        tokens = item.chars // _CHARS_PER_TOKEN
        if isinstance(item, TextItem) and attempt.usage is not None and attempt.chars:
            counted = max(0, attempt.usage.output_tokens - attempt.usage.reasoning_tokens)
            tokens = round(counted * item.chars / attempt.chars) or tokens
        took = item.end - item.start if item.end is not None and item.start is not None else 0.0
        rate = round(tokens / took, 1) if took > 0 and not is_buffered else None
        self._board.items[place] = msgspec.structs.replace(item, tokens=tokens, tokens_per_s=rate)
